"""`senses`: one word in several sentences, layer by layer.

In the embedding a word has one vector for all its meanings; in the layers above, the sentence changes it. Cosines between the
occurrences show this, and the translations show whether the model understood. WiC (words in context) tests it on pairs of
sentences in which a word has the same meaning or not: a cosine above a threshold means the same.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from seq2see.api import Model
from seq2see.course.lessons.attention import Matrix, to_matrix
from seq2see.course.lessons.figures import label_axes, save_figure, subplots
from seq2see.course.lessons.models import resolve_model
from seq2see.course.lessons.render import LessonText, Row, Table
from seq2see.errors import UserError
from seq2see.inspect.token_similarity import contextual_embeddings
from seq2see.inspect.trace import trace
from seq2see.layout import Packed
from seq2see.text.token_spans import Span
from seq2see.text.word_spans import whitespace_spans

WORDS: Mapping[str, Sequence[str]] = {
    "bank": (
        "The money in the bank grows.", "I did not withdraw money from the bank.", "There is a duck on the river bank.",
        "There is a tree on the bank.",
    ),
    "apple": ("Apple is healthy.", "Apple is better than orange.", "Apple makes great phones."),
    "mole": (
        "American shrew mole", "There is a mole in the garden.", "One mole of carbon dioxide", "Take a biopsy of the mole.",
        "The police caught the mole.",
    ),
    "fit": ("Our sister is fit.", "The mango is fit to eat.", "The shoe does not fit me."),
}  # fmt: skip
WIC_BATCH = 64  # sentences

MarkedSentence = tuple[str, Span]  # a sentence, and the span of the word in it


@dataclass(frozen=True)
class Word:
    word: str
    sentences: tuple[str, ...]
    translations: tuple[str, ...]
    layers: tuple[str, ...]  # trace names
    cosines: tuple[Matrix, ...]  # [layer][sentence][sentence]
    means: tuple[float, ...]  # over all pairs, per layer


@dataclass(frozen=True)
class WiC:
    layers: tuple[str, ...]
    thresholds: tuple[float, ...]  # chosen on train, per layer
    train: tuple[float, ...]  # accuracies
    dev: tuple[float, ...]
    pairs: int  # of dev
    majority: float  # accuracy on dev of always giving the more frequent answer


@dataclass(frozen=True)
class Result:
    words: tuple[Word, ...]
    wic: WiC | None


def compute(words: Mapping[str, Sequence[str]] = WORDS, wic: str | None = None, model: Model | None = None) -> Result:
    """Compares every word across its sentences; `wic` is a directory with the data and gold files of WiC."""
    model = resolve_model(model)
    compared = tuple(_compare(model, word, sentences) for word, sentences in words.items())
    return Result(compared, None if wic is None else _evaluate_wic(model, Path(wic), compared[0].layers))


def _compare(model: Model, word: str, sentences: Sequence[str]) -> Word:
    found = contextual_embeddings(model, word, sentences)
    if missing := [sentence for sentence in sentences if sentence not in found.sentences]:
        raise UserError(f'"{word}" is not in "{missing[0]}": every sentence must contain the word')
    if len(found.sentences) < 2:
        raise UserError(f'1 sentence with "{word}": needs at least 2 to compare')
    translations: list[str] = []
    if model.config.model.shape == "encoder-decoder":
        translations = model.translate_sentences(found.sentences)
    pairs = list(combinations(range(len(found.sentences)), 2))
    means = tuple(sum(float(matrix[i, j]) for i, j in pairs) / len(pairs) for matrix in found.cosines)
    cosines = tuple(to_matrix(matrix) for matrix in found.cosines)
    return Word(word, found.sentences, tuple(translations), found.layers, cosines, means)


@dataclass(frozen=True)
class _WiCPairs:
    first: list[MarkedSentence]
    second: list[MarkedSentence]
    same: Tensor  # [pairs] bool


def _evaluate_wic(model: Model, directory: Path, layers: Sequence[str]) -> WiC:
    """Chooses a threshold per layer on train.{data,gold}.txt and evaluates it on dev.{data,gold}.txt."""
    train, dev = _read_wic(directory, "train"), _read_wic(directory, "dev")
    train_cosines, dev_cosines = _cosines(model, train, layers), _cosines(model, dev, layers)  # [layers, pairs]
    thresholds, accuracies = zip(*(best_threshold(row, train.same) for row in train_cosines), strict=True)
    dev_accuracies = [
        float(((row > threshold) == dev.same).float().mean())
        for row, threshold in zip(dev_cosines, thresholds, strict=True)
    ]
    same = float(dev.same.float().mean())
    return WiC(tuple(layers), thresholds, accuracies, tuple(dev_accuracies), len(dev.same), max(same, 1 - same))


def _read_wic(directory: Path, split: str) -> _WiCPairs:
    try:
        lines, answers = (
            (directory / f"{split}.{kind}.txt").read_text(encoding="utf-8").splitlines() for kind in ("data", "gold")
        )
    except OSError as error:
        raise UserError(f"cannot read WiC from {directory}: {error.strerror} ({error.filename})") from error
    if len(lines) != len(answers):
        raise UserError(
            f"{directory}: {len(lines)} pairs in {split}.data.txt, but {len(answers)} answers in {split}.gold.txt"
        )
    first, second = [], []
    for number, line in enumerate(lines, start=1):
        cells = line.split("\t")
        if len(cells) != 5:
            raise UserError(f"{directory}/{split}.data.txt, line {number}: {len(cells)} columns, expected 5")
        i, j = cells[2].split("-")
        first.append((cells[3], whitespace_spans(cells[3])[int(i)]))
        second.append((cells[4], whitespace_spans(cells[4])[int(j)]))
    return _WiCPairs(first, second, torch.tensor([answer.strip() == "T" for answer in answers]))


def _cosines(model: Model, pairs: _WiCPairs, layers: Sequence[str]) -> Tensor:
    first, second = (_word_vectors(model, sentences, layers) for sentences in (pairs.first, pairs.second))
    return F.cosine_similarity(first, second, dim=-1)


@torch.no_grad()
def _word_vectors(model: Model, sentences: Sequence[MarkedSentence], layers: Sequence[str]) -> Tensor:
    """Returns the mean vector of the tokens of each marked word, [layers, sentences, width]."""
    tokenizer, has_encoder = model.tokenizers[0], model.config.model.has_encoder
    vectors = []
    for start in range(0, len(sentences), WIC_BATCH):
        batch = sentences[start : start + WIC_BATCH]
        tokens = [tokenizer.token_spans(sentence) for sentence, _ in batch]
        ids = [[token.id for token in row] for row in tokens]
        with trace(model.network, only=layers) as t:
            if has_encoder:
                packed = Packed.from_sequences([[*row, tokenizer.end] for row in ids])
                model.network.encode(packed, model.network.taps())
            else:
                model.network(Packed.from_sequences([[tokenizer.start, *row] for row in ids]))
        for s, (_, (a, b)) in enumerate(batch):
            rows = [i + (not has_encoder) for i, token in enumerate(tokens[s]) if token.start < b and a < token.end]
            vectors.append(torch.stack([t[layer, s][rows].mean(0) for layer in layers]))
    return torch.stack(vectors, dim=1)


def best_threshold(cosines: Tensor, same: Tensor) -> tuple[float, float]:
    """Finds the cosine that separates the two answers best; returns it with its accuracy."""
    ordered, index = cosines.sort()
    positive = same[index].float()
    zero = positive.new_zeros(1)
    # With the threshold after the i-th cosine, the answer is no up to it and yes beyond.
    correct = torch.cat([zero, (1 - positive).cumsum(0)]) + positive.sum() - torch.cat([zero, positive.cumsum(0)])
    best = int(correct.argmax())
    threshold = ordered[best - 1] if best else ordered[0] - 1
    return float(threshold), float(correct[best] / len(cosines))


def describe(result: Result) -> LessonText:
    body: list[str | Table] = []
    for word in result.words:
        sentences: list[Row] = [
            (i + 1, sentence, word.translations[i] if word.translations else "")
            for i, sentence in enumerate(word.sentences)
        ]
        body.append(Table(("", "", ""), tuple(sentences), f'"{word.word}":'))
        pairs = list(combinations(range(len(word.sentences)), 2))[:10]
        cosines: list[Row] = [
            (_layer_name(name), *(word.cosines[layer][i][j] for i, j in pairs), word.means[layer])
            for layer, name in enumerate(word.layers)
        ]
        body.append(Table(("cosine of", *(f"{i + 1}·{j + 1}" for i, j in pairs), "mean"), tuple(cosines)))
    if result.wic is not None:
        wic = result.wic
        accuracies = tuple(zip(map(_layer_name, wic.layers), wic.thresholds, wic.train, wic.dev, strict=True))
        caption = f"WiC, {wic.pairs} pairs (majority baseline: {wic.majority:.3f}):"
        body.append(Table(("", "threshold", "train", "dev"), accuracies, caption, 3))
    drops = [f'"{word.word}" {word.means[0]:.2f} → {word.means[-1]:.2f}' for word in result.words]
    return LessonText(
        'Context changes meaning. The notes: static embeddings give "bank" the same vector next to money and next to a river; '
        'after the first step "mole" means "the sum" of all its meanings, and only then do its neighbours have "the chances to '
        'pass the contextual information".',
        tuple(body),
        "In the embedding a word is the same everywhere (cosine 1); layer by layer its occurrences diverge: "
        f"{', '.join(drops)}. The cosine should drop further where the meanings differ than where they agree; the translations "
        "show whether the model distinguished them."
        + ("" if result.wic else " (Evaluate on WiC with --set wic=DIRECTORY.)"),
    )


def _layer_name(name: str) -> str:
    part = name.split(".")[1]
    return {"embedded": "embedding", "input": "+ position", "vectors": "output"}.get(part, f"block {part}")


def draw(result: Result, path: Path | str) -> None:
    figure, axes = subplots(2, (len(result.words) + 1) // 2)
    for ax, word in zip(axes, result.words, strict=False):
        for i, j in combinations(range(len(word.sentences)), 2):
            cosines = [matrix[i][j] for matrix in word.cosines]
            ax.plot(range(len(cosines)), cosines, "o-", markersize=3, linewidth=1, label=f"{i + 1} · {j + 1}")
        ax.set_xticks(range(len(word.layers)), [_layer_name(name) for name in word.layers], rotation=30, fontsize=7)
        ax.set_ylim(0, 1.05)
        label_axes(ax, f'"{word.word}": pairs of sentences', "", "cosine")
        ax.legend(frameon=False, fontsize=7, ncols=2)
    save_figure(figure, path)
