"""How well a language model foretells a text: perplexity, and bits for each byte and character.

A model sees at most so many tokens at once, so the text goes through it in windows that overlap, and in each window only
the tokens count that no window before has foretold: with windows of 256 tokens that move on by 128, every token but the
first ones has 128 to 256 tokens before it. Documents begin with `<start>` and end with `<end>`, as in training, and
where the model's attention stopped at a document's end in training (`text.documents`), it does so here.

Shapes: T tokens in a batch of windows.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional as F

from seq2see.errors import UserError
from seq2see.layout import Packed
from seq2see.pipeline import Pipeline
from seq2see.text.corpus import Documents
from seq2see.text.tokenizer import Tokenizer, cut

LOGITS = 1 << 25  # numbers that a batch of windows may give, at most: 128 MB
_PART = 1 << 14  # characters that are tokenized as one

Longs = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class ContextBand:
    """The loss with so many tokens of context: here every token counts in every window that it is in."""

    low: int
    high: int
    tokens: int
    loss: float


@dataclass(frozen=True)
class LanguageEvaluation:
    documents: int
    tokens: int  # foretold, the ends of documents among them
    characters: int
    bytes: int
    unknown: int  # tokens <unknown>, whose letters nobody foretold
    loss: float  # nats a token
    perplexity: float
    bits_per_byte: float
    bits_per_character: float
    window: int
    stride: int
    context: float  # tokens before a token, on average
    within_documents: bool
    by_context: tuple[ContextBand, ...]


@dataclass(frozen=True)
class _Text:
    targets: Longs  # the tokens of all documents end to end, each closed by <end>
    starts: Longs  # where documents begin
    characters: int
    bytes: int


@dataclass(frozen=True)
class _Losses:
    losses: Floats  # [tokens] −ln p of every token
    contexts: Longs  # [tokens] how many tokens were before it, <start> among them
    totals: Floats  # [window] of the losses at each place of a window, whether they count or not
    counts: Longs  # [window] how many there were


def evaluate_text(model: Pipeline, documents: Documents, stride: int = 0) -> LanguageEvaluation:
    """The whole text; windows move on by `stride` tokens, half a window if it is 0."""
    config, tokenizer = model.config, model.tokenizers[1]
    if config.model.shape != "decoder":
        raise UserError(f"this model is an {config.model.shape}, and only a decoder alone is a language model")
    window = config.model.longest
    stride = stride or max(window // 2, 1)
    if not 1 <= stride <= window:
        raise UserError(f"windows of {window:,} tokens cannot move on by {stride:,}: some tokens would be left out")
    text = _read(documents, tokenizer)
    inputs = np.roll(text.targets, 1)
    inputs[text.starts] = tokenizer.start
    bounds = [*text.starts.tolist(), len(text.targets)] if config.text.documents else [0, len(text.targets)]
    found = _losses(model, inputs, text.targets, bounds, window, stride)
    loss = float(found.losses.mean())
    bits = float(found.losses.sum()) / math.log(2)
    return LanguageEvaluation(
        documents=len(text.starts), tokens=len(found.losses), characters=text.characters, bytes=text.bytes,
        unknown=0 if tokenizer.unknown is None else int((text.targets == tokenizer.unknown).sum()),
        loss=loss, perplexity=math.exp(loss), bits_per_byte=bits / text.bytes,
        bits_per_character=bits / text.characters, window=window, stride=stride, context=float(found.contexts.mean()),
        within_documents=config.text.documents, by_context=tuple(_bands(found)),
    )  # fmt: skip


def windows(length: int, window: int, stride: int) -> Iterator[tuple[int, int, int]]:
    """Where each window over a sequence begins, where it ends, and from where on its tokens count."""
    counted = 0
    while counted < length:
        end = min(window if counted == 0 else counted + stride, length)
        yield max(0, end - window), end, counted
        counted = end


def _read(documents: Documents, tokenizer: Tokenizer) -> _Text:
    parts: list[NDArray[np.int32]] = []
    starts = [0]
    length = characters = size = 0
    for passage in documents.passages():
        tokens = tokenizer.encode_batch(list(cut(passage.text, _PART))).tokens
        if passage.ends:
            tokens = np.append(tokens, np.int32(tokenizer.end))
        parts.append(tokens)
        length, characters, size = (
            length + len(tokens),
            characters + len(passage.text),
            size + len(passage.text.encode()),
        )
        if passage.ends:
            starts.append(length)
    return _Text(np.concatenate(parts).astype(np.int64), np.array(starts[:-1], dtype=np.int64), characters, size)


@torch.no_grad()
def _losses(model: Pipeline, inputs: Longs, targets: Longs, bounds: Sequence[int], window: int, stride: int) -> _Losses:
    transformer = model.network
    device = transformer.embedding.weight.device
    losses, contexts = np.zeros(len(targets)), np.zeros(len(targets), dtype=np.int64)
    totals, counts = np.zeros(window), np.zeros(window, dtype=np.int64)
    for batch in _batches(bounds, window, stride, max(window, LOGITS // model.config.model.vocabulary)):
        packed = Packed.of([inputs[begin:end].tolist() for begin, end, _ in batch], device)
        wanted = np.concatenate([targets[begin:end] for begin, end, _ in batch])
        logits = transformer(packed)  # [T, vocabulary]
        found = (
            F.cross_entropy(logits.float(), torch.from_numpy(wanted).to(device), reduction="none")
            .double()
            .cpu()
            .numpy()
        )
        place = 0
        for begin, end, first in batch:
            size = end - begin
            in_window = found[place : place + size]
            losses[first:end] = in_window[first - begin :]
            contexts[first:end] = np.arange(first - begin, size) + 1
            totals[:size] += in_window
            counts[:size] += 1
            place += size
    return _Losses(losses, contexts, totals, counts)


def _batches(bounds: Sequence[int], window: int, stride: int, tokens: int) -> Iterator[list[tuple[int, int, int]]]:
    batch: list[tuple[int, int, int]] = []
    held = 0
    for start, stop in pairwise(bounds):
        for begin, end, first in windows(stop - start, window, stride):
            if batch and held + end - begin > tokens:
                yield batch
                batch, held = [], 0
            batch.append((start + begin, start + end, start + first))
            held += end - begin
    yield batch


def _bands(found: _Losses) -> Iterator[ContextBand]:
    """By contexts of 1, 2, 3–4, 5–8, … tokens."""
    low, high = 1, 1
    while low <= len(found.counts) and found.counts[low - 1]:
        high = min(high, len(found.counts))
        tokens = int(found.counts[low - 1 : high].sum())
        yield ContextBand(low, high, tokens, float(found.totals[low - 1 : high].sum()) / tokens)
        low, high = high + 1, high * 2
