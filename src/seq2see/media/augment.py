"""Changes pictures and sounds in training, differently in each epoch, so that a model learns what does not matter.

Each change follows from (seed, epoch, index of the example) alone, so a resumed run makes the same ones.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from seq2see.config import Config, ModelConfig
from seq2see.media.pictures import cut_patches, join_patches
from seq2see.rng import random_uint64, to_uniform
from seq2see.text.batches import Augmentation, Int64Array
from seq2see.text.store import Tokens


def build_augmentation(config: Config) -> Augmentation | None:
    """Returns the augmentation that the configuration asks for."""
    train = config.train
    if config.model.source == "pictures" and train.shift_pixels:
        return ShiftPictures(config.model, train.shift_pixels, train.seed)
    if config.model.source == "sounds" and (train.mask_bands or train.mask_frames):
        return MaskSpectrogram(config.model, train.mask_bands, train.mask_frames, train.seed)
    return None


def _uniforms(count: int, seed: int, epoch: int, index: int) -> NDArray[np.float64]:
    return to_uniform(random_uint64(count, seed, epoch, index, 7))


@dataclass(frozen=True)
class ShiftPictures:
    """Shifts each picture by up to `pixels` in both directions; the edge is repeated."""

    model: ModelConfig
    pixels: int
    seed: int

    def __call__(self, tokens: Tokens, lengths: Int64Array, epoch: int, indices: Int64Array) -> Tokens:
        size, rows, parts = self.model.patch_size, self.model.patch_rows, []
        for patches, index in zip(np.split(tokens, np.cumsum(lengths)[:-1]), indices.tolist(), strict=True):
            picture = join_patches(patches, size, rows)
            height, width, _ = picture.shape
            padded = np.pad(picture, ((self.pixels, self.pixels), (self.pixels, self.pixels), (0, 0)), mode="edge")
            down, right = (_uniforms(2, self.seed, epoch, index) * (2 * self.pixels + 1)).astype(int)
            parts.append(cut_patches(padded[down : down + height, right : right + width], size))
        return np.concatenate(parts)


@dataclass(frozen=True)
class MaskSpectrogram:
    """SpecAugment: sets two ranges of mel bands and two of frames to the spectrogram's mean, each up to a maximum size.

    Of a short sound, at most a fifth of the frames are masked by each range.
    """

    model: ModelConfig
    bands: int
    frames: int
    seed: int

    def __call__(self, tokens: Tokens, lengths: Int64Array, epoch: int, indices: Int64Array) -> Tokens:
        parts = []
        for rows, index in zip(np.split(tokens, np.cumsum(lengths)[:-1]), indices.tolist(), strict=True):
            frames = rows.reshape(-1, self.model.mel_bands).copy()
            mean = frames.mean(dtype=np.float32)
            numbers = _uniforms(8, self.seed, epoch, index)
            for first, second in zip(numbers[0:4:2], numbers[1:4:2], strict=True):
                frames[:, _range(first, second, self.bands, self.model.mel_bands)] = mean
            for first, second in zip(numbers[4::2], numbers[5::2], strict=True):
                frames[_range(first, second, min(self.frames, len(frames) // 5), len(frames))] = mean
            parts.append(frames.reshape(rows.shape))
        return np.concatenate(parts)


def _range(size: float, start: float, max_size: int, length: int) -> slice:
    """Returns a range of 0 to `max_size` of `length` items, from two uniform numbers."""
    count = int(size * (min(max_size, length) + 1))
    first = int(start * (length - count + 1))
    return slice(first, first + count)
