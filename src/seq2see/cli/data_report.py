"""Prints a data report in the terminal: statistics, then the problems found with examples, then the checks passed.

The files are untrusted, so control characters are escaped; long sentences are truncated by display width, never inside
a grapheme.
"""

import unicodedata
from collections.abc import Iterator
from pathlib import Path

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from seq2see.check.fix import CleanedCopy
from seq2see.check.report import TITLES, Example, Finding, Report, percent
from seq2see.data.token_spans import grapheme_boundaries

_MARKS = {"error": ("✗", "bold red"), "warning": ("!", "bold yellow"), "note": ("·", "bold cyan")}
_JOINERS = "\u200c\u200d"
_WHITESPACE = {"\n": "↵", "\t": "⇥", "\r": "␍"}


def print_report(report: Report, cleaned: CleanedCopy | None, console: Console) -> None:
    console.print(Padding(_statistics(report), (0, 0, 0, 1), expand=False))
    found = sorted(report.found("error", "warning", "note"), key=lambda finding: list(_MARKS).index(finding.level))
    for line in _format_findings(found, report, console.width):
        console.print(line, soft_wrap=True)
    passed = [finding.title for finding in report.findings if not finding.count]
    if passed:
        console.print(Padding(Text(f"✓ not found: {', '.join(passed)}", style="green"), (0, 0, 1, 1)))
    for line in [_verdict(report)] if cleaned is None else _format_copy(report, cleaned):
        console.print(Text(" ").append(line), soft_wrap=True)


def _statistics(report: Report) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="dim")
    table.add_column("", overflow="fold")
    units = ["documents", "lines"] if report.unit == "documents" else ["sentences"]
    has_tokens = any(side.tokens is not None for side in report.sides)
    for name in [*units, "words", "characters", *["tokens"] * has_tokens]:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("script", no_wrap=True)
    for side in report.sides:
        files = Path(side.files[0]).name + (f" +{len(side.files) - 1}" if len(side.files) > 1 else "")
        documents = [report.count] if report.unit == "documents" else []
        numbers = [*documents, side.sentences, side.words, side.characters, *[side.tokens or 0] * has_tokens]
        label = Text(side.name, style="bold").append(f" {escape_controls(files)}", style="not bold")
        table.add_row(label, *(f"{number:,}" for number in numbers), side.script)
    return table


def _format_findings(findings: list[Finding], report: Report, width: int) -> Iterator[Text]:
    """Yields one line per finding (mark, count, title), followed by its examples (line number, text).

    Not a rich table: it pads lines with spaces, which overflow in terminals that render Devanagari wider than rich
    assumes.
    """
    lines = [f"line {example.line:,}" for finding in findings for example in finding.examples]
    margin = max(map(len, [*lines, *(f"{finding.count:,}" for finding in findings)]), default=0)
    main_files = report.sides[0].files
    for finding in findings:
        mark, style = _MARKS[finding.level]
        count = Text(f" {mark}  {finding.count:>{margin},}  ", style=style)
        yield count.append(finding.title, style="bold default").append(percent(finding), style="dim not bold default")
        for example in finding.examples:
            label = f"line {example.line:,}".rjust(margin)
            for text in _format_example(example, main_files != (example.file,), width - margin - 6):
                yield Text(f"    {label}  ", style="dim").append(text)
                label = " " * margin
        yield Text()


def _format_example(example: Example, with_file: bool, width: int) -> list[Text]:
    file = f"{Path(example.file).name}: " if with_file else ""
    note = Text(escape_controls(file + example.note).removesuffix(": "), style="italic")
    sides = (truncate_to_width(escape_controls(text), width) for text in (example.source, example.target))
    texts = [Text(text, style="not dim") for text in sides if text.strip()]
    if note and texts and display_width(texts[0].plain) + 3 + display_width(note.plain) <= width:
        return [texts[0].append("   ").append(note), *texts[1:]]
    return [*texts, note] if note or not texts else texts


def _verdict(report: Report) -> Text:
    if not report.trainable:
        errors = report.found("error")
        reason = errors[0].title if errors else f"no usable {report.unit}"
        return Text(f"Cannot train on this data: {reason}.", style="bold red")
    if report.kept < report.count and report.can_be_cleaned:
        text = f"Training is possible; --fix DIRECTORY would keep {report.kept:,} of {report.count:,} {report.unit}."
        return Text(text, style="bold")
    if report.found("warning"):
        return Text("Training is possible, but see the warnings above.", style="bold")
    return Text("No problems found: ready for training.", style="bold green")


def _format_copy(report: Report, cleaned: CleanedCopy) -> Iterator[Text]:
    margin = len(f"{max(cleaned.kept, *cleaned.removed.values(), 0):,}")
    yield Text(f"{cleaned.kept:,}".rjust(margin), style="bold green").append(f"  {report.unit} kept", style="default")
    for file in cleaned.files[:6]:
        yield Text(f"{'':{margin}}  {escape_controls(str(file))}")
    if len(cleaned.files) > 6:
        yield Text(f"{'':{margin}}  and {len(cleaned.files) - 6:,} more files")
    for kind, count in cleaned.removed.items():
        yield Text(f"{count:>{margin},}", style="bold yellow").append(
            f"  removed: {TITLES[kind]}", style="not bold default"
        )


def escape_controls(text: str) -> str:
    """Makes text safe for a terminal: control characters as code points, line breaks and tabs as arrows."""
    if text.isprintable():
        return text
    return "".join(_escape_character(character) for character in text)


def _escape_character(character: str) -> str:
    if character.isprintable() or character in _JOINERS or unicodedata.category(character) == "Zs":
        return character
    return _WHITESPACE.get(character) or f"⟨U+{ord(character):04X}⟩"


def truncate_to_width(text: str, width: int) -> str:
    """Truncates text to a display width, between graphemes, with `…` for the rest."""
    if len(text) <= 8 * width and display_width(text) <= width:
        return text
    text = text[: 8 * width]
    best = 0
    for end in sorted(grapheme_boundaries(text)):
        if display_width(text[:end]) > width - 1:
            break
        best = end
    return text[:best].rstrip() + "…"


def display_width(text: str) -> int:
    """Returns the cells that a terminal may need: some give vowel signs such as ा their own cell, unlike rich."""
    return cell_len(text) + sum(unicodedata.category(character) == "Mc" for character in text)
