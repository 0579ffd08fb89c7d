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
LEVELS: Mapping[FindingKind, Level] = {
    "line-count": "error", "encoding": "error", "malformed": "error", "column": "warning", "misaligned": "warning",
    "empty": "warning", "one-sided": "warning", "script": "warning", "untranslated": "warning",
    "length-ratio": "warning", "too-long": "warning", "duplicate": "warning", "multiple-translations": "note",
    "valid": "warning", "test": "warning", "missing": "error", "unreadable": "error",
}  # fmt: skip

TITLES: Mapping[FindingKind, str] = {
    "line-count": "different numbers of lines",
    "encoding": "lines that are not UTF-8",
    "malformed": "malformed rows",
    "column": "columns that are not text",
    "misaligned": "misaligned files",
    "empty": "both sides empty",
    "one-sided": "one side empty",
    "script": "wrong script",
    "untranslated": "same text on both sides",
    "length-ratio": "unusual length ratio",
    "too-long": "too long for the model",
    "duplicate": "duplicate pairs",
    "multiple-translations": "sources with several translations",
    "valid": "validation sentences in the training data",
    "test": "test sentences in the training data",
    "missing": "missing files",
    "unreadable": "files that cannot be read",
}


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
        return LEVELS[self.kind]

    @property
    def share(self) -> float:
        return self.count / self.total if self.total else 0.0


@dataclass(frozen=True)
class SideSummary:
    """The statistics of one side of the pairs, or of a plain text."""

    name: str
    files: tuple[str, ...]
    sentences: int
    words: int
    characters: int
    tokens: int | None
    max_words: int  # in one sentence
    script: str  # of at least 80% of the sentences, else "mixed"


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
    return {
        "format": 1,
        "trainable": report.trainable,
        "unit": report.unit,
        "count": report.count,
        "kept": report.kept,
        "sides": [asdict(side) for side in report.sides],
        "findings": [{"kind": f.kind, "level": f.level, **asdict(f)} for f in report.findings],
    }


def summary(report: Report, max_findings: int = 4) -> str:
    """Formats a report in two to six lines, printed at the start of training."""
    sides = "; ".join(f"{side.words:,} words {side.name} ({side.script})" for side in report.sides)
    head = f"data: {report.count:,} {report.unit}; {sides}"
    findings = report.found("error", "warning")
    if not findings:
        return f"{head}\ndata: no problems found"
    lines = [f"  {_mark(finding)} {finding.title}: {_amount(finding)}" for finding in findings]
    if len(lines) > max_findings:
        lines[max_findings - 1 :] = [f"  and {len(lines) - max_findings + 1} more kinds of problems"]
    remedy = "examples and a cleaned copy" if report.can_be_cleaned else "examples"
    return "\n".join([head, *lines, f'  run "seq2see data check" on these files for {remedy}'])


def _mark(finding: Finding) -> str:
    return "✗" if finding.level == "error" else "!"


def _amount(finding: Finding) -> str:
    first = f", first at {location(finding.examples[0])}" if finding.examples else ""
    return f"{finding.count:,}{percent(finding)}{first}"


def percent(finding: Finding) -> str:
    """Formats the share as ` (4.2%)`; empty for findings about whole files."""
    if finding.total <= 1 or finding.kind in ("line-count", "column", "misaligned"):
        return ""
    return f" ({finding.share:.1%})" if finding.share >= 0.0005 else " (< 0.1%)"


def location(example: Example) -> str:
    return f"{Path(example.file).name}:{example.line}"
