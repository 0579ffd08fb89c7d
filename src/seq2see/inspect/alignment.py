"""Word alignment from cross-attention.

One traced forward pass over a source and a given target gives the cross-attention of each target token. Weights are summed
over the tokens of a source word and averaged over those of a target word; each target word is linked to the source word
with the largest weight.

Which row of the weights belongs to token t: the row that predicts it, or the next one, whose input it is? Alignment error
rate (AER) on the test set of the built-in corpus, mean over the heads, for rows by target and by input: last of two layers
22% and 92%, last of four 21% and 74%, worse in lower layers; only the first of four is better by input (73% and 61%). So a
word is aligned by the rows that predict it, in the last layer, whose mean is better than each of its heads (25% and 27% for
the best). `best_heads` finds a few heads whose mean is better still. Leaving a word unaligned if it attends most to `<end>`
raises the error.

Shapes: S pairs, H heads, L and K the longest target and source in tokens, M and N in words.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from seq2see.data.layout import Packed
from seq2see.data.token_spans import Span, TokenSpan
from seq2see.data.word_spans import WordSplitter, wordpunct_spans
from seq2see.errors import UserError
from seq2see.inspect.alignment_error import GoldPairs, alignment_scores
from seq2see.inspect.explain import Explanation, escape_control
from seq2see.inspect.trace import trace
from seq2see.storage.pipeline import Pipeline, with_article

Links = list[tuple[int, int]]  # (source word, target word), from 0

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


def align(
    model: Pipeline, pairs: Sequence[tuple[str, str]], *, layer: int = -1, head: int | None = None,
    split: WordSplitter = wordpunct_spans,
) -> list[Links]:  # fmt: skip
    """Aligns each pair by the cross-attention of one layer: by one head, or by the mean over its heads."""
    return align_with(model, pairs, [LayerHead(layer, head)], split)[0]


@torch.no_grad()
def align_with(
    model: Pipeline, pairs: Sequence[tuple[str, str]], heads: Sequence[LayerHead | LayerHeads],
    split: WordSplitter = wordpunct_spans, rows: Literal["input", "target"] = "target",
) -> list[list[Links]]:  # fmt: skip
    """Aligns pairs with each of several heads, or means over heads, in the same pass: one list per entry of `heads`.

    A token is aligned by the row that predicts it (rows="target") or by the row whose input it is (rows="input").
    """
    means = [_resolve(one if isinstance(one, tuple) else (one,), model) for one in heads]
    tokenized = [_TokenizedPair.from_texts(*pair, model, split) for pair in pairs]
    results: list[list[Links]] = [[[] for _ in pairs] for _ in heads]
    for batch, by_head in _attention_by_word(model, tokenized, means, rows):
        batch_pairs = [tokenized[i] for i in batch]
        for by_word, links in zip(by_head, results, strict=True):
            for i, links_of_pair in zip(batch, _link(by_word, batch_pairs), strict=True):
                links[i] = links_of_pair
    return results


@torch.no_grad()
def word_attention(
    model: Pipeline, pairs: Sequence[tuple[str, str]], heads: LayerHeads = LAST_LAYER,
    split: WordSplitter = wordpunct_spans,
) -> list[Tensor]:  # fmt: skip
    """Returns the attention between the words of each pair, [target words, source words]."""
    tokenized = [_TokenizedPair.from_texts(*pair, model, split) for pair in pairs]
    results: list[Tensor] = [torch.empty(0)] * len(pairs)
    for batch, (by_word,) in _attention_by_word(model, tokenized, [_resolve(heads, model)]):
        for i, weights in zip(batch, by_word, strict=True):
            sources, targets = tokenized[i].word_counts
            results[i] = weights[:targets, :sources]
    return results


def _attention_by_word(
    model: Pipeline, tokenized: "Sequence[_TokenizedPair]", means: Sequence[LayerHeads],
    rows: Literal["input", "target"] = "target",
) -> Iterator[tuple[list[int], list[Tensor]]]:  # fmt: skip
    """Yields batches of pairs, and for each mean over heads the attention between the words, [S, M, N]."""
    names = [_weights_name(one) for mean in means for one in mean]
    for batch in _batches(tokenized):
        batch_pairs = [tokenized[i] for i in batch]
        with trace(model.network, only=names) as t:
            model.network(*_pack(batch_pairs, model))
        sources, targets = _membership(batch_pairs, model)
        first = len(model.tokenizers[1].framing.prompt)  # the row whose input is the first target token
        by_head = []
        for mean in means:
            weights = _mean_weights([t[_weights_name(one)] for one in mean], mean)  # [S, L + 1, K]
            by_token = weights[:, first:] if rows == "input" else weights[:, first - 1 : -1]  # [S, L, K]
            by_head.append(targets @ by_token.float().cpu() @ sources)  # [S, M, N]
        yield batch, by_head


def word_alignment(e: Explanation, heads: LayerHeads = LAST_LAYER, split: WordSplitter = wordpunct_spans) -> Alignment:
    """Aligns the words of an explained translation by the attention weights of its trace."""
    if e.source_rows is not None:
        raise UserError(f"{e.model.config.model.source} have no words to align: look at the attention weights")
    heads = _resolve(heads, e.model)
    pair = _TokenizedPair.from_spans((e.source, e.output), (e.source_spans, e.output_spans), split)
    weights = _mean_weights([e.trace[_weights_name(one), 0][None] for one in heads], heads)
    sources, targets = _membership([pair], e.model)
    predicting = slice(e.prompt_length - 1, e.prompt_length - 1 + len(pair.target))
    by_word = targets @ weights[:, predicting].float().cpu() @ sources  # [1, M, N]
    (links,) = _link(by_word, [pair])
    words = [tuple(escape_control(text[a:b]) for a, b in split(text)) for text in (e.source, e.output)]
    return Alignment(words[0], words[1], by_word[0], links)


def best_heads(model: Pipeline, gold: GoldPairs, max_heads: int = 8) -> tuple[LayerHeads, float]:
    """Returns the heads, of any layer, whose mean aligns gold pairs best, and their error rate.

    Heads are ranked by their own error rates, and the first n are averaged, for the best n. Report results on other pairs
    than those used here.
    """

    def error_rates(heads: Sequence[LayerHead | LayerHeads]) -> list[float]:
        return [alignment_scores(links, gold.golds).aer for links in align_with(model, gold.pairs, heads, gold.split)]

    heads = [one for one in all_layer_heads(model) if one.head is not None]
    individual = dict(zip(heads, error_rates(heads), strict=True))
    ranked = tuple(sorted(heads, key=individual.__getitem__))
    candidates = [ranked[:n] for n in range(1, max_heads + 1)]
    combined = error_rates(candidates)
    best = min(range(len(candidates)), key=combined.__getitem__)
    return candidates[best], combined[best]


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


def _mean_weights(weights: Sequence[Tensor], heads: LayerHeads) -> Tensor:
    """Averages the selected heads, [S, rows, keys], given the weights of each one's layer, [S, H, rows, keys]."""
    selected = [w.mean(1) if one.head is None else w[:, one.head] for w, one in zip(weights, heads, strict=True)]
    return torch.stack(selected).mean(0)


@dataclass(frozen=True)
class _TokenizedPair:
    """The tokens of a pair, and the words that each token belongs to."""

    source: list[int]
    target: list[int]
    source_words: list[list[int]]  # per source token
    target_words: list[list[int]]
    word_counts: tuple[int, int]

    @classmethod
    def from_texts(cls, source: str, target: str, model: Pipeline, split: WordSplitter) -> "_TokenizedPair":
        tokens = model.tokenizers[0].token_spans(source), model.tokenizers[1].token_spans(target)
        return cls.from_spans((source, target), tokens, split)

    @classmethod
    def from_spans(
        cls, texts: tuple[str, str], tokens: tuple[Sequence[TokenSpan], Sequence[TokenSpan]], split: WordSplitter
    ) -> "_TokenizedPair":
        words = split(texts[0]), split(texts[1])
        source, target = ([token.id for token in side] for side in tokens)
        source_words, target_words = (_words_of_tokens(*both) for both in zip(tokens, words, strict=True))
        return cls(source, target, source_words, target_words, (len(words[0]), len(words[1])))


def _words_of_tokens(tokens: Sequence[TokenSpan], words: Sequence[Span]) -> list[list[int]]:
    """Returns the words that each token overlaps: usually one; none for whitespace."""
    overlaps: list[list[int]] = []
    first = 0
    for token in tokens:
        while first < len(words) and words[first][1] <= token.start:
            first += 1
        last = first
        while last < len(words) and words[last][0] < token.end:
            last += 1
        overlaps.append(list(range(first, last)))
    return overlaps


def _batches(pairs: Sequence[_TokenizedPair]) -> Iterator[list[int]]:
    """Groups pairs of similar length, up to the token budget."""
    batch: list[int] = []
    max_length = 0
    for i in sorted(range(len(pairs)), key=lambda i: (len(pairs[i].target), len(pairs[i].source))):
        length = max(len(pairs[i].target), len(pairs[i].source)) + 1
        max_length = max(max_length, length)
        if batch and (len(batch) + 1) * max_length > BATCH_TOKENS:
            yield batch
            batch, max_length = [], length
        batch.append(i)
    if batch:
        yield batch


def _pack(pairs: Sequence[_TokenizedPair], model: Pipeline) -> tuple[Packed, Packed]:
    source, target = model.tokenizers
    device = model.network.embedding.weight.device
    sources = Packed.from_sequences([source.frame_source(pair.source) for pair in pairs], device)
    return sources, Packed.from_sequences([target.frame_prompt(pair.target) for pair in pairs], device)


def _membership(pairs: Sequence[_TokenizedPair], model: Pipeline) -> tuple[Tensor, Tensor]:
    """Returns matrices that sum the columns of a source word, [S, K, N], and average the rows of a target word, [S, M, L]."""
    max_source, max_target = max(len(pair.source) for pair in pairs), max(len(pair.target) for pair in pairs)
    source_words, target_words = (max(pair.word_counts[side] for pair in pairs) for side in (0, 1))
    framing = model.tokenizers[0].framing
    before = len(framing.before)
    # Special tokens, such as <end>, belong to no word.
    sources = torch.zeros(len(pairs), before + max_source + len(framing.after), source_words)
    targets = torch.zeros(len(pairs), target_words, max_target)
    for i, pair in enumerate(pairs):
        for token, words in enumerate(pair.source_words):
            sources[i, before + token, words] = 1 / max(len(words), 1)  # a token of two words is shared between them
        for token, words in enumerate(pair.target_words):
            targets[i, words, token] = 1
    return sources, targets / targets.sum(-1, keepdim=True).clamp_min(1)


def _link(by_word: Tensor, pairs: Sequence[_TokenizedPair]) -> Iterator[Links]:
    """Links each target word to the source word with the largest weight."""
    for weights, pair in zip(by_word, pairs, strict=True):
        sources, targets = pair.word_counts
        if not (sources and targets):
            yield []
            continue
        best = weights[:targets, :sources].argmax(-1).tolist()
        yield sorted((i, j) for j, i in enumerate(best))
