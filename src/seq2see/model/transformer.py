"""The Transformer, in its three shapes: the encoder-decoder of the paper, a decoder alone, an encoder alone.

    source ── embed + positions ── N × [self-attention · feed-forward] ──┐ memory
    target ── embed + positions ── N × [masked attention · cross-attention · feed-forward] ── vectors · Eᵀ ── logits

Shapes: T tokens of the target in the batch, U of the source.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from seq2see.config import ModelConfig
from seq2see.errors import UserError
from seq2see.layout import Layout, Packed
from seq2see.model.init import initialise
from seq2see.model.layers import Block, Dropout, Pasts, norm
from seq2see.model.network import Network
from seq2see.model.positions import rotation, sinusoids
from seq2see.model.taps import NO_TAPS, Taps


class Stack(nn.Module):
    """The encoder or the decoder: positions are added to the embedded tokens, then come N blocks of the same form."""

    def __init__(self, config: ModelConfig, layers: int, causal: bool, cross: bool) -> None:
        super().__init__()
        self.config = config
        self.positions = nn.Embedding(config.longest, config.width) if config.positions == "learned" else None
        self.segments = nn.Embedding(config.segments, config.width) if config.segments else None
        self.register_buffer("waves", self._sinusoids(config.longest), persistent=False)
        self.embedding_norm = norm(config) if config.embedding_norm else None
        self.dropout = Dropout(config.dropout)
        self.blocks = nn.ModuleList(Block(config, causal, cross) for _ in range(layers))
        # Blocks that norm first leave the last sum without one.
        self.final_norm = norm(config) if config.norm_first else None

    waves: Tensor | None

    def forward(
        self, embedded: Tensor, layout: Layout, taps: Taps,
        memory: Tensor | None = None, memory_layout: Layout | None = None, segments: Tensor | None = None,
        pasts: Sequence[Pasts] | None = None,
    ) -> Tensor:  # fmt: skip
        x = taps("embedded", embedded)  # [T, width]
        if self.segments is not None:
            kinds = torch.zeros_like(layout.positions) if segments is None else segments
            x = x + taps("segments", self.segments(kinds))
        positions = self._positions(layout, x.dtype)
        if positions is not None:
            x = x + taps("positions", positions)
        x = taps("input", x)
        if self.embedding_norm is not None:
            x = self.embedding_norm(x, taps.at("norm"))
        x = self.dropout(x)

        turn = None
        if self.config.positions == "rotary":
            turn = rotation(layout.positions, self.config.width_of_head, self.config.rotary_base)
        for number, block in enumerate(self.blocks):
            past = (None, None) if pasts is None else pasts[number]
            x = block(x, layout, memory, memory_layout, turn, taps.at(str(number)), past)
        if self.final_norm is not None:
            x = self.final_norm(x, taps.at("final_norm"))
        return taps("vectors", x)

    def _positions(self, layout: Layout, dtype: torch.dtype) -> Tensor | None:
        if self.positions is not None:
            if layout.longest > self.config.longest:
                raise UserError(
                    f"a sequence of {layout.longest:,} tokens, but the model has {self.config.longest:,} learned positions "
                    "(model.longest): shorten it, or train with sinusoidal or rotary positions"
                )
            return self.positions(layout.positions)
        if self.waves is None:
            return None
        waves = self.waves
        if layout.longest > len(waves):  # waves go on for ever, only the table ends
            waves = self._sinusoids(layout.longest).to(waves.device)  # type: ignore[union-attr]
        return waves[layout.positions].to(dtype)

    def reach(self, length: int) -> None:
        """Makes the table of waves long enough for tokens that will come one at a time."""
        if self.waves is not None and len(self.waves) < length:
            with torch.inference_mode(False):
                self.waves = self._sinusoids(length).to(self.waves.device)  # type: ignore[union-attr]

    def _sinusoids(self, length: int) -> Tensor | None:
        if self.config.positions not in ("sinusoidal", "sinusoidal-halves"):
            return None
        return sinusoids(length, self.config.width, halves=self.config.positions == "sinusoidal-halves")


class Transformer(Network):
    encoder: Stack | None
    decoder: Stack | None

    def __init__(self, config: ModelConfig) -> None:
        encoder = Stack(config, config.encoder_layers, causal=False, cross=False) if config.has_encoder else None
        translates = config.shape == "encoder-decoder"
        decoder = Stack(config, config.decoder_layers, causal=True, cross=translates) if config.has_decoder else None
        super().__init__(config, encoder, decoder)
        initialise(self)

    def _restore(self) -> None:
        for stack in (self.encoder, self.decoder):
            if stack is not None:
                stack.waves = stack._sinusoids(self.config.longest)

    def encode(self, source: Packed, taps: Taps = NO_TAPS, segments: Tensor | None = None) -> Tensor:
        """The encoder's vectors, [U, width]: what a decoder uses as its memory."""
        assert self.encoder is not None
        taps = taps.at("encoder", rows=source.layout, keys=source.layout)
        embedded = self.embed(self.source_embedding or self.embedding, source, taps)
        return self.encoder(embedded, source.layout, taps, segments=segments)

    def decode(
        self, target: Packed, memory: Tensor | None = None, memory_layout: Layout | None = None, taps: Taps = NO_TAPS,
        pasts: Sequence[Pasts] | None = None,
    ) -> Tensor:  # fmt: skip
        """The decoder's vectors, [T, width]. With a past for each block, the tokens go on from those before them."""
        assert self.decoder is not None
        taps = taps.at("decoder", rows=target.layout, keys=target.layout)
        embedded = self.embed(self.embedding, target, taps)
        return self.decoder(embedded, target.layout, taps, memory, memory_layout, pasts=pasts)
