"""How well a language model predicts a text: perplexity, bits per byte and bits per character.

A model has a limited context, so the text goes through it in overlapping windows, and each token counts only in the first
window that contains it: with windows of 256 tokens and a stride of 128, every token except the first ones has 128 to 256
tokens of context. Documents begin with `<start>` and end with `<end>`, as in training, and if attention stopped at
document boundaries in training (`text.documents`), it does so here.

Shapes: T tokens in a batch of windows.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from seq2see.data.corpus import TextCorpus
from seq2see.data.layout import Packed
from seq2see.data.readers import TextChunk
from seq2see.data.tokenizer import Tokenizer
from seq2see.data.tokenizer_training import split_text
from seq2see.errors import UserError
from seq2see.model.network import Network
from seq2see.storage.pipeline import Pipeline

MAX_LOGITS = 1 << 25  # per batch of windows: 128 MB
_CHUNK_CHARACTERS = 1 << 14  # tokenized at a time

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
Window = tuple[int, int, int]  # begin, end, and the first token that counts


@dataclass(frozen=True)
class ContextBucket:
    """The loss for a range of context lengths. Every token counts in every window that contains it."""

    low: int
    high: int
    tokens: int
    loss: float


@dataclass(frozen=True)
class LanguageModelEvaluation:
    documents: int
    tokens: int  # predicted, including the <end> of each document
    characters: int
    bytes: int
    unknown_tokens: int  # <unknown> tokens, whose characters were not predicted
    loss: float  # nats per token
    perplexity: float
    bits_per_byte: float
    bits_per_character: float
    window: int
    stride: int
    mean_context: float  # tokens before a token, on average
    within_documents: bool
    by_context: tuple[ContextBucket, ...]


@dataclass(frozen=True)
class _Losses:
    losses: FloatArray  # [tokens] −ln p of every token
    contexts: IntArray  # [tokens] number of tokens before it, including <start>
    totals: FloatArray  # [window] sum of the losses at each position of a window, whether they count or not
    counts: IntArray  # [window] number of losses in that sum


def evaluate_language_model(model: Pipeline, documents: TextCorpus, stride: int = 0) -> LanguageModelEvaluation:
    """Evaluates the model on the whole text. Windows advance by `stride` tokens; 0 means half a window."""
    config, tokenizer = model.config, model.tokenizers[1]
    if config.model.shape != "decoder":
        raise UserError(f"this model is an {config.model.shape}; only a decoder-only model is a language model")
    window = config.model.max_positions
    stride = stride or max(window // 2, 1)
    if not 1 <= stride <= window:
        raise UserError(f"a stride of {stride:,} would skip tokens: windows have {window:,} tokens")
    chunks = list(documents.chunks())
    ends = [chunk.ends_document for chunk in chunks]
    ids = [_tokenize(chunk, tokenizer) for chunk in chunks]
    targets = np.concatenate(ids).astype(np.int64)  # the tokens of all documents; each ends with <end>
    bounds = [0, *np.cumsum([len(part) for part in ids])[ends].tolist()]  # where documents begin, and the end
    inputs = np.roll(targets, 1)
    inputs[bounds[:-1]] = tokenizer.start
    max_tokens = max(window, MAX_LOGITS // config.model.vocab_size)
    batches = _batches(bounds if config.text.documents else [0, len(targets)], window, stride, max_tokens)
    result = _losses(model.network, batches, inputs, targets)
    characters = sum(len(chunk.text) for chunk in chunks)
    size = sum(len(chunk.text.encode()) for chunk in chunks)
    loss = float(result.losses.mean())
    bits = float(result.losses.sum()) / math.log(2)
    return LanguageModelEvaluation(
        documents=sum(ends),
        tokens=len(targets),
        characters=characters,
        bytes=size,
        unknown_tokens=0 if tokenizer.unknown is None else int((targets == tokenizer.unknown).sum()),
        loss=loss,
        perplexity=math.exp(loss),
        bits_per_byte=bits / size,
        bits_per_character=bits / characters,
        window=window,
        stride=stride,
        mean_context=float(result.contexts.mean()),
        within_documents=config.text.documents,
        by_context=tuple(_buckets(result)),
    )


def windows(length: int, window: int, stride: int) -> Iterator[Window]:
    """Yields where each window over a sequence begins and ends, and the first token that counts in it."""
    counted = 0
    while counted < length:
        end = min(window if counted == 0 else counted + stride, length)
        yield max(0, end - window), end, counted
        counted = end


def _tokenize(chunk: TextChunk, tokenizer: Tokenizer) -> NDArray[np.int32]:
    parts = split_text(chunk.text, _CHUNK_CHARACTERS) if tokenizer.can_split else [chunk.text]
    ids = tokenizer.encode_batch(list(parts)).tokens
    return np.append(ids, np.int32(tokenizer.end)) if chunk.ends_document else ids


@torch.no_grad()
def _losses(network: Network, batches: Iterable[Sequence[Window]], inputs: IntArray, targets: IntArray) -> _Losses:
    window, device = network.config.max_positions, network.embedding.weight.device
    losses, contexts = np.zeros(len(targets)), np.zeros(len(targets), dtype=np.int64)
    totals, counts = np.zeros(window), np.zeros(window, dtype=np.int64)
    for batch in batches:
        packed = Packed.from_sequences([inputs[begin:end].tolist() for begin, end, _ in batch], device)
        labels = torch.from_numpy(np.concatenate([targets[begin:end] for begin, end, _ in batch])).to(device)
        token_losses = _token_losses(network, packed, labels).double().cpu().numpy()
        offset = 0
        for begin, end, first in batch:
            size = end - begin
            in_window = token_losses[offset : offset + size]
            losses[first:end] = in_window[first - begin :]
            contexts[first:end] = np.arange(first - begin, size) + 1
            totals[:size] += in_window
            counts[:size] += 1
            offset += size
    return _Losses(losses, contexts, totals, counts)


def _token_losses(network: Network, packed: Packed, labels: Tensor) -> Tensor:
    """Returns the loss of each token, [T]. The logits of a long window and a large vocabulary are computed in parts."""
    rows = max(1, MAX_LOGITS // network.config.vocab_size)
    if len(labels) <= rows:
        return F.cross_entropy(network(packed).float(), labels, reduction="none")
    vectors = network.vectors(packed, taps=network.taps())
    parts = zip(vectors.split(rows), labels.split(rows), strict=True)
    return torch.cat([F.cross_entropy(network.project(x).float(), y, reduction="none") for x, y in parts])


def _batches(bounds: Sequence[int], window: int, stride: int, max_tokens: int) -> Iterator[list[Window]]:
    batch: list[Window] = []
    tokens = 0
    for start, stop in pairwise(bounds):
        for begin, end, first in windows(stop - start, window, stride):
            if batch and tokens + end - begin > max_tokens:
                yield batch
                batch, tokens = [], 0
            batch.append((start + begin, start + end, start + first))
            tokens += end - begin
    yield batch


def _buckets(result: _Losses) -> Iterator[ContextBucket]:
    """Groups the losses by context lengths of 1, 2, 3–4, 5–8, … tokens."""
    low, high = 1, 1
    while low <= len(result.counts) and result.counts[low - 1]:
        high = min(high, len(result.counts))
        tokens = int(result.counts[low - 1 : high].sum())
        yield ContextBucket(low, high, tokens, float(result.totals[low - 1 : high].sum()) / tokens)
        low, high = high + 1, high * 2
