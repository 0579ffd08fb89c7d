"""Word alignment from cross-attention.

One traced forward pass over a source and a given target gives the cross-attention of each target token. Weights are summed
over the tokens of a source word and averaged over those of a target word; each target word is linked to the source word
with the largest weight.

Which row of the weights belongs to token t: the row that predicts it, or the next one, whose input it is? Alignment error
rate (AER) on the test set of the built-in corpus, mean over the heads, for rows by target and by input: last of two layers
22% and 92%, last of four 21% and 74%, worse in lower layers; only the first of four is better by input (73% and 61%). So a
word is aligned by the rows that predict it, in the last layer, whose mean is better than each of its heads (25% and 27% for
the best). `best_heads` (evaluate/alignment.py) finds a few heads whose mean is better still. Leaving a word unaligned if it
attends most to `<end>` raises the error.

Shapes: M target words, N source words.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from seq2see.data.layout import Packed
from seq2see.data.token_spans import TokenSpan
from seq2see.data.word_spans import WordSplitter, wordpunct_spans
from seq2see.errors import UserError
from seq2see.inspect.attention_tables import AttentionTable
from seq2see.inspect.explain import Explanation, escape_control, takes_explanation
from seq2see.inspect.trace import Trace, trace
from seq2see.storage.pipeline import Pipeline, with_article

Pairs = Sequence[tuple[str, str]]
Links = list[tuple[int, int]]  # (source word, target word), from 0
WordWeights = NDArray[np.float32]  # [target words, source words]

BATCH_TOKENS = 2000  # per side and forward pass, padding included


@dataclass(frozen=True)
class LayerHead:
    """One head of a layer, or the mean over its heads (None)."""

    layer: int
    head: int | None = None


LayerHeads = tuple[LayerHead, ...]  # whose weights are averaged
LAST_LAYER: LayerHeads = (LayerHead(-1),)


@dataclass(frozen=True, eq=False)
class Alignment:
    """The words of source and output, the attention between them, and the resulting links."""

    source_words: tuple[str, ...]
    target_words: tuple[str, ...]
    weights: Tensor  # [target words, source words]; rows sum to less than 1: the rest goes to <end> and spaces
    links: Links

    @property
    def table(self) -> AttentionTable:
        return AttentionTable("alignment", None, self.target_words, self.source_words, self.weights, links=self.links)


def align(model: Pipeline, pairs: Pairs, *, layer: int = -1, head: int | None = None) -> list[Links]:
    """Aligns each pair by the cross-attention of one layer: by one head, or by the mean over its heads."""
    return align_with(model, pairs, [(LayerHead(layer, head),)])[0]


def align_with(
    model: Pipeline, pairs: Pairs, heads: Sequence[LayerHeads], split: WordSplitter = wordpunct_spans
) -> list[list[Links]]:
    """Aligns pairs with each of several means over heads in the same pass: one list per entry of `heads`."""
    results: list[list[Links]] = [[[] for _ in pairs] for _ in heads]
    for i, weights in _attention_by_word(model, pairs, heads, split):
        for links, by_word in zip(results, weights, strict=True):
            links[i] = _link(by_word)
    return results


def word_attention(model: Pipeline, pairs: Pairs) -> list[Tensor]:
    """Returns the attention between the words of each pair, [target words, source words]."""
    found = dict(_attention_by_word(model, pairs, [LAST_LAYER], wordpunct_spans))
    return [found[i][0] for i in range(len(pairs))]


@torch.no_grad()
def _attention_by_word(
    model: Pipeline, pairs: Pairs, heads: Sequence[LayerHeads], split: WordSplitter
) -> Iterator[tuple[int, Tensor]]:
    """Yields the index of a pair and, for each mean over heads, the attention between its words, [means, M, N]."""
    means = [_resolve(mean, model) for mean in heads]
    if isinstance(pairs, str) or any(isinstance(pair, str) or len(pair) != 2 for pair in pairs):
        raise UserError("pairs are given as a list of (source, target)")
    source, target = model.tokenizers
    device = model.network.embedding.weight.device
    before, first = len(source.framing.before), len(target.framing.prompt)
    sides = [
        (_Side.of(a, source.token_spans(a), before, split), _Side.of(b, target.token_spans(b), first, split))
        for a, b in pairs
    ]
    for batch in _batches([max(len(side.ids) for side in both) for both in sides]):
        with trace(model.network, only=[_weights_name(one) for mean in means for one in mean]) as t:
            model.network(
                Packed.from_sequences([source.frame_source(sides[i][0].ids) for i in batch], device),
                Packed.from_sequences([target.frame_prompt(sides[i][1].ids) for i in batch], device),
            )
        for n, i in enumerate(batch):
            weights = torch.stack([_mean(mean, t, n) for mean in means])  # [means, rows, keys]
            yield i, _by_word(weights, *sides[i])


@takes_explanation
def word_alignment(e: Explanation, heads: LayerHeads = LAST_LAYER, split: WordSplitter = wordpunct_spans) -> Alignment:
    """Aligns the words of an explained translation by the attention weights of its trace."""
    weights = _mean(_resolve(heads, e.model), e.trace, 0)
    sides = [_Side.of(side.text, side.spans, side.start, split) for side in (e.encoder, e.decoder)]
    by_word = _by_word(weights[None], *sides)[0]
    words = [tuple(escape_control(text[a:b]) for a, b in split(text)) for text in (e.source, e.output)]
    return Alignment(words[0], words[1], by_word, _link(by_word))


def all_layer_heads(model: Pipeline) -> list[LayerHead]:
    """Returns, for every layer, the mean over its heads and each head."""
    config = model.config.model
    return [LayerHead(layer, head) for layer in range(config.cross_layers) for head in (None, *range(config.heads))]


def _resolve(heads: LayerHeads, model: Pipeline) -> LayerHeads:
    """Checks heads and converts negative layers."""
    config = model.config.model
    if config.shape != "encoder-decoder":
        raise UserError(
            f"cannot align words: this model is {with_article(config.shape)}, and only an encoder-decoder has "
            "cross-attention"
        )
    if config.source != "tokens":
        raise UserError(f"{config.source} have no words to align: look at the attention weights")
    if not heads or not all(isinstance(one, LayerHead) for one in heads):
        raise UserError("heads are given as a list of LayerHead(layer, head), with head=None for the mean of a layer")
    layers = config.cross_layers
    if not layers:
        raise UserError(f'cannot align words: this model is of kind "{config.kind}", which has no attention')
    for one in heads:
        if not -layers <= one.layer < layers:
            raise UserError(f"layer {one.layer} is out of range: the decoder has {layers} layers, numbered from 0")
        if one.head is not None and not 0 <= one.head < config.heads:
            raise UserError(f"head {one.head} is out of range: there are {config.heads} heads, numbered from 0")
    return tuple(LayerHead(one.layer % layers, one.head) for one in heads)


def _weights_name(head: LayerHead) -> str:
    return f"decoder.{head.layer}.cross.weights"


def _mean(heads: LayerHeads, t: Trace, sentence: int) -> Tensor:
    """Averages heads of one sentence, [rows, keys]."""
    layers = ((t[_weights_name(one), sentence], one.head) for one in heads)
    return torch.stack([layer.mean(0) if head is None else layer[head] for layer, head in layers]).mean(0).float().cpu()


class _Side(NamedTuple):
    """The source or the target of a pair: its tokens, and the words that each of them overlaps."""

    ids: list[int]
    start: int  # the number of special tokens before them
    words: list[range]  # usually one; none for whitespace
    word_count: int

    @classmethod
    def of(cls, text: str, tokens: Sequence[TokenSpan], start: int, split: WordSplitter) -> "_Side":
        words = split(text)
        starts, ends = [first for first, _ in words], [last for _, last in words]
        overlaps = [range(bisect_right(ends, token.start), bisect_left(starts, token.end)) for token in tokens]
        return cls([token.id for token in tokens], start, overlaps, len(words))

    def membership(self) -> Tensor:
        """Returns 1 where a token belongs to a word, [words, tokens]."""
        table = torch.zeros(self.word_count, len(self.ids))
        for token, words in enumerate(self.words):
            table[words.start : words.stop, token] = 1
        return table


def _by_word(weights: Tensor, source: _Side, target: _Side) -> Tensor:
    """Sums the columns of a source word and averages the rows of a target word: [means, rows, keys] → [means, M, N]."""
    first = target.start - 1  # the row that predicts the first target token
    rows, columns = slice(first, first + len(target.ids)), slice(source.start, source.start + len(source.ids))
    source_words, target_words = source.membership(), target.membership()
    source_words /= source_words.sum(0).clamp_min(1)  # a token of two words is shared between them
    target_words /= target_words.sum(1, keepdim=True).clamp_min(1)
    return target_words @ weights[:, rows, columns] @ source_words.T


def _batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Groups pairs of similar length, up to the token budget."""
    batch: list[int] = []
    for i in sorted(range(len(lengths)), key=lengths.__getitem__):
        if batch and (len(batch) + 1) * (lengths[i] + 1) > BATCH_TOKENS:
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch


def _link(by_word: Tensor) -> Links:
    """Links each target word to the source word with the largest weight, given [M, N]."""
    return sorted((i, j) for j, i in enumerate(by_word.argmax(-1).tolist())) if by_word.numel() else []


def best_run(weights: WordWeights, runs: Sequence[Sequence[int]], inside: range) -> tuple[int, int]:
    """Returns the first and last of the consecutive words that attend most to the source words inside rather than outside."""
    before, within, after = np.split(weights, [inside.start, inside.stop], 1)
    margins = within.max(1) - np.maximum(before.max(1, initial=0.0), after.max(1, initial=0.0))
    best = (-np.inf, 0, 0)
    for run in runs:
        total, start = -np.inf, run[0]
        for j in run:
            total, start = (total + margins[j], start) if total > 0 else (margins[j], j)
            best = max(best, (float(total), start, j), key=lambda candidate: candidate[0])
    return best[1], best[2]
