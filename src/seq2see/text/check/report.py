"""What the data check has to say: figures for each side, and findings with their examples.

A report is plain data. The command line draws it as a table, `to_json` gives it to a program, and `summary` says it in
the few lines that training prints at its start.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

Kind = Literal[
    "unequal", "encoding", "malformed", "shifted", "empty", "one-sided", "script", "untranslated", "ratio", "long",
    "duplicate", "several", "valid", "test",
]  # fmt: skip
Level = Literal["error", "warning", "note"]

# An error stops the training, a warning costs quality, a note is only worth knowing.
LEVELS: Mapping[Kind, Level] = {
    "unequal": "error", "encoding": "error", "malformed": "error", "shifted": "warning", "empty": "warning",
    "one-sided": "warning", "script": "warning", "untranslated": "warning", "ratio": "warning", "long": "warning",
    "duplicate": "warning", "several": "note", "valid": "warning", "test": "warning",
}  # fmt: skip

TITLES: Mapping[Kind, str] = {
    "unequal": "files of unequal length",
    "encoding": "lines that are not UTF-8",
    "malformed": "rows that cannot be read",
    "shifted": "files out of step",
    "empty": "both sides empty",
    "one-sided": "one side empty",
    "script": "in the wrong script",
    "untranslated": "same text on both sides",
    "ratio": "lengths that do not match",
    "long": "too long for the model",
    "duplicate": "the same pair again",
    "several": "sources with several translations",
    "valid": "validation sentences in training",
    "test": "test sentences in training",
}


@dataclass(frozen=True)
class Example:
    """One place in the files; `note` is what is peculiar about it."""

    file: str
    line: int
    source: str = ""
    target: str = ""
    note: str = ""


@dataclass(frozen=True)
class Finding:
    """How often something was looked for and found: `count` times among `among`."""

    kind: Kind
    title: str
    count: int
    among: int
    examples: tuple[Example, ...] = ()

    @property
    def level(self) -> Level:
        return LEVELS[self.kind]

    @property
    def share(self) -> float:
        return self.count / self.among if self.among else 0.0


@dataclass(frozen=True)
class Side:
    """The figures of one side of the pairs, or of the whole of a plain text."""

    name: str
    files: tuple[str, ...]
    sentences: int
    words: int
    characters: int
    tokens: int | None
    longest: int
    script: str  # that of most sentences; "mixed" where none has four in five


@dataclass(frozen=True)
class Report:
    """All that was found; `left` is what a cleaned copy would keep."""

    unit: Literal["pairs", "documents"]
    count: int
    left: int
    sides: tuple[Side, ...]
    findings: tuple[Finding, ...]

    @property
    def trainable(self) -> bool:
        return self.left > 0 and not any(f.count for f in self.findings if f.level == "error")

    def found(self, *levels: Level) -> list[Finding]:
        return [finding for finding in self.findings if finding.count and finding.level in levels]


def to_json(report: Report) -> dict[str, Any]:
    return {
        "format": 1,
        "trainable": report.trainable,
        "unit": report.unit,
        "count": report.count,
        "left": report.left,
        "sides": [asdict(side) for side in report.sides],
        "findings": [
            {"kind": f.kind, "level": f.level, "title": f.title, "count": f.count, "among": f.among}
            | {"examples": [asdict(example) for example in f.examples]}
            for f in report.findings
        ],
    }


def summary(report: Report, most: int = 4) -> str:
    """Three to six lines for the start of a training."""
    sides = "; ".join(f"{side.words:,} words {side.name} ({side.script})" for side in report.sides)
    head = f"data: {report.count:,} {report.unit}; {sides}"
    findings = report.found("error", "warning")
    if not findings:
        return f"{head}\ndata: nothing to complain of"
    lines = [f"  {_mark(finding)} {finding.title}: {_amount(finding)}" for finding in findings]
    if len(lines) > most:
        lines[most - 1 :] = [f"  and {len(lines) - most + 1} more kinds of trouble"]
    return "\n".join([head, *lines, '  run "seq2see data check" on these files for examples and a cleaned copy'])


def _mark(finding: Finding) -> str:
    return "✗" if finding.level == "error" else "!"


def _amount(finding: Finding) -> str:
    where = f", the first at {place(finding.examples[0])}" if finding.examples else ""
    return f"{finding.count:,}{percent(finding)}{where}"


def percent(finding: Finding) -> str:
    """` (4.2%)`, where it says more than the count."""
    if finding.among <= 1 or finding.kind in ("unequal", "shifted"):
        return ""
    return f" ({finding.share:.1%})" if finding.share >= 0.0005 else " (< 0.1%)"


def place(example: Example) -> str:
    return f"{Path(example.file).name}:{example.line}"
