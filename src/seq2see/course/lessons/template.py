"""Reads a lesson.md: TOML front matter, then Markdown with named values, which is filled in (jinja2) and read into a document.

    ## Look at         a paragraph, then the picture: tables, bars, heat maps
    ## Numbers         paragraphs and tables: the few numbers that make the point
    ## Takeaway        a paragraph
    ## More            a section, folded away, for each ### heading
    ## Try             - a list; `name=value` changes a setting, `--option` stands for itself
    ## In the library  a block of code, `the file`, and [links](#/view?key=value) into the page
    ## In the notes    a paragraph for each remark, which begins with **the document:**
    ## Figure          what is drawn into a file; without it, the picture
    ## Exercises       question, {{ answer(…) }}, explanation

Values are inserted as text: whatever a reader types into a setting, it cannot become a heading or a table.
"""

import json
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Undefined, pass_context
from jinja2.filters import make_attrgetter
from jinja2.runtime import Context

from seq2see.course.lessons.document import (
    Bars,
    HeatMap,
    LessonText,
    Library,
    Line,
    Lines,
    Note,
    Part,
    Section,
    Table,
    Try,
    ViewLink,
    format_small,
    format_vector,
)
from seq2see.course.lessons.exercises import Exercise

FOLDER = Path(__file__).parent
Parts = list[Any]  # the tables, pictures and answers of a text, in their order
MARK = "\ue000"  # around the index of one
# Characters of values that could be read as Markdown are others, of private use, until the structure is known.
HIDDEN = {ord(letter): 0xE001 + i for i, letter in enumerate("\n#|`[]*-")}
SHOWN = {code: letter for letter, code in HIDDEN.items()}
LONE_TAG = re.compile(r"^[ \t]*({%(?:(?!%}).)*%})[ \t]*\n", re.MULTILINE)  # a line that is only {% if … %} is no line


@cache
def front_matter(name: str) -> dict[str, Any]:
    """The title, question and ideas of a lesson."""
    return tomllib.loads(_source(name)[0])


def fill_in(name: str, values: Mapping[str, object]) -> LessonText:
    """Returns the document of a lesson with these values."""
    parts: Parts = []
    text = _render(name, _source(name)[1], values, parts)
    sections = {title: _Section(body, parts) for title, body in _split(text, "##")}
    look, *picture = sections["Look at"].blocks()
    (takeaway,) = sections["Takeaway"].blocks()
    more, tries, notes, figure = (
        sections.get(t, _Section("", parts)) for t in ("More", "Try", "In the notes", "Figure")
    )
    return LessonText(
        look=look,
        picture=tuple(picture),
        body=sections["Numbers"].blocks(),
        takeaway=takeaway,
        library=_library(sections["In the library"].text),
        more=tuple(Section(_shown(title), _Section(body, parts).blocks()) for title, body in _split(more.text, "###")),
        tries=tuple(_try(each) for each in re.split(r"^- ", tries.text, flags=re.MULTILINE)[1:]),
        notes=tuple(_note(each) for each in notes.blocks()),
        figure=figure.blocks(),
    )


def read_exercises(name: str, values: Mapping[str, object]) -> tuple[Exercise, ...]:
    parts: Parts = []
    blocks = _Section(_render(name, _source(name)[2], values, parts), parts).blocks()
    threes = zip(blocks[::3], blocks[1::3], blocks[2::3], strict=True)
    return tuple(
        replace(answer, question=question, explanation=explanation) for question, answer, explanation in threes
    )


@cache
def _source(name: str) -> tuple[str, str, str]:
    """Returns the front matter, the text and the exercises."""
    source = (FOLDER / name / "lesson.md").read_text(encoding="utf-8")
    _, matter, text = source.split("+++\n", 2)
    text, _, exercises = text.partition("\n## Exercises\n")
    return matter, text, exercises


# Filling in


def _render(name: str, source: str, values: Mapping[str, object], parts: Parts) -> str:
    try:
        return _environment().from_string(LONE_TAG.sub(r"\1", source)).render({**values, "parts": parts})
    except Exception as error:
        error.add_note(f"while filling in {FOLDER / name / 'lesson.md'}")
        raise


@cache
def _environment() -> Environment:
    environment = Environment(
        undefined=StrictUndefined,
        finalize=_insert,
        loader=FileSystemLoader(FOLDER),
    )
    environment.globals |= {
        "table": table, "matrix": matrix, "bars": bars, "heat_map": heat_map, "lines": lines, "answer": answer, "zip": zip
    }  # fmt: skip
    environment.filters |= {
        "fixed": lambda number, decimals=2: _minus(f"{+number:.{decimals}f}"),
        "percent": lambda number, decimals=0: _minus(f"{+number:.{decimals}%}"),
        "thousands": lambda number: f"{+number:,}",  # the sign makes an undefined value say its name
        "as": lambda value, spec: format(value, spec),
        "vector": format_vector,
        "small": format_small,
        "groups": lambda items, name, bars: pick_groups(environment, items, name, bars),
        "columns": lambda items, *names: pick_columns(environment, items, names),
    }
    return environment


@pass_context
def _insert(context: Context, value: object) -> object:
    """Inserts a value where the template has {{ value }}."""
    if isinstance(value, (Table, Bars, HeatMap, Lines, Exercise)):
        parts: Parts = context["parts"]
        parts.append(value)
        return f"\n\n{MARK}{len(parts) - 1}{MARK}\n\n"
    if isinstance(value, float):
        raise TypeError(f"{value} needs a filter that says how it is rounded, such as fixed")
    return value.translate(HIDDEN) if isinstance(value, str) else value


def _minus(text: str) -> str:
    return text.replace("-", "−")


def pick_columns(
    environment: Environment, items: Iterable[object], names: Sequence[str | int]
) -> list[tuple[Any, ...]]:
    """Picks attributes or items of each object: `runs|columns("name", "accuracy:.0%", "weights.0:vector")`.

    A format or the name of a filter makes a text of the cell, and so do braces: "{0.width} → {0.inner:,}".
    """

    def getter(name: str) -> Callable[[object], Any]:
        if "{" in name:
            return name.format
        path, _, spec = name.partition(":")
        get, show = make_attrgetter(environment, path), environment.filters.get(spec)
        return (lambda item: show(get(item))) if show else (lambda item: format(get(item), spec)) if spec else get

    getters = [getter(str(name)) for name in names]
    found = [tuple(get(item) for get in getters) for item in items]
    if any(isinstance(cell, Undefined) for row in found for cell in row):
        raise AttributeError(f"an object lacks one of {', '.join(map(str, names))}")
    return found


def pick_groups(
    environment: Environment, items: Iterable[object], name: str, bars: Mapping[str, str]
) -> list[tuple[str, list[tuple[str, Any]]]]:
    """Groups of bars, one for each object: `runs|groups("{0.length} words", {"at first": "before", "now": "after"})`."""
    getters = [(bar, make_attrgetter(environment, attribute)) for bar, attribute in bars.items()]
    return [(name.format(item), [(bar, get(item)) for bar, get in getters]) for item in items]


def table(
    columns: Sequence[str | Sequence[str]],
    rows: Iterable[Sequence[Any]],
    caption: str = "",
    decimals: int = 2,
    shaded: bool = False,
    bold_rows: Iterable[int] = (),
) -> Table:
    """A table; a list among the headings stands for several."""
    headings = [name for each in columns for name in ([each] if isinstance(each, str) else each)]
    return Table(tuple(headings), tuple(map(tuple, rows)), caption, decimals, shaded, tuple(bold_rows))


def matrix(
    values: Sequence[Sequence[float]],
    rows: Sequence[str],
    columns: Sequence[str],
    caption: str = "",
    decimals: int = 2,
    shaded: bool = False,
) -> Table:
    """A table of numbers with a label for each row and column."""
    body = [(label, *row) for label, row in zip(rows, values, strict=True)]
    return table(("", *columns), body, caption, decimals, shaded)


Pairs = Mapping[str, Any] | Iterable[tuple[str, Any]]


def _pairs(pairs: Pairs) -> list[tuple[str, Any]]:
    return list(pairs.items() if isinstance(pairs, Mapping) else pairs)


def bars(title: str, groups: Pairs, maximum: float | None = None) -> Bars:
    """Named bars in named groups."""
    return Bars(title, tuple((name, tuple(map(tuple, _pairs(group)))) for name, group in _pairs(groups)), maximum)


def heat_map(
    title: str,
    values: Sequence[Sequence[float]],
    rows: Sequence[str],
    columns: Sequence[str] = (),
    signed: bool = False,
) -> HeatMap:
    return HeatMap(title, tuple(rows), tuple(columns), tuple(map(tuple, values)), signed)


def lines(
    title: str,
    x: str,
    y: str,
    lines: Iterable[Sequence[Any]],
    log: str = "",
    level: tuple[float, str] | None = None,
    ticks: Sequence[str] = (),
) -> Lines:
    """Curves, each a name, points, and perhaps a style such as "orange dotted"."""
    found = (Line(name, tuple(map(tuple, points)), *style) for name, points, *style in lines)
    return Lines(title, x, y, tuple(found), log, level, tuple(ticks))


def answer(value: float | str, choices: Sequence[str] = (), tolerance: float = 0.01) -> Exercise:
    """The answer of an exercise; the text before it is the question, the text after it the explanation."""
    return Exercise("", value, "", tuple(choices), tolerance)


# Reading


def _split(text: str, marks: str) -> list[tuple[str, str]]:
    """Splits at the headings of one level, into titles and what follows."""
    _, *pieces = re.split(rf"^{marks} (.*)\n", text, flags=re.MULTILINE)
    return list(zip(pieces[::2], pieces[1::2], strict=True))


def _shown(text: str) -> str:
    return text.translate(SHOWN)


class _Section:
    """The text below a heading."""

    def __init__(self, text: str, parts: Parts) -> None:
        self.text, self._parts = text, parts

    def blocks(self) -> tuple[Any, ...]:
        """Paragraphs, tables and pictures, in their order."""
        found: list[Part] = []
        for block in re.split(r"\n\s*\n", self.text):
            lines = [line.strip() for line in block.splitlines() if line.strip()]
            if lines and lines[0].startswith(MARK):
                found.append(self._parts[int(lines[0].strip(MARK))])
            elif lines:
                found.append(_paragraph(lines))
        return tuple(found)


def _paragraph(lines: Sequence[str]) -> str:
    """Joins lines; a backslash at the end of one keeps the break."""
    return _shown(" ".join(lines).replace("\\ ", "\n"))


def _try(text: str) -> Try:
    """Reads "A sentence of your own. `sentence=We are friends` `--seed 2`"."""
    words, *codes = re.split(r"\s*`([^`]*)`\s*", " ".join(text.split()))
    settings, options = {}, []
    for code in codes[::2]:
        if code.startswith("--"):
            options.append(code)
        else:
            name, _, value = code.partition("=")
            settings[name] = _value(value)
    return Try(_shown(words.strip()), settings, " ".join(options))


def _value(text: str) -> Any:
    try:
        return json.loads(_shown(text))
    except ValueError:
        return _shown(text)


def _library(text: str) -> Library:
    _, code, rest = re.split(r"^```\w*\n(.*?)\n```$", text, maxsplit=1, flags=re.MULTILINE | re.DOTALL)
    source = re.search(r"`([^`]*)`", rest)
    assert source is not None, rest
    links = tuple(_link(label, target) for label, target in re.findall(r"\[([^]]*)\]\(#/([^)]*)\)", rest))
    return Library(_shown(code), source[1], links)


def _link(label: str, target: str) -> ViewLink:
    view, _, query = _shown(target).partition("?")
    state = {key: int(value) if value.isdigit() else value for key, value in parse_qsl(query, keep_blank_values=True)}
    return ViewLink(_shown(label), view, state)


def _note(text: str) -> Note:
    _, document, remark = re.split(r"^\*\*(.*?):\*\*\s*", text, maxsplit=1)
    return Note(document, remark)
