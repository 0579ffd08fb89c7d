"""The Transformer in its three shapes: encoder-decoder (the paper), decoder-only and encoder-only.

    source ── read + positions  ── N × [self-attention · feed-forward] ──┐ memory
    target ── embed + positions ── N × [masked attention · cross-attention · feed-forward] ── vectors · Eᵀ ── logits

The source is read by token embedding, or from patches of pictures or frames of sounds (`source_readers`).

Shapes: T tokens of the target in the batch, U of the source.
"""

import threading
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from seq2see.config import ModelConfig
from seq2see.data.layout import Layout, Packed
from seq2see.errors import UserError
from seq2see.model.init import initialize
from seq2see.model.layers import NO_STORES, Block, Dropout, Memory, Pass, Stores, build_norm
from seq2see.model.network import Network
from seq2see.model.positions import (
    POSITION_BIASES,
    Rotation,
    grid_sinusoids,
    rotary_cos_sin,
    rotary_frequencies,
    sinusoids,
)
from seq2see.model.taps import NO_TAPS, Taps

_EXTEND_LOCK = threading.Lock()


class Stack(nn.Module):
    """The encoder or the decoder: embedded tokens plus positions, then N identical blocks."""

    def __init__(self, config: ModelConfig, layers: int, causal: bool, cross: bool) -> None:
        super().__init__()
        self.config = config
        self.position_kind = config.positions if causal else config.actual_encoder_positions
        self.max_positions = config.max_positions if causal else config.actual_max_source_positions
        self.positions = nn.Embedding(self.max_positions, config.width) if self.position_kind == "learned" else None
        self.segments = nn.Embedding(config.segments, config.width) if config.segments else None
        bias = POSITION_BIASES.get(self.position_kind)
        self.relative_bias = bias(config, causal) if bias is not None else None
        self.register_buffer("sinusoids", self._sinusoids(self.max_positions), persistent=False)
        self.embedding_norm = build_norm(config) if config.embedding_norm else None
        self.dropout = Dropout(config.dropout)
        self.blocks = nn.ModuleList(
            Block(config, causal, cross, local=causal and config.is_local(layer)) for layer in range(layers)
        )
        # With norm_first, the sum after the last block has not been normalised yet.
        self.final_norm = build_norm(config) if config.norm_first else None

    sinusoids: Tensor | None

    def forward(
        self, embedded: Tensor, layout: Layout, taps: Taps, memory: Memory | None = None, stores: Sequence[Stores] = (),
        segments: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        takes_bias = not stores or stores[0][0].takes_bias
        p = self._pass(layout, memory, embedded.dtype, taps, takes_bias)
        x = self.embed_positions(embedded, layout, taps, segments)
        for i, block in enumerate(self.blocks):
            x = block(x, p, taps.at(str(i)), stores[i] if stores else NO_STORES)
        if self.final_norm is not None:
            x = self.final_norm(x, taps.at("final_norm"))
        return taps("vectors", x)

    def embed_positions(self, embedded: Tensor, layout: Layout, taps: Taps, segments: Tensor | None = None) -> Tensor:
        """Adds segments and positions to the embedded tokens: the input of the first block, [T, width]."""
        x = taps("embedded", embedded)
        if self.segments is not None:
            segment_ids = torch.zeros_like(layout.positions) if segments is None else segments
            x = x + taps("segments", self.segments(segment_ids))
        positions = self._positions(layout, x.dtype)
        if positions is not None:
            x = x + taps("positions", positions)
        x = taps("input", x)
        if self.embedding_norm is not None:
            x = self.embedding_norm(x, taps.at("norm"))
        return self.dropout(x)

    def _pass(self, layout: Layout, memory: Memory | None, dtype: torch.dtype, taps: Taps, takes_bias: bool) -> Pass:
        """Returns what all blocks share: the memory, and what positions do in attention."""
        rotation = local_rotation = bias = None
        if self.position_kind == "rotary":
            rotation = local_rotation = self._rotation(layout, local=False)
            if self.config.local_rotary_base:
                local_rotation = self._rotation(layout, local=True)
        if self.relative_bias is not None and takes_bias:
            positions = torch.arange(layout.max_length, device=layout.positions.device)
            bias = self.relative_bias(positions, positions)[None].to(dtype)  # [1, H, L, L]
            bias = taps("relative_bias", bias.expand(len(layout), -1, -1, -1)) if taps.active else bias
        return Pass(layout, memory, rotation, local_rotation, bias)

    def _rotation(self, layout: Layout, local: bool) -> Rotation:
        frequencies = rotary_frequencies(self.config, local, layout.positions.device)
        return rotary_cos_sin(layout.positions, frequencies, self.config.rotary_magnitude)

    def _positions(self, layout: Layout, dtype: torch.dtype) -> Tensor | None:
        if self.positions is not None:
            if layout.max_length > self.max_positions:
                raise UserError(
                    f"a sequence of {layout.max_length:,} tokens exceeds the model's {self.max_positions:,} learned "
                    "positions (model.max_positions): shorten it, or train with sinusoidal or rotary positions"
                )
            return self.positions(layout.positions)
        if self.sinusoids is None:
            return None
        table = self.sinusoids
        if layout.max_length > len(table):  # sinusoids are defined for any position; only the table is finite
            table = self._sinusoids(layout.max_length).to(table.device)  # type: ignore[union-attr]
        return nn.functional.embedding(layout.positions, table).to(
            dtype
        )  # positions may have two axes: the padded model

    def extend_positions(self, length: int) -> None:
        """Extends the table of sinusoids to `length`, ahead of incremental decoding."""
        with _EXTEND_LOCK, torch.inference_mode(False):  # another thread must not replace it with a shorter table
            if self.sinusoids is not None and len(self.sinusoids) < length:
                self.sinusoids = self._sinusoids(length).to(self.sinusoids.device)  # type: ignore[union-attr]

    def _sinusoids(self, length: int) -> Tensor | None:
        if not self.position_kind.startswith(("sinusoidal", "grid")):
            return None
        if torch.get_default_device().type == "meta":  # computing there would import torch's compiler: two seconds
            return torch.empty(length, self.config.width)
        if self.position_kind == "grid":
            return grid_sinusoids(length, self.config.width, self.config.patch_rows)
        return sinusoids(length, self.config.width, self.position_kind)


class Transformer(Network):
    encoder: Stack | None
    decoder: Stack | None

    def __init__(self, config: ModelConfig) -> None:
        encoder = Stack(config, config.encoder_layers, causal=False, cross=False) if config.has_encoder else None
        translates = config.shape == "encoder-decoder"
        decoder = Stack(config, config.decoder_layers, causal=True, cross=translates) if config.has_decoder else None
        super().__init__(config, encoder, decoder)
        initialize(self)

    def _reset_buffers(self) -> None:
        for stack in (self.encoder, self.decoder):
            if stack is not None:
                stack.sinusoids = stack._sinusoids(stack.max_positions)

    def encode(self, source: Packed, taps: Taps = NO_TAPS, segments: Tensor | None = None) -> Tensor:
        """Returns the encoder's vectors, [U, width]."""
        assert self.encoder is not None
        taps = taps.at("encoder", rows=source.layout, keys=source.layout)
        return self.encoder(self.embed_source(source, taps), source.layout, taps, segments=segments)

    def decode(
        self, target: Packed, memory: Memory | None = None, taps: Taps = NO_TAPS, stores: Sequence[Stores] = ()
    ) -> Tensor:
        assert self.decoder is not None
        taps = taps.at("decoder", rows=target.layout, keys=target.layout)
        return self.decoder(self.embed(self.embedding, target, taps), target.layout, taps, memory, stores)
