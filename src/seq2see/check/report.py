"""The result of a data check: statistics for each side, and findings with examples.

A report is plain data. The command line prints it as a table, `to_json` serves programs, and `summary` formats the few
lines that training prints at its start.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

FindingKind = Literal[
    "line-count", "encoding", "malformed", "column", "misaligned", "empty", "one-sided", "script", "untranslated",
    "length-ratio", "too-long", "duplicate", "multiple-translations", "valid", "test", "missing", "unreadable",
]  # fmt: skip
Level = Literal["error", "warning", "note"]

# An error prevents training, a warning costs quality, a note is for information only.
KINDS: Mapping[FindingKind, tuple[Level, str]] = {
    "line-count": ("error", "different numbers of lines"),
    "encoding": ("error", "lines that are not UTF-8"),
    "malformed": ("error", "malformed rows"),
    "column": ("warning", "columns that are not text"),
    "misaligned": ("warning", "misaligned files"),
    "empty": ("warning", "both sides empty"),
    "one-sided": ("warning", "one side empty"),
    "script": ("warning", "wrong script"),
    "untranslated": ("warning", "same text on both sides"),
    "length-ratio": ("warning", "unusual length ratio"),
    "too-long": ("warning", "too long for the model"),
    "duplicate": ("warning", "duplicate pairs"),
    "multiple-translations": ("note", "sources with several translations"),
    "valid": ("warning", "validation sentences in the training data"),
    "test": ("warning", "test sentences in the training data"),
    "missing": ("error", "missing files"),
    "unreadable": ("error", "files that cannot be read"),
}
TITLES = {kind: title for kind, (_, title) in KINDS.items()}


@dataclass(frozen=True)
class Example:
    """One place in the files; `note` says what is wrong there."""

    file: str
    line: int
    source: str = ""
    target: str = ""
    note: str = ""


@dataclass(frozen=True)
class Finding:
    """The result of one check: `count` of `total` items have the problem."""

    kind: FindingKind
    title: str
    count: int
    total: int
    examples: tuple[Example, ...] = ()

    @property
    def level(self) -> Level:
        return KINDS[self.kind][0]

    @property
    def share(self) -> float:
        return self.count / self.total if self.total else 0.0


@dataclass
class SideSummary:
    """The statistics of one side of the pairs, or of a plain text."""

    name: str
    files: tuple[str, ...]
    sentences: int = 0  # of a text: lines
    words: int = 0
    characters: int = 0
    tokens: int | None = None
    max_words: int = 0  # in one sentence
    script: str = "none"  # of at least 80% of the sentences, else "mixed"


@dataclass(frozen=True)
class Report:
    """All results of a data check; `kept` is the number of pairs or documents in a cleaned copy."""

    unit: Literal["pairs", "documents"]
    count: int
    kept: int
    sides: tuple[SideSummary, ...]
    findings: tuple[Finding, ...]

    @property
    def can_be_cleaned(self) -> bool:
        """Whether a cleaned copy can be written: not of pictures and sounds, which have numbers of their texts alone."""
        return self.unit == "documents" or len(self.sides) == 2

    @property
    def trainable(self) -> bool:
        return self.kept > 0 and not any(f.count for f in self.findings if f.level == "error")

    def found(self, *levels: Level) -> list[Finding]:
        """Returns the problems of these levels that were found."""
        return [finding for finding in self.findings if finding.count and finding.level in levels]


def to_json(report: Report) -> dict[str, Any]:
    findings = [{"level": finding.level, **asdict(finding)} for finding in report.findings]
    return {"format": 1, "trainable": report.trainable, **asdict(report), "findings": findings}


def summary(report: Report, max_findings: int = 4) -> str:
    """Formats a report in two to six lines, printed at the start of training."""
    sides = "; ".join(f"{side.words:,} words {side.name} ({side.script})" for side in report.sides)
    head = f"data: {report.count:,} {report.unit}; {sides}"
    findings = report.found("error", "warning")
    if not findings:
        return f"{head}\ndata: no problems found"
    lines = list(map(_line, findings))
    if len(lines) > max_findings:
        lines[max_findings - 1 :] = [f"  and {len(lines) - max_findings + 1} more kinds of problems"]
    remedy = "examples and a cleaned copy" if report.can_be_cleaned else "examples"
    return "\n".join([head, *lines, f'  run "seq2see data check" on these files for {remedy}'])


def _line(finding: Finding) -> str:
    mark = "✗" if finding.level == "error" else "!"
    first = next((f", first at {Path(example.file).name}:{example.line}" for example in finding.examples), "")
    return f"  {mark} {finding.title}: {finding.count:,}{percent(finding)}{first}"


def percent(finding: Finding) -> str:
    """Formats the share as ` (4.2%)`; empty for findings about whole files."""
    if finding.total <= 1 or finding.kind in ("line-count", "column", "misaligned"):
        return ""
    return f" ({finding.share:.1%})" if finding.share >= 0.0005 else " (< 0.1%)"
