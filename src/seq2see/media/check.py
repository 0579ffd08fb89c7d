"""The data check for pictures and sounds: missing and unreadable files, missing texts, duplicates, leaks."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

from seq2see.errors import UserError
from seq2see.media.reader import MediaReader
from seq2see.text.check.findings import issue_example
from seq2see.text.check.pairs import DEFAULTS, CheckSettings
from seq2see.text.check.report import TITLES, Example, Finding, FindingKind, Report
from seq2see.text.check.statistics import collect_stats
from seq2see.text.corpus import ParallelCorpus
from seq2see.text.formats.lines import LENIENT
from seq2see.text.formats.tabular import SentencePair

_Problem = tuple[FindingKind, str]  # and a note
_READ_ISSUES: tuple[Literal["encoding", "malformed", "missing"], ...] = ("encoding", "malformed", "missing")


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


def check_media(
    pairs: ParallelCorpus, reader: MediaReader | None = None, settings: CheckSettings = DEFAULTS,
    valid: ParallelCorpus | None = None, test: ParallelCorpus | None = None,
) -> Report:  # fmt: skip
    """Checks every pair of a file and its text; with a reader, also decodes every file."""
    stats = collect_stats(pairs, 0, None, settings.examples)
    sets: dict[FindingKind, ParallelCorpus | None] = {"valid": valid, "test": test}
    held_out = {kind: {source for source, _ in other} for kind, other in sets.items() if other is not None}
    advance = settings.progress("reading files", len(stats))
    problems, seen, kept = _Problems(settings.examples), set(), 0
    for part in pairs.readers:
        for pair in part.read(LENIENT):
            advance(1)
            found: list[_Problem] = [("one-sided", "text empty")] if not pair.target.strip() else []
            found += [("duplicate", "")] if pair[:2] in seen else []
            found += [(kind, "") for kind, sources in held_out.items() if pair.source in sources]
            found += _decoding_problem(pair.source, reader) if reader is not None else []
            for kind, note in found:
                problems.add(kind, str(part.files[0]), pair, note)
            seen.add(pair[:2])
            kept += not found
    issues = stats.issues
    total = len(stats) + sum(issues.counts.values())
    findings = [
        Finding(kind, TITLES[kind], issues.counts[kind], total, tuple(map(issue_example, issues.first.get(kind, ()))))
        for kind in _READ_ISSUES
    ]
    kinds: list[FindingKind] = ["unreadable", "too-long"] if reader is not None else []
    findings += [
        Finding(kind, TITLES[kind], problems.counts[kind], total, tuple(problems.examples.get(kind, ())))
        for kind in (*kinds, "one-sided", "duplicate", *held_out)
    ]
    return Report("pairs", len(stats), kept, (stats.target.summary(),), tuple(findings))


def _decoding_problem(path: str, reader: MediaReader) -> list[_Problem]:
    try:
        windows = reader.windows(path)
    except UserError as error:
        return [("unreadable", str(error))]
    limit = reader.config.actual_max_source_positions
    too_long = len(windows) > 1 or len(windows[0]) > limit
    return [("too-long", f"{sum(map(len, windows)):,} tokens, at most {limit:,}")] if too_long else []
