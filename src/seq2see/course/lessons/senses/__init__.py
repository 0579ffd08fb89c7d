"""`senses`: one word in several sentences, layer by layer.

In the embedding a word has one vector for all its meanings; in the layers above, the sentence changes it. Whether it changes it
by meaning is measured: are two occurrences with the same sense nearer than two with different ones? WiC (words in context)
tests it on pairs of sentences in which a word has the same meaning or not: a cosine above a threshold means the same.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from seq2see.course.lessons import kit
from seq2see.data.layout import Packed
from seq2see.data.token_spans import Span
from seq2see.data.word_spans import whitespace_spans
from seq2see.inspect.token_similarity import contextual_embeddings
from seq2see.inspect.trace import trace

# A word with its sense in parentheses, and sentences in which it has that sense.
SENSES: Mapping[str, Sequence[str]] = {
    "bank (money)": (
        "The money in the bank grows.", "I did not withdraw money from the bank.", "The bank gave the farmer a loan.",
        "My father deposits money in the bank.", "The bank will give us many loans.",
    ),
    "bank (river)": (
        "There is a duck on the river bank.", "There are many trees on the bank of the river.", "The boat reached the bank.",
        "The crocodile was not on the river bank.", "The old man is sitting on the bank of the river.",
    ),
    "apple (fruit)": (
        "The apple is sweet.", "She ate a red apple.", "The apple is better than the orange.",
        "He bought an apple in the market.",
        "An apple a day keeps the doctor away.",
    ),
    "apple (company)": (
        "Apple makes great phones.", "My brother works for Apple.", "Apple is making computers.",
        "This Apple phone was expensive.",
        "Apple will not make phones.",
    ),
    "mole (animal)": (
        "There is a mole in the garden.", "The mole was not in the field.", "The mole dug a hole in the garden.",
        "There were two holes of the mole in the field.",
    ),
    "mole (skin)": (
        "The doctor took a biopsy of the mole.", "There is a mole on my cheek.", "The doctor removed the mole from her hand.",
        "The nurse saw a mole on his face.",
    ),
    "mole (spy)": (
        "The police caught the mole.", "The soldiers will catch a mole.", "The police did not catch the mole in the city.",
        "There was a mole in the police.",
    ),
    "mole (chemistry)": (
        "One mole of carbon dioxide", "There is one mole of hydrogen in the bottle.", "The student wants one mole of oxygen.",
        "The scientist has one mole of carbon dioxide.",
    ),
    "fit (healthy)": ("Our sister is fit.", "The boy was not fit.", "All the doctors are fit.", "She is fit because she runs."),
    "fit (size)": (
        "The shoe does not fit me.", "Does her coat fit you?", "The shirt will not fit my brother.",
        "His shirt did not fit him.",
    ),
}  # fmt: skip
WIC_BATCH = 64  # sentences

MarkedSentence = tuple[str, Span]  # a sentence, and the span of the word in it


@dataclass(frozen=True)
class Layer:
    """How well one layer tells senses apart, over all pairs of sentences with the same word."""

    name: str
    same: float  # mean cosine of pairs with the same sense
    different: float
    order: float  # share of (same, different) pairs of pairs in which the same sense is nearer; 0.5 is chance
    nearest: float  # share of occurrences whose nearest other occurrence has the same sense


@dataclass(frozen=True)
class Word:
    word: str
    senses: tuple[str, ...]  # of each sentence
    sentences: tuple[str, ...]
    translations: tuple[str, ...]
    cosines: tuple[kit.Matrix, ...]  # [layer][sentence][sentence]
    layers: tuple[Layer, ...]
    chance: float  # of `nearest`, if the nearest were drawn at random
    is_static: (
        bool  # the embedding is the same in all sentences; not so if the word is also written Apple, another token
    )


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
    layers: tuple[str, ...]  # trace names
    words: tuple[Word, ...]
    overall: tuple[Layer, ...]  # means over the words whose embedding is the same in all sentences, if there are any
    chance: float
    unknown: tuple[str, ...]  # words of the sentences that the model does not know
    wic: WiC | None


def compute(
    senses: Mapping[str, Sequence[str]] = SENSES, wic: str | None = None, model: kit.Model | None = None
) -> Result:
    """Compares every word across its sentences and senses; `wic` is a directory with the data and gold files of WiC."""
    model = kit.resolve_model(model)
    by_word: dict[str, list[tuple[str, str]]] = {}
    for name, sentences in senses.items():
        word, _, sense = name.removesuffix(")").partition(" (")
        by_word.setdefault(word.strip(), []).extend((sense or str(len(by_word)), sentence) for sentence in sentences)
    names: tuple[str, ...] = ()
    compared = []
    for word, marked in by_word.items():
        names, found = _compare(model, word, marked)
        compared.append(found)
    averaged = [word for word in compared if word.is_static] or compared
    overall = tuple(
        Layer(_layer_name(name), *(_mean([getattr(w.layers[i], field) for w in averaged]) for field in FIELDS))
        for i, name in enumerate(names)
    )
    unknown = [word for w in compared for sentence in w.sentences for word in model.unknown_words(sentence) or ()]
    return Result(
        names,
        tuple(compared),
        overall,
        _mean([w.chance for w in averaged]),
        tuple(dict.fromkeys(unknown)),
        None if wic is None else _evaluate_wic(model, Path(wic), names),
    )


FIELDS = ("same", "different", "order", "nearest")


def _mean(numbers: Sequence[float]) -> float:
    """The mean of the numbers that exist."""
    known = [number for number in numbers if not math.isnan(number)]
    return sum(known) / len(known) if known else math.nan


def _compare(model: kit.Model, word: str, marked: Sequence[tuple[str, str]]) -> tuple[tuple[str, ...], Word]:
    sentences = [sentence for _, sentence in marked]
    found = contextual_embeddings(model, word, sentences)
    if missing := [sentence for sentence in sentences if sentence not in found.sentences]:
        raise kit.UserError(f'"{word}" is not in "{missing[0]}": every sentence must contain the word')
    if len(found.sentences) < 2:
        raise kit.UserError(f'1 sentence with "{word}": needs at least 2 to compare')
    sense_of = {sentence: sense for sense, sentence in marked}
    senses = tuple(sense_of[sentence] for sentence in found.sentences)
    translations: list[str] = []
    if model.config.model.shape == "encoder-decoder":
        translations = model.translate_sentences(found.sentences)
    layers = tuple(
        _measure(_layer_name(name), matrix, senses) for name, matrix in zip(found.layers, found.cosines, strict=True)
    )
    others = len(senses) - 1
    chance = sum(senses.count(sense) - 1 for sense in senses) / (others * len(senses))
    cosines = tuple(kit.to_matrix(matrix) for matrix in found.cosines)
    is_static = float(found.cosines[0].min()) > 0.999
    return found.layers, Word(word, senses, found.sentences, tuple(translations), cosines, layers, chance, is_static)


def _measure(name: str, cosines: Tensor, senses: Sequence[str]) -> Layer:
    pairs = list(combinations(range(len(senses)), 2))
    same = torch.tensor([float(cosines[i, j]) for i, j in pairs if senses[i] == senses[j]])
    different = torch.tensor([float(cosines[i, j]) for i, j in pairs if senses[i] != senses[j]])
    # Rounded: in the embedding all cosines are 1, up to rounding, and a tie counts half.
    sign = (same[:, None] - different[None]).mul(1e5).round().sign()
    order = float((sign + 1).mean() / 2) if sign.numel() else math.nan
    nearest = []
    for i, sense in enumerate(senses):
        others = [j for j in range(len(senses)) if j != i]
        best = max(float(cosines[i, j]) for j in others)
        tied = [j for j in others if float(cosines[i, j]) > best - 1e-5]
        nearest.append(sum(senses[j] == sense for j in tied) / len(tied))
    return Layer(
        name,
        float(same.mean()) if len(same) else math.nan,
        float(different.mean()) if len(different) else math.nan,
        order,
        _mean(nearest),
    )


@dataclass(frozen=True)
class _WiCPairs:
    first: list[MarkedSentence]
    second: list[MarkedSentence]
    same: Tensor  # [pairs] bool


def _evaluate_wic(model: kit.Model, directory: Path, layers: Sequence[str]) -> WiC:
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
        raise kit.UserError(f"cannot read WiC from {directory}: {error.strerror} ({error.filename})") from error
    if len(lines) != len(answers):
        raise kit.UserError(
            f"{directory}: {len(lines)} pairs in {split}.data.txt, but {len(answers)} answers in {split}.gold.txt"
        )
    first, second = [], []
    for number, line in enumerate(lines, start=1):
        cells = line.split("\t")
        if len(cells) != 5:
            raise kit.UserError(f"{directory}/{split}.data.txt, line {number}: {len(cells)} columns, expected 5")
        i, j = cells[2].split("-")
        first.append((cells[3], whitespace_spans(cells[3])[int(i)]))
        second.append((cells[4], whitespace_spans(cells[4])[int(j)]))
    return _WiCPairs(first, second, torch.tensor([answer.strip() == "T" for answer in answers]))


def _cosines(model: kit.Model, pairs: _WiCPairs, layers: Sequence[str]) -> Tensor:
    first, second = (_word_vectors(model, sentences, layers) for sentences in (pairs.first, pairs.second))
    return F.cosine_similarity(first, second, dim=-1)


@torch.no_grad()
def _word_vectors(model: kit.Model, sentences: Sequence[MarkedSentence], layers: Sequence[str]) -> Tensor:
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


def values(result: Result) -> kit.Values:
    last, wic = result.overall[-1], result.wic
    best = max(result.overall, key=lambda layer: layer.order if not math.isnan(layer.order) else 0.0)
    spelled = [word.word for word in result.words if not word.is_static]
    return {
        "averaged": [word.word for word in result.words if word.is_static] or spelled,
        "left_out": spelled if len(spelled) < len(result.words) else [],
        "best": best,
        "is_comparable": not math.isnan(last.order),
        "has_better": best.order > last.order + 0.05,
        "word_rows": [
            [
                (i + 1, sense, sentence, word.translations[i] if word.translations else "")
                for i, (sense, sentence) in enumerate(zip(word.senses, word.sentences, strict=True))
            ]
            for word in result.words
        ],
        "wic_rows": wic and list(zip(map(_layer_name, wic.layers), wic.thresholds, wic.train, wic.dev, strict=True)),
        "layer_names": [layer.name for layer in result.overall],
        "same_curve": [(i, layer.same) for i, layer in enumerate(result.overall)],
        "different_curve": [(i, layer.different) for i, layer in enumerate(result.overall)],
        "order_curves": [
            (word.word, [(i, layer.order) for i, layer in enumerate(word.layers)]) for word in result.words
        ],
    }


def _layer_name(name: str) -> str:
    part = name.split(".")[1]
    return {"embedded": "embedding", "input": "+ position", "vectors": "output"}.get(part, f"block {part}")


def answers() -> kit.Values:
    cosines = torch.tensor([[1.0, 0.9, 0.4], [0.9, 1.0, 0.6], [0.4, 0.6, 1.0]])
    measured = _measure("", cosines, ("money", "money", "river"))
    tied = _measure("", torch.ones(4, 4), ("a", "a", "b", "b"))
    return {"order": measured.order, "different": measured.different, "tied": tied.order}
