"""The evaluation of a set of translations: the report that `seq2see evaluate` prints, plots and writes as JSON."""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from seq2see.config import DataConfig
from seq2see.data.corpus import open_pairs
from seq2see.errors import UserError
from seq2see.evaluate.alignment import HeadScores
from seq2see.evaluate.breakdown import (
    FrequencyBucket,
    LengthBucket,
    Tokenize,
    count_words,
    recall_by_frequency,
    scores_by_length,
    word_tokenizer,
)
from seq2see.evaluate.datasets import TestSet
from seq2see.evaluate.metrics import (
    BLEU_TOKENIZER,
    MAX_RESAMPLED,
    RESAMPLES,
    RecognitionScores,
    References,
    Score,
    SystemComparison,
    all_metrics,
    closest_references,
    compare_systems,
    exact_match,
    other_scores,
    recognition_scores,
    score,
)

MAX_COUNTED_SENTENCES = 1_000_000  # training sentences in which words are counted


@dataclass(frozen=True)
class SentenceScore:
    """A translation with the reference closest to it."""

    line: int
    chrf: float
    source: str
    translation: str
    reference: str


@dataclass(frozen=True)
class Evaluation:
    sentences: int
    references: int  # in total
    scores: tuple[Score, ...]
    exact_match: float  # share of translations identical to one of their references
    by_length: tuple[LengthBucket, ...]
    by_frequency: tuple[FrequencyBucket, ...]
    frequency_source: str  # the text in which words were counted
    worst: tuple[SentenceScore, ...]
    comparison: tuple[SystemComparison, ...] = ()
    alignment: tuple[HeadScores, ...] = ()
    warnings: tuple[str, ...] = ()
    recognition: RecognitionScores | None = None  # of pictures and sounds


def evaluate(
    translations: Sequence[str],
    test: TestSet,
    *,
    data: DataConfig | None = None,
    baseline: Sequence[str] | None = None,
    alignment: Sequence[HeadScores] = (),
    tokenize: str = BLEU_TOKENIZER,
    worst: int = 10,
    recognition: bool = False,
) -> Evaluation:
    """Evaluates translations.

    `data` names the training files, in which word frequencies are counted; `baseline` is another system's output. With
    `recognition`, also computes character and word error rates.
    """
    references, metrics, split = test.references, all_metrics(tokenize), word_tokenizer(tokenize)
    by_sentence = closest_references(translations, references)
    closest = [reference for _, reference in by_sentence]
    frequency_source, frequencies = _word_frequencies(data, references, split)
    sources = test.sources or ("",) * len(test)
    sentences = [
        SentenceScore(line, chrf, source, translation, reference)
        for line, (source, translation, (chrf, reference)) in enumerate(
            zip(sources, translations, by_sentence, strict=True), 1
        )
    ]
    compared = [] if baseline is None else compare_systems(translations, baseline, references, metrics)
    return Evaluation(
        sentences=len(test),
        references=sum(map(len, references)),
        scores=(*score(translations, references, metrics, RESAMPLES), *other_scores(translations, references)),
        exact_match=exact_match(translations, references),
        by_length=scores_by_length(translations, references, tokenize),
        by_frequency=recall_by_frequency(translations, closest, frequencies, split),
        frequency_source=frequency_source,
        worst=tuple(sorted(sentences, key=lambda sentence: sentence.chrf)[:worst]),
        comparison=tuple(compared),
        alignment=tuple(alignment),
        warnings=tuple(_warnings(translations, references)),
        recognition=recognition_scores(translations, closest) if recognition else None,
    )


def _word_frequencies(data: DataConfig | None, references: References, split: Tokenize) -> tuple[str, dict[str, int]]:
    """Counts words in the training data, or in the references if it cannot be read; returns which, and the counts."""
    reason = "the training data is not known"
    if data is not None:
        try:
            targets = (target for _, target in islice(open_pairs(data), MAX_COUNTED_SENTENCES))
            return "the training data", count_words(targets, split)
        except UserError as error:
            reason = f"the training data cannot be read: {error}"
    return f"the references ({reason})", count_words((row[0] for row in references), split)


def _warnings(translations: Sequence[str], references: References) -> list[str]:
    warnings = []
    if len(translations) > MAX_RESAMPLED:
        warnings.append(
            f"no confidence intervals: {len(translations):,} sentences exceed the maximum of {MAX_RESAMPLED:,}"
        )
    empty = sum(not text.strip() for text in translations)
    if empty:
        warnings.append(f"{empty:,} of {len(translations):,} translations are empty")
    denormalized = sum(not unicodedata.is_normalized("NFC", text) for row in references for text in row)
    if denormalized and all(unicodedata.is_normalized("NFC", text) for text in translations):
        warnings.append(
            f"{denormalized:,} references are not NFC-normalised, but the translations are: equal words do not match; "
            "normalise the references (uconv -x NFC)"
        )
    return warnings
