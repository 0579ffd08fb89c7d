"""The Transformer, in its three shapes: the encoder-decoder of the paper, a decoder alone, an encoder alone.

    source ── embed + positions ── N × [self-attention · feed-forward] ──┐ memory
    target ── embed + positions ── N × [masked attention · cross-attention · feed-forward] ── vectors · Eᵀ ── logits

Shapes: T tokens of the target in the batch, U of the source.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seq2see.config import ModelConfig
from seq2see.errors import UserError
from seq2see.model.initial import initialise
from seq2see.model.layers import Block, Pasts, norm
from seq2see.model.layout import Layout, Packed
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
        self.dropout = nn.Dropout(config.dropout)
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


class Transformer(nn.Module):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        translates = config.shape == "encoder-decoder"
        self.embedding = nn.Embedding(config.vocabulary, config.width)
        self.source_embedding = (
            nn.Embedding(config.source_vocabulary or config.vocabulary, config.width)
            if translates and config.tie != "all"
            else None
        )
        self.encoder = Stack(config, config.encoder_layers, causal=False, cross=False) if config.has_encoder else None
        self.decoder = (
            Stack(config, config.decoder_layers, causal=True, cross=translates) if config.has_decoder else None
        )
        untied = config.has_decoder and config.tie == "none"
        self.unembedding = nn.Linear(config.width, config.vocabulary, bias=False) if untied else None
        biased = config.has_decoder and config.output_bias
        self.unembedding_bias = nn.Parameter(torch.zeros(config.vocabulary)) if biased else None
        initialise(self)

    @classmethod
    def from_weights(cls, config: ModelConfig, weights: Mapping[str, Tensor]) -> Self:
        """A model with these weights, as they are: no memory is taken twice and nothing is drawn at random."""
        with torch.device("meta"):
            model = cls(config)
        model.load_state_dict(dict(weights), assign=True)
        for stack in (model.encoder, model.decoder):
            if stack is not None:  # what is no weight was left on the meta device
                stack.waves = stack._sinusoids(config.longest)
        device = next(iter(weights.values())).device
        return model.requires_grad_().to(device)

    def forward(self, source: Packed, target: Packed | None = None, taps: Taps = NO_TAPS) -> Tensor:
        """The logits of every token's successor, [T, vocabulary]; for an encoder alone, its vectors, [U, width].

        An encoder-decoder takes both sequences; the others have only one, `source`.
        """
        if self.decoder is None:
            return self.encode(source, taps)
        if self.encoder is None:
            return self.logits(self.decode(source, taps=taps), source.layout, taps)
        if target is None:
            raise TypeError("an encoder-decoder takes two sequences: model(source, target)")
        memory = self.encode(source, taps)
        return self.logits(self.decode(target, memory, source.layout, taps), target.layout, taps)

    def taps(self) -> Taps:
        """The taps for a caller that goes through encode, decode and logits by itself; `listening` puts others here."""
        return NO_TAPS

    def encode(self, source: Packed, taps: Taps = NO_TAPS, segments: Tensor | None = None) -> Tensor:
        """The encoder's vectors, [U, width]: what a decoder uses as its memory."""
        assert self.encoder is not None
        taps = taps.at("encoder", rows=source.layout, keys=source.layout)
        embedded = self._embed(self.source_embedding or self.embedding, source, taps)
        return self.encoder(embedded, source.layout, taps, segments=segments)

    def decode(
        self, target: Packed, memory: Tensor | None = None, memory_layout: Layout | None = None, taps: Taps = NO_TAPS,
        pasts: Sequence[Pasts] | None = None,
    ) -> Tensor:  # fmt: skip
        """The decoder's vectors, [T, width]. With a past for each block, the tokens go on from those before them."""
        assert self.decoder is not None
        taps = taps.at("decoder", rows=target.layout, keys=target.layout)
        embedded = self._embed(self.embedding, target, taps)
        return self.decoder(embedded, target.layout, taps, memory, memory_layout, pasts=pasts)

    def logits(self, vectors: Tensor, layout: Layout, taps: Taps = NO_TAPS) -> Tensor:
        """Each vector against every token's vector, [T, vocabulary]."""
        if self.unembedding is None:
            logits = F.linear(vectors, self.embedding.weight, self.unembedding_bias)
        else:
            logits = self.unembedding(vectors)
            if self.unembedding_bias is not None:
                logits = logits + self.unembedding_bias
        return taps.at("", rows=layout)("logits", logits)

    def _embed(self, table: nn.Embedding, tokens: Packed, taps: Taps) -> Tensor:
        ids = taps("tokens", tokens.tokens)
        return table(ids) * (math.sqrt(self.config.width) if self.config.scale_embeddings else 1.0)
