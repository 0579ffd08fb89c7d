"""The data check, of sentence pairs, of pictures and sounds with their texts, and of plain text.

One pass collects numbers for every item (`collect`), numpy assesses them all at once (`problems`), and a second pass fetches
the text of the examples (`findings`).
"""

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from seq2see.check.collect import CheckSettings, Collected, IssueLog, collect
from seq2see.check.findings import FindingsBuilder
from seq2see.check.problems import find_problems
from seq2see.check.report import FindingKind, Report, summary
from seq2see.data.corpus import Corpus, ParallelCorpus, format_paths
from seq2see.errors import ProgressFactory, UserError, no_progress

# Why an item is left out of a cleaned copy; if several apply, the first is reported.
REMOVAL_REASONS: tuple[FindingKind, ...] = (
    "unreadable",
    "empty",
    "one-sided",
    "script",
    "untranslated",
    "length-ratio",
    "too-long",
    "test",
    "valid",
    "duplicate",
)
DEFAULTS = CheckSettings()


@dataclass(frozen=True)
class Checked:
    """The report, and for each item its reason for removal as 1 + index in REMOVAL_REASONS, or 0."""

    report: Report
    reasons: NDArray[np.uint8]
    starts: tuple[int, ...]  # the items of reader i are reasons[starts[i] : starts[i + 1]]
    issues: IssueLog


def check_data(
    corpus: Corpus, settings: CheckSettings = DEFAULTS, valid: Corpus | None = None, test: Corpus | None = None
) -> Checked:
    """Checks every item, and whether the training data contains validation or test items.

    With a reader, pictures and sounds are decoded, and are the same if their content is; without one, if their paths are:
    training reads every file later.
    """
    identity = os.path.realpath if settings.reader is None else cache(content_hash)
    sets: dict[FindingKind, Corpus | None] = {"valid": valid, "test": test}
    held_out = {kind: _held_out(other, settings, identity) for kind, other in sets.items() if other is not None}
    train = collect(corpus, settings, identity)
    if not len(train.rows) and not train.issues.counts:
        missing = "text, only blank lines" if train.kind == "documents" else "sentence pairs"
        raise UserError(f"{format_paths(corpus.files)}: no {missing}")
    problems = find_problems(train, held_out, settings)
    reasons = np.zeros(len(train.rows), np.uint8)
    for number, kind in reversed(list(enumerate(REMOVAL_REASONS, 1))):
        if kind in problems.masks:
            reasons[problems.masks[kind]] = number
    findings = FindingsBuilder(train, problems, held_out, settings).build(corpus.size)
    sides = tuple(side.summary() for side in train.sides)
    report = Report(
        "documents" if train.kind == "documents" else "pairs",
        len(reasons),
        int(np.count_nonzero(reasons == 0)),
        sides,
        findings,
    )
    return Checked(report, reasons, train.starts, train.issues)


def _held_out(corpus: Corpus, settings: CheckSettings, identity: Callable[[str], str]) -> Collected:
    collected = collect(corpus, replace(settings, tokenizer=None, examples=1, progress=no_progress), identity)
    for issues in collected.issues.first.values():
        raise UserError(issues[0].message)  # a score on part of a test set would be meaningless
    return collected


def content_hash(path: str) -> str:
    """Returns the hash of a file's bytes, or its path if it cannot be read."""
    try:
        with Path(path).open("rb") as file:
            return hashlib.file_digest(file, "blake2b").hexdigest()
    except OSError:
        return os.path.realpath(path)


def check_training_pairs(
    pairs: ParallelCorpus, valid: ParallelCorpus | None, max_length: int, progress: ProgressFactory
) -> tuple[int, str]:
    """Returns the number of pairs and a summary; raises a UserError if they cannot be trained on."""
    report = check_data(pairs, CheckSettings(max_length, progress=progress), valid).report
    if not report.trainable:
        raise UserError(summary(report).replace("\n", "; "))
    return report.count, summary(report)
