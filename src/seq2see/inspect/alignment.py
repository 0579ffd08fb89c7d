"""Which word stands for which: word alignments read off the cross-attention.

One open forward pass over a source and a given target shows where each target token looked. The weights of the pieces of
a source word add up, the pieces of a target word are averaged, and each target word is linked to the source word that
it looked at most.

Which row of the weights belongs to a token? The row that reads token t predicts token t + 1. Measured on the test set of the
built-in corpus, by the mean over the heads, AER of the rows that predict a token against those that read it: last of two
layers 22% against 92%, last of four 21% against 74%, higher in the layers below; only the first of four knows better what
it has read (73% against 61%). So a word is aligned by the rows that predict it, in the last layer, whose mean beats
each of its heads (25% and 27% the best); `best_heads` finds a few heads whose mean is better still. Leaving a word without
a link where `<end>` is looked at most raises the error.

Shapes: S pairs, H heads, L and K the longest target and source in tokens, M and N in words.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from seq2see.errors import UserError
from seq2see.inspect.explain import Explanation, harmless
from seq2see.inspect.trace import trace
from seq2see.layout import Packed
from seq2see.metrics.alignment import GoldPairs, alignment_scores
from seq2see.pipeline import Pipeline
from seq2see.text.token_spans import Piece, Span
from seq2see.text.word_spans import Split, marks_apart

Links = list[tuple[int, int]]  # (source word, target word), from 0
Row = Literal["reading", "predicting"]

TOKENS = 2000  # of a side that go through the model at a time


@dataclass(frozen=True)
class View:
    """One head of a layer, or the mean over its heads."""

    layer: int
    head: int | None = None


Views = tuple[View, ...]  # several, whose weights are averaged
LAST: Views = (View(-1),)


@dataclass(frozen=True, eq=False)
class Alignment:
    """The words of an output, where each looked, and the word it is therefore linked to."""

    sources: tuple[str, ...]
    targets: tuple[str, ...]
    weights: Tensor  # [target words, source words]; what is missing to 1 went to <end> and spaces
    links: Links


def align(
    model: Pipeline, pairs: Sequence[tuple[str, str]], *, layer: int = -1, head: int | None = None,
    split: Split = marks_apart,
) -> list[Links]:  # fmt: skip
    """The word alignment of each pair by one layer's cross-attention: by one head, or by the mean over its heads."""
    return align_by(model, pairs, [View(layer, head)], split)[0]


@torch.no_grad()
def align_by(
    model: Pipeline, pairs: Sequence[tuple[str, str]], views: Sequence[View | Views], split: Split = marks_apart,
    row: Row = "predicting",
) -> list[list[Links]]:  # fmt: skip
    """Alignments by several views, or means of views, from the same pass: one list a view."""
    means = [_checked(view if isinstance(view, tuple) else (view,), model) for view in views]
    places = [_place(view) for mean in means for view in mean]
    sides = [_Side.of(*pair, model, split) for pair in pairs]
    found: list[list[Links]] = [[[] for _ in pairs] for _ in views]
    for group in _groups(sides):
        chosen = [sides[i] for i in group]
        source, target = _packed(chosen, model)
        with trace(model.network, only=places) as t:
            model.network(source, target)
        sources, targets = _membership(chosen)
        for mean, links in zip(means, found, strict=True):
            weights = _mean([t[_place(view)] for view in mean], mean)  # [S, L + 1, K]
            rows = weights[:, 1:] if row == "reading" else weights[:, :-1]  # [S, L, K]
            by_word = targets @ rows.float().cpu() @ sources  # [S, M, N]
            for i, links_of_pair in zip(group, _strongest(by_word, chosen), strict=True):
                links[i] = links_of_pair
    return found


def word_alignment(e: Explanation, views: Views = LAST, split: Split = marks_apart) -> Alignment:
    """The words of an explained translation, by the weights of the pass that is explained."""
    views = _checked(views, e.model)
    side = _Side.of_pieces((e.source, e.output), (e.source_pieces, e.output_pieces), split)
    weights = _mean([e.trace[_place(view), 0][None] for view in views], views)
    sources, targets = _membership([side])
    by_word = targets @ weights[:, : len(side.target)].float().cpu() @ sources  # [1, M, N]
    (links,) = _strongest(by_word, [side])
    words = [tuple(harmless(text[a:b]) for a, b in split(text)) for text in (e.source, e.output)]
    return Alignment(words[0], words[1], by_word[0], links)


def best_heads(model: Pipeline, gold: GoldPairs, most: int = 8) -> tuple[Views, float]:
    """The heads, of any layer, whose mean aligns gold pairs best, and its error rate on them.

    Ranked by their own error rates, the first n are averaged; the best n is taken. Choose them on other pairs than those
    that you report on.
    """

    def error(views: Sequence[View | Views]) -> list[float]:
        found = align_by(model, gold.pairs, views, gold.split)
        return [alignment_scores(links, gold.golds).aer for links in found]

    heads = [view for view in all_views(model) if view.head is not None]
    alone = dict(zip(heads, error(heads), strict=True))
    ranked = tuple(sorted(heads, key=alone.__getitem__))
    firsts = [ranked[:n] for n in range(1, most + 1)]
    together = error(firsts)
    best = min(range(len(firsts)), key=together.__getitem__)
    return firsts[best], together[best]


def all_views(model: Pipeline) -> list[View]:
    """Every layer's mean and its heads one by one."""
    config = model.config.model
    return [View(layer, head) for layer in range(config.cross_layers) for head in (None, *range(config.heads))]


def _checked(views: Views, model: Pipeline) -> Views:
    config = model.config.model
    if config.shape != "encoder-decoder":
        raise UserError(f"this model is a {config.shape}, and only an encoder-decoder has cross-attention to align by")
    layers = config.cross_layers
    if not layers:
        raise UserError(f'this model is of the kind "{config.kind}", which has no attention to align by')
    for view in views:
        if not -layers <= view.layer < layers:
            raise UserError(f"layer {view.layer} of a decoder of {layers} layers, which are counted from 0")
        if view.head is not None and not 0 <= view.head < config.heads:
            raise UserError(f"head {view.head} of {config.heads} heads, which are counted from 0")
    return tuple(View(view.layer % layers, view.head) for view in views)


def _place(view: View) -> str:
    return f"decoder.{view.layer}.cross.weights"


def _mean(weights: Sequence[Tensor], views: Views) -> Tensor:
    """Of the weights of all heads of each view's layer, [S, H, rows, keys], the mean of the views, [S, rows, keys]."""
    chosen = [w.mean(1) if view.head is None else w[:, view.head] for w, view in zip(weights, views, strict=True)]
    return torch.stack(chosen).mean(0)


@dataclass(frozen=True)
class _Side:
    """The tokens of a pair, and the words that each of them belongs to."""

    source: list[int]
    target: list[int]
    source_words: list[list[int]]  # of each source token
    target_words: list[list[int]]
    sizes: tuple[int, int]  # words

    @classmethod
    def of(cls, source: str, target: str, model: Pipeline, split: Split) -> "_Side":
        pieces = model.tokenizers[0].pieces(source), model.tokenizers[1].pieces(target)
        return cls.of_pieces((source, target), pieces, split)

    @classmethod
    def of_pieces(
        cls, texts: tuple[str, str], pieces: tuple[Sequence[Piece], Sequence[Piece]], split: Split
    ) -> "_Side":
        spans = split(texts[0]), split(texts[1])
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


def _packed(sides: Sequence[_Side], model: Pipeline) -> tuple[Packed, Packed]:
    source, target = model.tokenizers
    device = model.network.embedding.weight.device
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
