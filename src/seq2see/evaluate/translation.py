"""All that is said of a set of translations: the report that `seq2see evaluate` prints, draws and writes as JSON."""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from seq2see.config import DataConfig
from seq2see.errors import UserError
from seq2see.evaluate.breakdown import FrequencyBand, LengthBand, by_frequency, by_length, frequencies, words_by
from seq2see.evaluate.datasets import TestSet
from seq2see.inspect.alignment import View, align_by, all_views
from seq2see.metrics.alignment import AlignmentScores, GoldPairs, alignment_scores
from seq2see.metrics.translation import (
    BLEU_TOKENIZER,
    MOST_RESAMPLED,
    RESAMPLES,
    Compared,
    Score,
    all_metrics,
    compare,
    nearest_references,
    score,
    sentence_scores,
)
from seq2see.pipeline import Pipeline
from seq2see.text.corpus import training_pairs

COUNTED = 1_000_000  # training sentences whose words are counted, at most


@dataclass(frozen=True)
class Sentence:
    """A translation beside the reference that it comes nearest to."""

    line: int
    chrf: float
    source: str
    translation: str
    reference: str


@dataclass(frozen=True)
class AlignedBy:
    view: View
    scores: AlignmentScores


@dataclass(frozen=True)
class Evaluation:
    sentences: int
    references: int  # in all
    scores: tuple[Score, ...]
    exact: float  # share of translations that are one of their references
    by_length: tuple[LengthBand, ...]
    by_frequency: tuple[FrequencyBand, ...]
    counted_in: str  # where words were counted
    worst: tuple[Sentence, ...]
    against: tuple[Compared, ...] = ()
    alignment: tuple[AlignedBy, ...] = ()
    notes: tuple[str, ...] = ()


def evaluate(
    translations: Sequence[str], test: TestSet, *, data: DataConfig | None = None, theirs: Sequence[str] | None = None,
    alignment: Sequence[AlignedBy] = (), tokenize: str = BLEU_TOKENIZER, worst: int = 10,
) -> Evaluation:  # fmt: skip
    """The report; `data` names the training files, in which words are counted, and `theirs` another system's output."""
    references = test.references
    near = nearest_references(translations, references)
    split = words_by(tokenize)
    counted_in, times = _counted(data, references, tokenize)
    by_sentence = sentence_scores(translations, references)
    order = sorted(range(len(test)), key=lambda i: by_sentence[i])[:worst]
    sources = test.sources or ("",) * len(test)
    return Evaluation(
        sentences=len(test),
        references=sum(map(len, references)),
        scores=tuple(score(translations, references, all_metrics(tokenize), RESAMPLES)),
        exact=exact_match(translations, references),
        by_length=by_length(translations, references, tokenize),
        by_frequency=by_frequency(translations, near, times, split),
        counted_in=counted_in,
        worst=tuple(Sentence(i + 1, by_sentence[i], sources[i], translations[i], near[i]) for i in order),
        against=() if theirs is None else tuple(compare(translations, theirs, references, all_metrics(tokenize))),
        alignment=tuple(alignment),
        notes=tuple(_notes(translations, references)),
    )


def exact_match(translations: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    """The share of translations that are, letter for letter in NFC, one of their references."""
    right = sum(_plain(made) in map(_plain, row) for made, row in zip(translations, references, strict=True))
    return right / len(references)


def alignment_by_view(model: Pipeline, gold: GoldPairs) -> list[AlignedBy]:
    """How well each layer's cross-attention aligns the given pairs, the mean over its heads and each alone."""
    views = all_views(model)
    found = align_by(model, gold.pairs, views, gold.split)
    return [AlignedBy(view, alignment_scores(links, gold.golds)) for view, links in zip(views, found, strict=True)]


def _counted(data: DataConfig | None, references: Sequence[Sequence[str]], tokenize: str) -> tuple[str, dict[str, int]]:
    """Where words were counted, and how often each is there: in training, or if that is gone, in the references."""
    split = words_by(tokenize)
    why = "no model was given"
    if data is not None:
        try:
            targets = (target for _, target in islice(training_pairs(data), COUNTED))
            return "training", frequencies(targets, split)
        except UserError as error:
            why = f"the training text cannot be read ({error})"
    return f"the references, since {why}", frequencies((row[0] for row in references), split)


def _notes(translations: Sequence[str], references: Sequence[Sequence[str]]) -> list[str]:
    notes = []
    if len(translations) > MOST_RESAMPLED:
        notes.append(f"no intervals: {len(translations):,} sentences are more than {MOST_RESAMPLED:,}")
    empty = sum(not text.strip() for text in translations)
    if empty:
        notes.append(f"{empty:,} of {len(translations):,} translations are empty")
    other = sum(not unicodedata.is_normalized("NFC", text) for row in references for text in row)
    if other and all(unicodedata.is_normalized("NFC", text) for text in translations):
        notes.append(
            f"{other:,} references are not in Unicode's NFC, but the translations are: the same words do not match there; "
            "normalise the references (uconv -x NFC)"
        )
    return notes


def _plain(text: str) -> str:
    return unicodedata.normalize("NFC", text.strip())
