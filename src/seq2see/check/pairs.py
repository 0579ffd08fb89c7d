"""The data check for sentence pairs.

One pass collects numbers for every pair (`collect_stats`), numpy assesses them all at once, and a second pass fetches
the text of the examples (`findings`). A false alarm costs more trust than a miss costs quality, so the thresholds are
wide: they were set by reading what they catch in English–Hindi, English–German and English–French data.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from seq2see.check import statistics as stats
from seq2see.check.findings import FindingsBuilder, HeldOut, PairProblems
from seq2see.check.report import FindingKind, Report
from seq2see.data.corpus import ParallelCorpus, format_paths
from seq2see.errors import ProgressFactory, UserError, no_progress

Mask = NDArray[np.bool_]

# Why a pair is left out of a cleaned copy; if several apply, the first is reported.
REMOVAL_REASONS: tuple[FindingKind, ...] = (
    "empty", "one-sided", "script", "untranslated", "length-ratio", "too-long", "test", "valid", "duplicate",
)  # fmt: skip

_MAX_FACTOR = 3.0  # a side may be at most this many times longer or shorter than expected from the corpus
_MAX_SIGMAS = 6.0  # or, in a corpus of free translations, this many standard deviations
_LENGTH_OFFSET = 10  # characters added to both lengths, so that "Yes" and its translation may differ
_COMMON = 0.2  # a property of a fifth of the pairs is normal for the corpus, not a problem
_MIN_PAIRS = 20  # with fewer pairs, there is no norm to deviate from


@dataclass(frozen=True)
class CheckSettings:
    """The maximum sentence length of the model, and how many examples to show of each kind of problem."""

    max_length: int = 1024  # in tokens, or in words without an encoder
    examples: int = 3
    encoder: stats.Encoder | None = None
    progress: ProgressFactory = no_progress


@dataclass(frozen=True)
class CheckedPairs:
    """The report, and for each pair its reason for removal as 1 + index in REMOVAL_REASONS, or 0."""

    report: Report
    reasons: NDArray[np.uint8]
    starts: tuple[int, ...]  # the pairs of reader i are reasons[starts[i] : starts[i + 1]]
    issues: stats.IssueLog


DEFAULTS = CheckSettings()


def check_pairs(
    pairs: ParallelCorpus,
    settings: CheckSettings = DEFAULTS,
    valid: ParallelCorpus | None = None,
    test: ParallelCorpus | None = None,
) -> CheckedPairs:
    """Checks every pair, and whether the training data contains validation or test sentences."""
    sets: dict[FindingKind, ParallelCorpus | None] = {"valid": valid, "test": test}
    held_out = {kind: _held_out(other) for kind, other in sets.items() if other is not None}
    on_progress = settings.progress("reading", pairs.size)
    train = stats.collect_stats(pairs, settings.max_length, settings.encoder, settings.examples, on_progress)
    if not len(train) and not train.issues.counts:
        raise UserError(f"{format_paths(pairs.files)}: no sentence pairs")
    problems = find_problems(train, held_out)
    reasons = np.zeros(len(train), np.uint8)
    for number, kind in reversed(list(enumerate(REMOVAL_REASONS, 1))):
        if kind in problems.masks:
            reasons[problems.masks[kind]] = number
    limit = f"{settings.max_length:,} {'words' if settings.encoder is None else 'tokens'}"
    builder = FindingsBuilder(pairs, train, problems, held_out, settings.examples, limit)
    sides = (train.source.summary(), train.target.summary())
    kept = int(np.count_nonzero(reasons == 0))
    report = Report("pairs", len(train), kept, sides, builder.build(settings.progress))
    return CheckedPairs(report, reasons, train.starts, train.issues)


def _held_out(pairs: ParallelCorpus) -> HeldOut:
    collected = stats.collect_stats(pairs, 0, None, 1)
    for issues in collected.issues.first.values():
        raise UserError(issues[0].message)  # a score on part of a test set would be meaningless
    return HeldOut(pairs, collected)


def find_problems(train: stats.CorpusStats, held_out: Mapping[FindingKind, HeldOut]) -> PairProblems:
    """Determines which pairs have which problem."""
    rows, flags = train.rows, train.rows["flags"]
    usable = flags & (stats.EMPTY | stats.ONE_SIDED) == 0
    script = _wrong_script(train) & usable
    same = (flags & stats.SAME > 0) & ~script
    ratios = _length_ratios(rows, usable)
    masks: dict[FindingKind, Mask] = {
        "empty": flags & stats.EMPTY > 0,
        "one-sided": flags & stats.ONE_SIDED > 0,
        "script": script,
        "untranslated": same if same.sum() <= _COMMON * len(rows) else np.zeros_like(same),
        "length-ratio": _unusual_ratio(ratios, usable),
        "too-long": flags & stats.TOO_LONG > 0,
        "duplicate": stats.is_repeated(rows["pair_hash"]) & usable,
    }
    for kind, held in held_out.items():
        masks[kind] = np.isin(rows["source_hash"], held.collected.rows["source_hash"]) & usable
    return PairProblems(masks, usable, ratios)


def _wrong_script(train: stats.CorpusStats) -> Mask:
    wrong = np.zeros(len(train), bool)
    for scripts, flag, counts in (
        (train.rows["source_script"], stats.SOURCE_CLEAR, train.source),
        (train.rows["target_script"], stats.TARGET_CLEAR, train.target),
    ):
        if counts.script and len(train) >= _MIN_PAIRS:
            wrong |= (scripts != counts.script) & (train.rows["flags"] & flag > 0)
    return wrong


def _length_ratios(rows: stats.RowArray, usable: Mask) -> NDArray[np.float32]:
    """Returns the log length ratio of each pair minus the corpus median; 0 if a side is empty."""
    ratios = np.log(rows["target_length"].astype(np.float32) + _LENGTH_OFFSET)
    ratios -= np.log(rows["source_length"].astype(np.float32) + _LENGTH_OFFSET)
    if usable.any():
        ratios -= np.median(ratios[usable])
    ratios[~usable] = 0
    return ratios


def _unusual_ratio(ratios: NDArray[np.float32], usable: Mask) -> Mask:
    if usable.sum() < _MIN_PAIRS:
        return np.zeros(len(ratios), bool)
    deviations = np.abs(ratios)
    sigma = 1.48 * float(np.median(deviations[usable]))  # robust: from the median absolute deviation
    return deviations > max(float(np.log(_MAX_FACTOR)), _MAX_SIGMAS * sigma)
