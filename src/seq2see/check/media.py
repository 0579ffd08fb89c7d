"""The data check for pictures and sounds: missing and unreadable files, missing texts, duplicates, leaks.

Files are the same if their content is, wherever they lie. Training compares paths instead, because it reads every file later.
"""

import hashlib
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Literal

from seq2see.check.findings import issue_example
from seq2see.check.pairs import DEFAULTS, CheckSettings
from seq2see.check.report import TITLES, Example, Finding, FindingKind, Report
from seq2see.check.statistics import collect_stats
from seq2see.data.corpus import ParallelCorpus
from seq2see.data.formats.lines import LENIENT
from seq2see.data.formats.tabular import SentencePair

Problem = tuple[FindingKind, str]  # and a note
_READ_ISSUES: tuple[Literal["encoding", "malformed", "missing"], ...] = ("encoding", "malformed", "missing")


@dataclass(frozen=True)
class FileCheck:
    """Decodes a file to find its problem, if it has one; `limit` says how long it may be, and for which model."""

    problem: Callable[[str], Problem | None]
    limit: str


@dataclass
class _Problems:
    """Counts each kind of problem, and keeps the first few examples."""

    max_examples: int
    counts: Counter[FindingKind] = field(default_factory=Counter)
    examples: dict[FindingKind, list[Example]] = field(default_factory=dict)

    def add(self, kind: FindingKind, file: str, pair: SentencePair, note: str = "") -> None:
        self.counts[kind] += 1
        examples = self.examples.setdefault(kind, [])
        if len(examples) < self.max_examples:
            examples.append(Example(file, pair.line, pair.source, pair.target, note))

    def finding(self, kind: FindingKind, total: int, title: str = "") -> Finding:
        return Finding(kind, title or TITLES[kind], self.counts[kind], total, tuple(self.examples.get(kind, ())))


def check_media_pairs(
    pairs: ParallelCorpus, settings: CheckSettings = DEFAULTS, valid: ParallelCorpus | None = None,
    files: FileCheck | None = None,
) -> Report:  # fmt: skip
    """Checks every pair of a file and its text; with `files`, also reads every file."""
    stats = collect_stats(pairs, 0, None, settings.examples)
    identity: Callable[[str], str] = os.path.realpath if files is None else cache(_content)
    held_out = {identity(source): source for source, _ in valid or ()}
    advance = settings.progress("reading files", len(stats))
    problems, kept = _Problems(settings.examples), 0
    seen: dict[tuple[str, str], str] = {}
    for part in pairs.readers:
        rows = str(part.files[0]) if len(part.files) == 1 else ""  # of a list; a directory has a text for each file
        for pair in part.read(LENIENT):
            advance(1)
            file = identity(pair.source)
            found: list[Problem] = [("one-sided", "text empty")] if not pair.target.strip() else []
            if (file, pair.target) in seen:
                found.append(("duplicate", f"same as {seen[file, pair.target]}"))
            if file in held_out:
                found.append(("valid", f"same as {held_out[file]}"))
            if files is not None and (problem := files.problem(pair.source)):
                found.append(problem)
            for kind, note in found:
                problems.add(kind, rows or pair.source, pair, note)
            seen.setdefault((file, pair.target), pair.source)
            kept += not found
    issues = stats.issues
    total = len(stats) + sum(issues.counts.values())
    findings = [
        Finding(kind, TITLES[kind], issues.counts[kind], total, tuple(map(issue_example, issues.first.get(kind, ()))))
        for kind in _READ_ISSUES
    ]
    if files is not None:
        findings += [problems.finding("unreadable", total)]
        findings += [problems.finding("too-long", total, f"too long for {files.limit}")]
    findings += [problems.finding("one-sided", total), problems.finding("duplicate", total)]
    findings += [problems.finding("valid", total, "validation files in the training data")] if valid else []
    return Report("pairs", len(stats), kept, (stats.target.summary(),), tuple(findings))


def _content(path: str) -> str:
    """Returns the hash of a file's bytes, or its path if it cannot be read."""
    try:
        with Path(path).open("rb") as file:
            return hashlib.file_digest(file, "blake2b").hexdigest()
    except OSError:
        return os.path.realpath(path)
