"""The interface and the embeddings shared by all models.

Subclasses implement the encoder and the decoder: `Transformer` and `Recurrent`. Training, decoding and inspection use this
interface, and ask for the kind only where kinds differ: initialization, compilation, FSDP, int8, analyses of attention.

Shapes: T tokens of the target in the batch, U of the source, S sequences.
"""

import math
from collections.abc import Mapping, Sequence, Set
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from seq2see.config import ModelConfig
from seq2see.config.extensions import load_extension
from seq2see.data.layout import Layout, Packed
from seq2see.errors import UserError
from seq2see.model.layers import MaskedHead, Memory
from seq2see.model.source_readers import build_source_reader
from seq2see.model.taps import NO_TAPS, Taps, with_attached


class _SkipInit(TorchFunctionMode):
    """Skips random initialisation: on the meta device it changes nothing, but imports torch's compiler, which takes seconds."""

    def __torch_function__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        # The mode does not see kaiming_normal_ itself, only what it calls.
        if getattr(func, "__module__", "") == "torch.nn.init" or func is Tensor.normal_:
            return args[0] if args else (kwargs or {})["tensor"]
        return func(*args, **(kwargs or {}))


class Network(nn.Module):
    """Embeddings, encoder, decoder and output projection. Encoder or decoder may be absent."""

    encoder: nn.Module | None
    decoder: nn.Module | None

    def __init__(self, config: ModelConfig, encoder: nn.Module | None = None, decoder: nn.Module | None = None) -> None:
        super().__init__()
        self.config = config
        self.use_engine = False  # set by loading: the weights do not change, and decoding may copy them
        self.embedding = nn.Embedding(config.vocab_size, config.width)
        self.source_embedding = (
            nn.Embedding(config.source_vocab_size or config.vocab_size, config.width)
            if config.shape == "encoder-decoder" and config.source == "tokens" and config.tie_embeddings != "all"
            else None
        )
        self.source_reader = build_source_reader(config)
        self.encoder, self.decoder = encoder, decoder
        self.masked_head = MaskedHead(config) if config.masked_head else None
        self.pooler = nn.Linear(config.width, config.width) if config.pooler else None
        untied = config.predicts_tokens and config.tie_embeddings == "none"
        self.unembedding = nn.Linear(config.width, config.vocab_size, bias=False) if untied else None
        biased = config.predicts_tokens and config.output_bias
        self.unembedding_bias = nn.Parameter(torch.zeros(config.vocab_size)) if biased else None

    @classmethod
    def from_weights(cls, config: ModelConfig, weights: Mapping[str, Tensor]) -> Self:
        """Builds a model around these tensors, without copying them and without random initialisation."""
        return cls.on_meta_device(config).with_weights(weights)

    @classmethod
    def weight_names(cls, config: ModelConfig) -> Set[str]:
        """Returns the names of all weights of a model with this configuration."""
        return cls.on_meta_device(config).state_dict().keys()

    @classmethod
    def on_meta_device(cls, config: ModelConfig) -> Self:
        """Returns a model on the meta device, whose weights have shapes only."""
        with torch.device("meta"), _SkipInit():
            return cls(config)

    def with_weights(self, weights: Mapping[str, Tensor]) -> Self:
        """Uses these tensors as weights, without copying them, and moves the model to their device."""
        _require_shapes(weights, self.state_dict())
        self.load_state_dict(dict(weights), assign=True)
        self._reset_buffers()
        device = next(iter(weights.values())).device
        return self.requires_grad_().to(device)

    def _reset_buffers(self) -> None:
        """Recomputes non-persistent buffers, which `on_meta_device` leaves on the meta device."""

    def forward(self, source: Packed, target: Packed | None = None, taps: Taps = NO_TAPS) -> Tensor:
        """Returns logits, [T, vocab_size], or the vectors of an encoder without a head, [U, width].

        An encoder-decoder takes both sequences; other models take only `source`. A classifier has one row of logits per
        sequence, [S, vocab_size].
        """
        taps = with_attached(self, taps)
        vectors = self.vectors(source, target, taps)
        if not self.config.predicts_tokens:
            return vectors
        layout = (target or source).layout
        if self.config.classifier:
            vectors, layout = vectors[layout.starts[:-1].long()], layout.first_tokens()
        return self.logits(vectors, layout, taps)

    def vectors(self, source: Packed, target: Packed | None = None, taps: Taps = NO_TAPS) -> Tensor:
        """Returns the final vectors, [T, width], before the output projection."""
        if self.decoder is None:
            return self.encode(source, taps)
        if self.encoder is None:
            return self.decode(source, taps=taps)
        if target is None:
            raise TypeError("an encoder-decoder takes two sequences: model(source, target)")
        return self.decode(target, Memory(self.encode(source, taps), source.layout), taps)

    def taps(self) -> Taps:
        """Returns the attached taps, for callers that run encode, decode and logits themselves."""
        return with_attached(self, NO_TAPS)

    def encode(self, source: Packed, taps: Taps = NO_TAPS) -> Tensor:
        """Encodes the source: the vectors of a decoder's `Memory`."""
        raise NotImplementedError

    def decode(self, target: Packed, memory: Memory | None = None, taps: Taps = NO_TAPS, stores: Any = None) -> Tensor:
        """Returns the decoder's vectors, [T, width]. With stores, whose type depends on the model, the tokens continue the
        stored ones.
        """
        raise NotImplementedError

    def logits(self, vectors: Tensor, layout: Layout, taps: Taps = NO_TAPS) -> Tensor:
        """Returns the dot product of each vector with every token's output embedding, [T, vocab_size]."""
        if self.masked_head is not None:
            vectors = self.masked_head(vectors, taps.at("head", rows=layout))
        return taps.at("", rows=layout)("logits", self.project(vectors))

    def project(self, vectors: Tensor) -> Tensor:
        """The output projection alone, with its scale and limit."""
        cap = self.config.logit_cap
        logits = self._unembed(vectors)
        return cap * torch.tanh(logits / cap) if cap else logits

    def _unembed(self, vectors: Tensor) -> Tensor:
        if self.config.logit_scale != 1:
            vectors = vectors * self.config.logit_scale
        if self.unembedding is None:
            return F.linear(vectors, self.embedding.weight, self.unembedding_bias)
        logits = self.unembedding(vectors)
        return logits if self.unembedding_bias is None else logits + self.unembedding_bias

    def pool(self, vectors: Tensor, layout: Layout, taps: Taps = NO_TAPS) -> Tensor:
        """Returns one vector per sequence, tanh of a linear map of its first token's vector, [S, width] (BERT)."""
        assert self.pooler is not None
        return taps.at("", rows=layout.first_tokens())("pooled", self.pooler(vectors[layout.starts[:-1].long()]).tanh())

    def output_weights(self) -> tuple[Tensor, Tensor | None]:
        """Returns the matrix [vocab_size, width] and the bias of the output projection."""
        matrix = self.embedding if self.unembedding is None else self.unembedding
        return matrix.weight, self.unembedding_bias

    def embed_source(self, source: Packed, taps: Taps) -> Tensor:
        """Returns the vectors that enter the encoder, before positions are added, [U, width]."""
        if self.source_reader is None:
            return self.embed(self.source_embedding or self.embedding, source, taps)
        return self.source_reader(source, taps)

    def embed(self, table: nn.Embedding, tokens: Packed, taps: Taps) -> Tensor:
        ids = taps("tokens", tokens.tokens)
        vectors: Tensor = table(ids)
        return vectors * math.sqrt(self.config.width) if self.config.scale_embeddings else vectors


def model_class(config: ModelConfig) -> type[Network]:
    """Returns the class of a configuration's kind of model."""
    found: type[Network] = load_extension("models", config.kind)
    return found


def _require_shapes(weights: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    names = [*expected, *(name for name in weights if name not in expected)]
    different = [name for name in names if _shape(weights, name) != _shape(expected, name)]
    if different:
        name = different[0]
        raise UserError(
            f"the weights do not fit the configuration: tensor {name} is {_shape(weights, name)} instead of "
            f"{_shape(expected, name)}" + f" ({len(different):,} tensors differ)" * (len(different) > 1)
        )


def _shape(tensors: Mapping[str, Tensor], name: str) -> str:
    return " × ".join(f"{size:,}" for size in tensors[name].shape) or "a scalar" if name in tensors else "absent"
