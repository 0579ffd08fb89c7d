"""Twice the text takes about twice the steps, whatever it is: a document cannot keep a server busy for long."""

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import seq2see.formats
from seq2see.errors import no_progress
from seq2see.formats.documents import translate_content
from seq2see.formats.markup import take_out
from seq2see.formats.placeholders import PLACEHOLDER
from seq2see.translate import segmentation
from tests.fake_model import fake_translator
from tests.steps import RegexSteps, count_lines

MOST = 2.5  # times the steps for twice the length; a quadratic one takes 4 times
SIZE = 24  # repetitions; many enough that what is quadratic is seen

# What an attack repeats, and what it begins with.
REPEATED = [
    *(
        "<a>",
        "<a ",
        "<!",
        "<!--",
        '<a "',
        "<a '\"",
        "<script>",
        "</script ",
        "&a",
        "&#1",
        "{",
        "{{",
        "%(a",
        "%1",
        "www.",
        "http://.",
    ),
    *(
        "`",
        "``a`",
        "$a",
        "[",
        "[a",
        "](",
        "](a",
        "][",
        "*a ",
        "_a ",
        "~~",
        "\\",
        "|",
        "|-",
        ":-",
        "- ",
        "-  ",
        "+ ",
        "> ",
        "#",
        " #",
    ),
    *(
        " ",
        "\t",
        "\n",
        "\n ",
        "a",
        "1",
        "1.",
        ". ",
        ".",
        "\u0964 1",
        '"',
        '\\"',
        'msgstr[1] "',
        "\\1",
        "plural ",
        "Plural-Forms: ",
    ),
]
AFTER = {
    "|-": " ",
    'msgid "': "a",
    "<a ": "a ",
    "# a": " #",
    "00:00": "0",
    "plural": " ",
    "[^": "a",
    "```": "a",
    "- ": "\t",
}


def patterns() -> Iterator[tuple[str, re.Pattern[str], bool]]:
    """Yields every pattern by name, and whether it is looked for everywhere or only at one place.

    `parts.py` matches Markdown's `_BLOCK` at the beginning of lines.
    """
    modules = [f"seq2see.formats.{each.name}" for each in pkgutil.iter_modules(seq2see.formats.__path__)]
    for module in [*map(importlib.import_module, modules), segmentation]:
        source = inspect.getsource(module)
        for name, value in vars(module).items():
            if isinstance(value, re.Pattern) and re.search(rf"^{name} = ", source, re.MULTILINE):
                uses = set(re.findall(rf"\b{name}\.(\w+)\(", source))
                is_searched = name != "_BLOCK" and (not uses or bool(uses - {"match", "fullmatch"}))
                yield f"{module.__name__}.{name}", value, is_searched


PATTERNS = {name: (pattern, is_searched) for name, pattern, is_searched in patterns()}
ATTACKS = [*(("", each) for each in REPEATED), *AFTER.items()]


@pytest.mark.parametrize("name", PATTERNS)
def test_a_pattern_is_found_in_linear_time(name: str) -> None:
    pattern, is_searched = PATTERNS[name]
    steps = RegexSteps(pattern)
    for first, repeated in ATTACKS:
        counts = []
        for size in (SIZE, 2 * SIZE):
            text = first + repeated * size + "x"
            steps.steps = 0
            if is_searched:
                assert steps.find_all(text) == [match.span() for match in pattern.finditer(text)], text
            else:
                match = pattern.match(text)
                assert steps.match(text) == (match.end() if match else None), text
            counts.append(steps.steps)
        assert counts[1] <= MOST * counts[0] + SIZE, (counts, text)


def test_a_quadratic_pattern_is_noticed() -> None:
    steps = [RegexSteps(re.compile(r"<!--.*?-->")) for _ in range(2)]
    for each, size in zip(steps, (SIZE, 2 * SIZE), strict=True):
        assert each.find_all("<!--" * size) == []
    assert steps[1].steps > 3 * steps[0].steps


DOCUMENTS = {
    "html": [
        "<a>",
        "<a><b>",
        "</a>",
        "<b>x</b> ",
        "<b></b>",
        "<img>",
        "<p>a",
        "&amp;",
        "<b>x",
        "x</b>",
        "<b>a <img>",
        "a. ",
    ],
    "md": [
        "*a ",
        "**a** ",
        "[a](u) ",
        "- + ",
        "> ",
        "| a ",
        "a\n",
        "- a\n",
        "`a`b",
        "a|b\n|-|-|\n",
        "a\n#a\n",
        "\n> - a",
    ],
    "srt": ["1\n00:00:01,000 --> 00:00:02,000\na\n\n", "00:00:01,000 --> 00:00:02,000\n<i>a\n", "1\n"],
    "po": [
        'msgid "a"\nmsgstr ""\n\n',
        'msgid "a"\nmsgstr[0] ""\n\n',
        "#\n",
        'msgid "a"\nmsgid_plural "b"\nmsgstr[0] ""\n\n',
    ],
}


@pytest.mark.parametrize(("format", "unit"), [(format, unit) for format in DOCUMENTS for unit in DOCUMENTS[format]])
def test_a_document_is_translated_in_linear_time(format: str, unit: str) -> None:
    def translate(size: int) -> None:
        text = (unit * size).encode()
        translate_content(Path(f"a.{format}"), text, fake_translator(str.upper, 16), False, no_progress)

    translate(1)  # imports
    counts = [count_lines(lambda size=size: translate(size)) for size in (100, 200)]  # type: ignore[misc]
    assert counts[1] <= MOST * counts[0], counts


def test_markup_is_taken_out_in_linear_time() -> None:
    counts = [count_lines(lambda size=size: take_out("<a>" * size, PLACEHOLDER)) for size in (500, 1000)]  # type: ignore[misc]
    assert counts[1] <= MOST * counts[0], counts
