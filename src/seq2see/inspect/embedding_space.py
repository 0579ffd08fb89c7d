"""The space of a stack's vectors: the embeddings of its vocabulary, and the tokens of a text at every layer.

Vectors are compared by direction, as seen from the mean embedding. The embeddings of a trained model share a large common
component, which would make every cosine about equal; subtracting the mean removes it. Divided by their length, the
differences are points on a sphere: the nearer two points are, the larger is the cosine of their vectors.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from itertools import islice
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from seq2see.data.tokenizer import Tokenizer
from seq2see.errors import UserError
from seq2see.inspect.explain import Explanation, takes_explanation, token_labels
from seq2see.inspect.trace import block_outputs
from seq2see.inspect.weights import get_weight
from seq2see.storage.pipeline import Pipeline

Stack = Literal["encoder", "decoder"]

_OPERATOR = re.compile(r"(?:^|\s+)([+−-])(?:\s+|$)")  # between spaces: ice-cream is a word
_ROWS = 1 << 14  # of the embedding table at a time


class Neighbor(NamedTuple):
    id: int
    token: str
    cosine: float


@dataclass(frozen=True, eq=False)
class Term:
    """One word of an expression such as `king − man + woman`."""

    word: str
    sign: Literal[1, -1]
    ids: tuple[int, ...]  # a word of several tokens has their mean vector
    vector: Tensor  # [width], of length 1


@dataclass(frozen=True, eq=False)
class WordArithmetic:
    """The sum of an expression's words, and the embeddings nearest to it, without the words themselves."""

    terms: tuple[Term, ...]
    vector: Tensor  # [width]
    neighbors: list[Neighbor]


@dataclass(frozen=True, eq=False)
class EmbeddingSpace:
    """The embeddings that a stack reads, and what is near them."""

    table: Tensor  # [vocabulary, width]
    scale: float  # what the stack multiplies it by
    tokenizer: Tokenizer

    @classmethod
    def of(cls, model: Pipeline, stack: Stack) -> "EmbeddingSpace":
        require_stack(model, stack)
        config, source = model.config.model, stack == "encoder"
        if source and config.source != "tokens":
            raise UserError(f"{config.source} have no vocabulary, whose embeddings this encoder would read")
        own = source and model.network.source_embedding is not None
        table = get_weight(model.network, "source_embedding.weight" if own else "embedding.weight")
        scale = config.width**0.5 if config.scale_embeddings else 1.0
        return cls(table.detach().float().cpu(), scale, model.tokenizers[0 if source else 1])

    @cached_property
    def mean(self) -> Tensor:
        return self.table.mean(0)

    @cached_property
    def _lengths(self) -> Tensor:
        parts = [(rows - self.mean).norm(dim=1) for rows in self.table.split(_ROWS)]
        return torch.cat(parts).clamp(min=1e-12)

    def directions(self, vectors: Tensor) -> Tensor:
        """Returns unit vectors from the mean embedding towards vectors of a trace, [..., width]."""
        return F.normalize(vectors.float().cpu() / self.scale - self.mean, dim=-1)

    def embeddings(self, ids: Sequence[int]) -> Tensor:
        """Returns the directions of tokens, [n, width]."""
        return F.normalize(self.table[list(ids)] - self.mean, dim=-1)

    def cosines(self, directions: Tensor) -> Tensor:
        """Compares directions [n, width] with every embedding; returns [n, vocabulary]."""
        dots = directions @ self.table.T - (directions @ self.mean)[:, None]
        return dots / self._lengths / directions.norm(dim=1, keepdim=True).clamp(min=1e-12)

    def nearest(self, directions: Tensor, count: int, exclude: Sequence[int] = ()) -> list[list[Neighbor]]:
        """Returns the `count` embeddings nearest to each direction [n, width], by cosine; of the special tokens only <end>."""
        if directions.dim() != 2 or directions.shape[1] != self.table.shape[1]:
            wanted = f"[n, {self.table.shape[1]}], not {list(directions.shape)}"
            raise UserError(f"nearest takes directions {wanted}: use space.directions(x), and x[None] for a single one")
        cosines = self.cosines(directions)
        cosines[:, [*exclude, *(self.tokenizer.special - {self.tokenizer.end})]] = -torch.inf
        best = cosines.topk(min(count, int(cosines[0].isfinite().sum())), dim=1)
        return [
            [Neighbor(id, token_labels(self.tokenizer, [id])[0], cosine) for cosine, id in zip(*row, strict=True)]
            for row in zip(best.values.tolist(), best.indices.tolist(), strict=True)
        ]

    def words(self, limit: int) -> list[int]:
        """Returns the first tokens that contain a letter or digit; most tokenizers number frequent ones first."""
        text = (id for id in range(min(len(self.tokenizer), len(self.table))) if id not in self.tokenizer.special)
        return list(islice((id for id in text if any(map(str.isalnum, self.tokenizer.token_text(id)))), limit))

    def arithmetic(self, expression: str, count: int = 10) -> WordArithmetic:
        """Finds the embeddings nearest to a word, or to an expression such as `king − man + woman`."""
        terms = tuple(self._term(word, sign) for word, sign in _parse(expression))
        vector = torch.stack([term.sign * term.vector for term in terms]).sum(0)
        used = [id for term in terms for id in term.ids]
        return WordArithmetic(terms, vector, self.nearest(vector[None], count, used)[0])

    def _term(self, word: str, sign: Literal[1, -1]) -> Term:
        ids = tuple(self.tokenizer.encode(word))
        if self.tokenizer.unknown in ids or not ids:
            labels = token_labels(self.tokenizer, range(len(self.tokenizer)))
            similar = get_close_matches(word, labels, n=3)
            hint = f"did you mean {' or '.join(similar)}?" if similar else "no token has a similar spelling"
            raise UserError(f'"{word}" is not in the vocabulary of {len(self.tokenizer):,} tokens: {hint}')
        return Term(word, sign, ids, F.normalize(self.table[list(ids)].mean(0) - self.mean, dim=-1))


def _parse(expression: str) -> Iterator[tuple[str, Literal[1, -1]]]:
    """Yields the words of an expression with their signs."""
    first, *rest = _OPERATOR.split(expression.strip())
    if first:
        yield first, 1
    for operator, word in zip(rest[::2], rest[1::2], strict=True):
        if not word.strip():
            raise UserError(f'a word is missing after "{operator}" in "{expression}"')
        yield word.strip(), 1 if operator == "+" else -1
    if not first and not rest:
        raise UserError("no word is given: write one, or an expression such as king − man + woman")


@dataclass(frozen=True, eq=False)
class TokenPaths:
    """The tokens of one text on their way through a stack."""

    tokens: tuple[str, ...]
    layers: tuple[str, ...]  # names of the trace, from the embedding to the output of the stack
    vectors: Tensor  # [layers, tokens, width]


@takes_explanation
def token_paths(e: Explanation, stack: Stack) -> TokenPaths:
    """Returns the vector of every token after each layer of a stack."""
    layers = layer_names(e.model, stack)
    tokens = e.source_tokens if stack == "encoder" else e.decoder_input_tokens
    return TokenPaths(tokens, layers, torch.stack([e.trace[layer, 0].float().cpu() for layer in layers]))


def require_stack(model: Pipeline, stack: Stack) -> None:
    config = model.config.model
    known = [name for name, has in (("encoder", config.has_encoder), ("decoder", config.has_decoder)) if has]
    if stack not in known:
        raise UserError(f"this model has no {stack}: use the {' or the '.join(known)}")


def layer_names(model: Pipeline, stack: Stack) -> tuple[str, ...]:
    """Names the vectors of a stack in a trace: embedding, input with positions, output of each block and of the stack."""
    require_stack(model, stack)
    config = model.config.model
    is_transformer = config.kind == "transformer"
    first = [f"{stack}.embedded", f"{stack}.input"] if is_transformer else [f"{stack}.embedded"]
    last = [f"{stack}.vectors"] if is_transformer and config.norm_first else []
    return (*first, *block_outputs(config, stack), *last)
