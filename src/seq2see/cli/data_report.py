"""A data report in the terminal: the figures, then what was found with examples, then what was not.

Text comes from strangers' files, so control characters are shown rather than obeyed, and a long sentence is cut by the
cells it takes on the screen, never inside a letter.
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

from seq2see.text.check.fix import Cleaned
from seq2see.text.check.report import TITLES, Example, Finding, Report, percent
from seq2see.text.token_spans import cut_points

_MARKS = {"error": ("✗", "bold red"), "warning": ("!", "bold yellow"), "note": ("·", "bold cyan")}
_JOINERS = "\u200c\u200d"
_WHITE = {"\n": "↵", "\t": "⇥", "\r": "␍"}


def draw(report: Report, cleaned: Cleaned | None, console: Console) -> None:
    console.print(Padding(_figures(report), (0, 0, 0, 1), expand=False))
    found = sorted(report.found("error", "warning", "note"), key=lambda finding: list(_MARKS).index(finding.level))
    for line in _found(found, report, console.width):
        console.print(line, soft_wrap=True)
    absent = [finding.title for finding in report.findings if not finding.count]
    if absent:
        console.print(Padding(Text(f"✓ none of: {', '.join(absent)}", style="green"), (0, 0, 1, 1)))
    for line in [_verdict(report)] if cleaned is None else _kept(report, cleaned):
        console.print(Text(" ").append(line), soft_wrap=True)


def _figures(report: Report) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="dim")
    table.add_column("", overflow="fold")
    numbers = ["documents", "lines"] if report.unit == "documents" else ["sentences"]
    counted = any(side.tokens is not None for side in report.sides)
    for name in [*numbers, "words", "characters", *["tokens"] * counted]:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("script", no_wrap=True)
    for side in report.sides:
        files = Path(side.files[0]).name + (f" +{len(side.files) - 1}" if len(side.files) > 1 else "")
        documents = [report.count] if report.unit == "documents" else []
        figures = [*documents, side.sentences, side.words, side.characters, *[side.tokens or 0] * counted]
        label = Text(side.name, style="bold").append(f" {shown(files)}", style="not bold")
        table.add_row(label, *(f"{figure:,}" for figure in figures), side.script)
    return table


def _found(findings: list[Finding], report: Report, width: int) -> Iterator[Text]:
    """Marks, counts or line numbers, and text: a line a finding, and under it its examples.

    Not a table of rich's: that fills up lines with spaces, and where the terminal finds Devanagari wider than rich
    does, they run over.
    """
    lines = [f"line {example.line:,}" for finding in findings for example in finding.examples]
    margin = max(map(len, [*lines, *(f"{finding.count:,}" for finding in findings)]), default=0)
    usual = report.sides[0].files
    for finding in findings:
        mark, style = _MARKS[finding.level]
        count = Text(f" {mark}  {finding.count:>{margin},}  ", style=style)
        yield count.append(finding.title, style="bold default").append(percent(finding), style="dim not bold default")
        for example in finding.examples:
            place = f"line {example.line:,}".rjust(margin)
            for text in _example(example, usual != (example.file,), width - margin - 6):
                yield Text(f"    {place}  ", style="dim").append(text)
                place = " " * margin
        yield Text()


def _example(example: Example, named: bool, width: int) -> list[Text]:
    where = f"{Path(example.file).name}: " if named else ""
    note = shown(where + example.note).removesuffix(": ")
    texts = [Text(shorten(shown(text), width), style="not dim") for text in (example.source, example.target)]
    texts = [text for text in texts if text.plain.strip()]
    remark = Text(note, style="italic")
    if note and texts and cells(texts[0].plain) + 3 + cells(note) <= width:
        return [texts[0].append("   ").append(remark), *texts[1:]]
    return [*texts, remark] if note or not texts else texts


def _verdict(report: Report) -> Text:
    if not report.trainable:
        errors = report.found("error")
        what = errors[0].title if errors else "nothing usable is left"
        return Text(f"Training on this is impossible: {what}.", style="bold red")
    if report.left < report.count:
        text = f"Training is possible; --fix OUT would keep {report.left:,} of {report.count:,} {report.unit}."
        return Text(text, style="bold")
    if report.found("warning"):
        return Text("Training is possible, with the doubts above.", style="bold")
    return Text("Fit for training.", style="bold green")


def _kept(report: Report, cleaned: Cleaned) -> Iterator[Text]:
    margin = len(f"{max(cleaned.kept, *cleaned.gone.values(), 0):,}")
    yield Text(f"{cleaned.kept:,}".rjust(margin), style="bold green").append(f"  {report.unit} kept", style="default")
    for file in cleaned.files[:6]:
        yield Text(f"{'':{margin}}  {shown(str(file))}")
    if len(cleaned.files) > 6:
        yield Text(f"{'':{margin}}  and {len(cleaned.files) - 6:,} more files")
    for kind, count in cleaned.gone.items():
        yield Text(f"{count:>{margin},}", style="bold yellow").append(
            f"  gone: {TITLES[kind]}", style="not bold default"
        )


def shown(text: str) -> str:
    """Text that a terminal cannot take for commands: control characters by name, line breaks and tabs as arrows."""
    if text.isprintable():
        return text
    return "".join(_visible(character) for character in text)


def _visible(character: str) -> str:
    if character.isprintable() or character in _JOINERS or unicodedata.category(character) == "Zs":
        return character
    return _WHITE.get(character) or f"⟨U+{ord(character):04X}⟩"


def shorten(text: str, width: int) -> str:
    """As much of the text as fits into so many cells, cut between letters, with `…` for the rest."""
    if len(text) <= 8 * width and cells(text) <= width:
        return text
    text = text[: 8 * width]
    best = 0
    for end in sorted(cut_points(text)):
        if cells(text[:end]) > width - 1:
            break
        best = end
    return text[:best].rstrip() + "…"


def cells(text: str) -> int:
    """The cells that a terminal may need: some give vowel signs such as ा one of their own, which rich does not."""
    return cell_len(text) + sum(unicodedata.category(character) == "Mc" for character in text)
