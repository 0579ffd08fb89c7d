"""Source readers: turn patches of pictures and frames of sounds into the vectors that enter the encoder.

For text this is the token embedding (`Network.embed`). A picture is cut into square patches and each becomes a vector by one
linear map (ViT, 2020). A sound is a log-mel spectrogram; two convolutions over time, the second with stride 2, make one
vector of every two frames (Whisper, 2022). A source row is one patch, or one pair of frames, so that rows and vectors share
one layout.

Shapes: U source rows in the batch, S sequences, L rows in the longest, M mel bands, d the width.
"""

from torch import Tensor, nn
from torch.nn import functional as F

from seq2see.config import ModelConfig
from seq2see.data.layout import Packed
from seq2see.model.taps import Taps


class PatchProjection(nn.Module):
    """One linear map from the pixels of a patch to a vector."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.projection = nn.Linear(config.row_size, config.width)

    def forward(self, source: Packed, taps: Taps) -> Tensor:
        pixels = source.tokens.to(self.projection.bias.dtype) / 127.5 - 1  # [U, F], from 0 … 255
        return self.projection(taps("patches", pixels))  # [U, d]


class SoundConvolutions(nn.Module):
    """Whisper's two convolutions with GELU. Sequences are padded for them: none sees its neighbour in the batch."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.conv1 = nn.Conv1d(config.mel_bands, config.width, kernel_size=3, padding=1)
        self.conv2 = nn.Conv1d(config.width, config.width, kernel_size=3, stride=2, padding=1)

    def forward(self, source: Packed, taps: Taps) -> Tensor:
        layout, bands = source.layout, self.conv1.in_channels
        frames = taps("mel_frames", source.tokens.to(self.conv1.weight.dtype))  # [U, 2 · M]
        # Padded, a sequence begins where the convolutions pad with zeros. Its last vector is made of its last three frames.
        padded = layout.pad(frames).unflatten(2, (2, bands)).flatten(1, 2)  # [S, 2 · L, M]
        convolved = F.gelu(self.conv1(padded.mT)).mT  # [S, 2 · L, d]
        if taps.active:
            rows = layout.unpad(convolved.unflatten(1, (layout.max_length, 2)).flatten(2))  # [U, 2 · d]
            convolved = layout.pad(taps("convolved", rows)).unflatten(2, (2, -1)).flatten(1, 2)
        return layout.unpad(F.gelu(self.conv2(convolved.mT)).mT)  # [U, d]


def build_source_reader(config: ModelConfig) -> PatchProjection | SoundConvolutions | None:
    """Returns the reader of pictures or sounds; None for text."""
    if config.source == "tokens":
        return None
    return PatchProjection(config) if config.source == "pictures" else SoundConvolutions(config)
