"""What all models share: tokens become vectors, and the last vectors are compared with every token's.

What happens between is the business of the kinds: `Transformer`, and `Recurrent`, which came before it. Training, decoding and
looking know only what is here.

Shapes: T tokens of the target in the batch, U of the source.
"""

import math
from collections.abc import Mapping
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seq2see.config import ModelConfig
from seq2see.layout import Layout, Packed
from seq2see.model.taps import NO_TAPS, Taps


class Network(nn.Module):
    encoder: nn.Module | None
    decoder: nn.Module | None

    def __init__(self, config: ModelConfig, encoder: nn.Module | None, decoder: nn.Module | None) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocabulary, config.width)
        self.source_embedding = (
            nn.Embedding(config.source_vocabulary or config.vocabulary, config.width)
            if config.shape == "encoder-decoder" and config.tie != "all"
            else None
        )
        self.encoder, self.decoder = encoder, decoder
        untied = config.has_decoder and config.tie == "none"
        self.unembedding = nn.Linear(config.width, config.vocabulary, bias=False) if untied else None
        biased = config.has_decoder and config.output_bias
        self.unembedding_bias = nn.Parameter(torch.zeros(config.vocabulary)) if biased else None

    @classmethod
    def from_weights(cls, config: ModelConfig, weights: Mapping[str, Tensor]) -> Self:
        """A model with these weights, as they are: no memory is taken twice and nothing is drawn at random."""
        with torch.device("meta"):
            model = cls(config)  # type: ignore[call-arg]  # every kind is made from a configuration alone
        model.load_state_dict(dict(weights), assign=True)
        model._restore()
        device = next(iter(weights.values())).device
        return model.requires_grad_().to(device)

    def _restore(self) -> None:
        """Makes anew what is no weight, and was therefore left on the meta device."""

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

    def encode(self, source: Packed, taps: Taps = NO_TAPS) -> Tensor:
        """What the decoder gets of the source."""
        raise NotImplementedError

    def decode(
        self, target: Packed, memory: Tensor | None = None, memory_layout: Layout | None = None, taps: Taps = NO_TAPS,
        pasts: Any = None,
    ) -> Tensor:  # fmt: skip
        """The decoder's vectors, [T, width]. With a past, which is of the kind's own making, the tokens go on from those
        before them.
        """
        raise NotImplementedError

    def logits(self, vectors: Tensor, layout: Layout, taps: Taps = NO_TAPS) -> Tensor:
        """Each vector against every token's vector, [T, vocabulary]."""
        if self.unembedding is None:
            logits = F.linear(vectors, self.embedding.weight, self.unembedding_bias)
        else:
            logits = self.unembedding(vectors)
            if self.unembedding_bias is not None:
                logits = logits + self.unembedding_bias
        return taps.at("", rows=layout)("logits", logits)

    def embed(self, table: nn.Embedding, tokens: Packed, taps: Taps) -> Tensor:
        ids = taps("tokens", tokens.tokens)
        return table(ids) * (math.sqrt(self.config.width) if self.config.scale_embeddings else 1.0)
