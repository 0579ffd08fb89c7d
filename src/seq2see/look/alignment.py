"""Which word stands for which: word alignments read off the cross-attention.

One open forward pass over a source and a given target shows where each target token looked. The weights of the pieces of
a source word add up, the pieces of a target word are averaged, and each target word is linked to the source word that
it looked at most.

Which row of the weights belongs to a token? The row that reads token t predicts token t + 1. Measured on the test set of the
built-in corpus, by the mean over the heads, AER of the rows that predict a token against those that read it: last of two
layers 22% against 92%, last of four 21% against 74%, higher in the layers below; only the first of four knows better what
it has read (73% against 61%). So a word is aligned by the rows that predict it, in the last layer, whose mean beats
each of its heads (25% and 27% the best). Leaving a word without a link where `<end>` is looked at most raises the error.

Shapes: S pairs, H heads, L and K the longest target and source in tokens, M and N in words.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from seq2see.directory import Model
from seq2see.errors import UserError
from seq2see.look.trace import trace
from seq2see.model.layout import Packed
from seq2see.text.pieces import Piece, Span
from seq2see.text.words import Split, marks_apart

Links = list[tuple[int, int]]  # (source word, target word), from 0
Row = Literal["reading", "predicting"]

TOKENS = 2000  # of a side that go through the model at a time


@dataclass(frozen=True)
class View:
    """One head of a layer, or the mean over its heads."""

    layer: int
    head: int | None = None


def align(
    model: Model, pairs: Sequence[tuple[str, str]], *, layer: int = -1, head: int | None = None,
    split: Split = marks_apart,
) -> list[Links]:  # fmt: skip
    """The word alignment of each pair by one layer's cross-attention: by one head, or by the mean over its heads."""
    return align_by(model, pairs, [View(layer, head)], split)[0]


@torch.no_grad()
def align_by(
    model: Model, pairs: Sequence[tuple[str, str]], views: Sequence[View], split: Split = marks_apart,
    row: Row = "predicting",
) -> list[list[Links]]:  # fmt: skip
    """Alignments by several views from the same pass: one list a view."""
    views = [_checked(view, model) for view in views]
    places = {view.layer: f"decoder.{view.layer}.cross.weights" for view in views}
    sides = [_Side.of(*pair, model, split) for pair in pairs]
    found: list[list[Links]] = [[[] for _ in pairs] for _ in views]
    for group in _groups(sides):
        chosen = [sides[i] for i in group]
        source, target = _packed(chosen, model)
        with trace(model.transformer, only=list(places.values())) as t:
            model.transformer(source, target)
        sources, targets = _membership(chosen)
        for view, links in zip(views, found, strict=True):
            weights = t[places[view.layer]]  # [S, H, L + 1, K]
            weights = weights.mean(1) if view.head is None else weights[:, view.head]
            rows = weights[:, 1:] if row == "reading" else weights[:, :-1]  # [S, L, K]
            by_word = targets @ rows.float().cpu() @ sources  # [S, M, N]
            for i, links_of_pair in zip(group, _strongest(by_word, chosen), strict=True):
                links[i] = links_of_pair
    return found


def all_views(model: Model) -> list[View]:
    """Every layer's mean and its heads one by one."""
    config = model.config.model
    return [View(layer, head) for layer in range(config.decoder_layers) for head in (None, *range(config.heads))]


def _checked(view: View, model: Model) -> View:
    config = model.config.model
    if config.shape != "encoder-decoder":
        raise UserError(f"this model is a {config.shape}, and only an encoder-decoder has cross-attention to align by")
    layer = view.layer + config.decoder_layers if view.layer < 0 else view.layer
    if not 0 <= layer < config.decoder_layers:
        raise UserError(f"layer {view.layer} of a decoder of {config.decoder_layers} layers, which are counted from 0")
    if view.head is not None and not 0 <= view.head < config.heads:
        raise UserError(f"head {view.head} of {config.heads} heads, which are counted from 0")
    return View(layer, view.head)


@dataclass(frozen=True)
class _Side:
    """The tokens of a pair, and the words that each of them belongs to."""

    source: list[int]
    target: list[int]
    source_words: list[list[int]]  # of each source token
    target_words: list[list[int]]
    sizes: tuple[int, int]  # words

    @classmethod
    def of(cls, source: str, target: str, model: Model, split: Split) -> "_Side":
        spans = split(source), split(target)
        pieces = model.tokenizers[0].pieces(source), model.tokenizers[1].pieces(target)
        tokens = [[piece.id for piece in side] for side in pieces]
        owners = [_owners(side, words) for side, words in zip(pieces, spans, strict=True)]
        return cls(tokens[0], tokens[1], owners[0], owners[1], (len(spans[0]), len(spans[1])))


def _owners(pieces: Sequence[Piece], words: Sequence[Span]) -> list[list[int]]:
    """The words that each piece has a character of: usually one, of white space none."""
    owners: list[list[int]] = []
    first = 0
    for piece in pieces:
        while first < len(words) and words[first][1] <= piece.start:
            first += 1
        last = first
        while last < len(words) and words[last][0] < piece.end:
            last += 1
        owners.append(list(range(first, last)))
    return owners


def _groups(sides: Sequence[_Side]) -> Iterator[list[int]]:
    """Pairs of like length, so many at a time as the budget of tokens allows."""
    group: list[int] = []
    longest = 0
    for i in sorted(range(len(sides)), key=lambda i: (len(sides[i].target), len(sides[i].source))):
        longest = max(longest, len(sides[i].target) + 1, len(sides[i].source) + 1)
        if group and (len(group) + 1) * longest > TOKENS:
            yield group
            group, longest = [], max(len(sides[i].target) + 1, len(sides[i].source) + 1)
        group.append(i)
    if group:
        yield group


def _packed(sides: Sequence[_Side], model: Model) -> tuple[Packed, Packed]:
    source, target = model.tokenizers
    device = model.transformer.embedding.weight.device
    sources = Packed.of([[*side.source, source.end] for side in sides], device)
    return sources, Packed.of([[target.start, *side.target] for side in sides], device)


def _membership(sides: Sequence[_Side]) -> tuple[Tensor, Tensor]:
    """Tables that add up the columns of a source word, [S, K, N], and average the rows of a target word, [S, M, L]."""
    longest = [max(map(len, tokens)) for tokens in ([s.source for s in sides], [s.target for s in sides])]
    words = [max(side.sizes[k] for side in sides) for k in (0, 1)]
    sources = torch.zeros(len(sides), longest[0] + 1, words[0])  # <end> belongs to no word
    targets = torch.zeros(len(sides), words[1], longest[1])
    for i, side in enumerate(sides):
        for token, owners in enumerate(side.source_words):
            sources[i, token, owners] = 1 / max(len(owners), 1)  # a piece of two words is shared between them
        for token, owners in enumerate(side.target_words):
            targets[i, owners, token] = 1
    return sources, targets / targets.sum(-1, keepdim=True).clamp_min(1)


def _strongest(by_word: Tensor, sides: Sequence[_Side]) -> Iterator[Links]:
    for weights, side in zip(by_word, sides, strict=True):
        sources, targets = side.sizes
        if not (sources and targets):
            yield []
            continue
        best = weights[:targets, :sources].argmax(-1).tolist()
        yield sorted((i, j) for j, i in enumerate(best))
