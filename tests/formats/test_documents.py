"""Documents: text is translated, placeholders are kept, and every other byte stays unchanged."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seq2see.data.lines import STRICT
from seq2see.errors import UserError
from seq2see.formats import documents
from seq2see.formats.documents import read_parts
from seq2see.formats.parts import Document, TranslationUnit, rebuild, wrap_like
from seq2see.formats.placeholders import MARKDOWN_PLACEHOLDER, PLACEHOLDER, changed_placeholders
from seq2see.formats.po import PoReader
from tests.fake_model import fake_translator, identity, warnings


@pytest.fixture(autouse=True)
def _clear_warnings() -> None:
    warnings.clear()


LINES = r"""
# The boy
## The **boy** drinks. ##
The boy drinks
tea and *milk*.
- The `boy` %s
  - tea
1. The boy
   goes on
> A quote
> goes on
> - 1. deep
| a | b |
|---|:-:|
| The boy \| x | |
a|b
```
~~~py
    code
<div>
text</div>
<!-- a
b -->
---
===
[a]: http://x.y
[^1]: A note
[a link](http://x/y_z_(a) 'T') here
![alt][1]
break\
***
- [ ] to do
$$
+++
<b>bold</b> text
#
\# no heading"""
LINE = st.sampled_from([*LINES.split("\n"), "\tcode", "a hard  ", "* "])


def rebuilt(name: str, text: str, retranslate: bool = True) -> str:
    parts = read_parts(Document(text, Path(name), retranslate))
    return rebuild(parts, [part.source for part in parts if isinstance(part, TranslationUnit)])


@settings(max_examples=300)
@given(
    st.lists(LINE | st.text(st.characters(exclude_categories=["Cs"])), max_size=12),
    st.sampled_from(["\n", "\r\n"]),
    st.booleans(),
)
def test_markdown_with_identity_translation_is_unchanged(lines: list[str], end: str, last: bool) -> None:
    text = end.join(lines) + end * last
    assert rebuilt("a.md", text) == text
    parts = read_parts(Document(text, Path("a.md")))
    sources = [part.source for part in parts if isinstance(part, TranslationUnit)]
    assert (
        rebuild(parts, fake_translator(identity, placeholders=MARKDOWN_PLACEHOLDER).translate(sources, sources)) == text
    )


CUE = st.sampled_from(
    [
        "1",
        "12",
        "",
        "00:00:01,000 --> 00:00:02,000",
        "01:02.500 --> 01:04.000 align:start",
        "The boy",
        "- Yes.",
        "<i>tea</i>",
        "WEBVTT",
        "NOTE a remark",
        "♪",
    ]
)


@given(st.lists(CUE | st.text(st.characters(exclude_categories=["Cs"])), max_size=12), st.sampled_from(["\n", "\r\n"]))
def test_subtitles_with_identity_translation_are_unchanged(lines: list[str], end: str) -> None:
    text = end.join(lines)
    assert rebuilt("a.srt", text) == text


def literals(text: str, multiline: bool) -> str:
    return f'""\n"{text}"\n"{text}"' if multiline else f'"{text}"'


@given(
    st.lists(
        st.tuples(
            st.text(alphabet="ab कn%s.\u2028", min_size=1).map(lambda text: text.replace("n", "\\n")),
            st.booleans(),
            st.sampled_from(["", "# note\n", "#, fuzzy\n", '#~ msgid "x"\n#~ msgstr ""\n\n']),
            st.booleans(),
            st.sampled_from(["", 'msgctxt "c"\n']),
        )
    )
)
def test_po_with_identity_translation_is_unchanged(rows: list[tuple[str, bool, str, bool, str]]) -> None:
    entries = ['msgid ""\nmsgstr "Plural-Forms: nplurals=2; plural=n != 1;\\n"\n']
    for text, multiline, comment, plural, context in rows:
        one = literals(text, multiline)
        entry = f"msgid_plural {one}\nmsgstr[0] {one}\nmsgstr[1] {one}\n" if plural else f"msgstr {one}\n"
        entries.append(f"{comment}{context}msgid {one}\n{entry}")
    text = "\n".join(entries)
    assert rebuilt("a.po", text) == text
    assert rebuilt("a.po", text, retranslate=False) == text


PO = """# The header stays
msgid ""
msgstr ""
"Plural-Forms: nplurals=2; plural=(n != 1);\\n"

#: main.c:7
msgid "Open %s"
msgstr ""

#, fuzzy
msgctxt "menu"
msgid "Old"
msgstr "kept"

msgid "One \\"file\\""
msgid_plural "%d files"
msgstr[0] ""
msgstr[1] ""

msgid ""
"First line\\n"
"second line\\n"
msgstr ""

#~ msgid "gone"
#~ msgstr ""
"""


def no_progress(description: str, size: int | None) -> Callable[[int], None]:
    return lambda count: None


def translate_file(path: Path, function: Callable[[str], str], retranslate: bool = False) -> str:
    return documents.translate_document(path, fake_translator(function), retranslate, no_progress).decode()


def test_po_fills_empty_translations_and_changes_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a.po"
    path.write_text(PO)
    expected = PO
    for before, after in (
        ('%s"\nmsgstr ""', '%s"\nmsgstr "OPEN %s"'),
        ('msgstr[0] ""', 'msgstr[0] "ONE \\"FILE\\""'),
        ('msgstr[1] ""', 'msgstr[1] "%d FILES"'),
        ('line\\n"\nmsgstr ""', 'line\\n"\nmsgstr ""\n"FIRST LINE\\n"\n"SECOND LINE\\n"'),
    ):
        assert expected.count(before) == 1
        expected = expected.replace(before, after)
    assert translate_file(path, str.upper) == expected
    assert 'msgstr "OLD"' in translate_file(path, str.upper, retranslate=True)
    path.write_text(expected)
    assert ("%d files", "%d FILES") in [(row.source, row.target) for row in PoReader(path).read(STRICT)]


def test_changed_placeholder_is_restored_and_reported(tmp_path: Path) -> None:
    path = tmp_path / "a.po"
    path.write_text(PO)
    out = translate_file(path, lambda text: text.upper().replace("%", "% "))
    assert 'msgstr "OPEN %s"' in out
    assert warnings[0] == f"{path}, line 7: %s changed or lost: translated the text around it"
    path.write_text(PO)
    assert 'msgstr "First' in translate_file(path, lambda text: f"{text} %x").replace('""\n', "")
    assert any("left untranslated" in warning for warning in warnings)


@pytest.mark.parametrize(
    ("source", "translation", "changed"),
    [
        ("%s and %d", "%s und %d", []),
        ("%s and %d", "%d und %s", ["%s", "%d"]),
        ("%(a)s and %(b)d", "%(b)d und %(a)s", []),
        ("{a} and {}", "{a}", ["{}"]),
        ("<b>x</b>", "</b>x<b>", ["<b>", "</b>"]),
        ("fish &amp; chips", "fish & chips", ["&amp;"]),
        ("100% sure", "100% sicher", []),
        ("see https://a.b/c.", "siehe https://a.b/c.", []),
        ("no", "%s", ["%s"]),
    ],
)
def test_placeholders_must_keep_their_order_unless_named(source: str, translation: str, changed: list[str]) -> None:
    assert changed_placeholders(source, translation, PLACEHOLDER) == changed


MARKDOWN_TEXT = """---
title: stays
---
Heading
=======

A **bold** word, `code` and
a [link](http://x.y "t").

- item one
- [x] item two

      code in a list

| head | cell |
|------|------|
| one | a\\|b |

```
stays
```
<div>
stays
</div>

> quoted text
> goes on

[ref]: http://stays
"""


def test_markdown_text_is_translated_and_the_rest_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    path.write_text(MARKDOWN_TEXT)
    expected = MARKDOWN_TEXT
    for text in (
        "Heading",
        "A **bold** word,",
        "and\na [link]",
        "item one",
        "item two",
        "head",
        "cell",
        "one",
        "quoted text",
        "goes on",
    ):
        expected = expected.replace(text, text.upper())
    expected = expected.replace("a\\|b", "A\\|B")
    assert translate_file(path, str.upper) == expected.replace("CODE", "code").replace("item ONE", "ITEM ONE")


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("a line\ngoes on\n", ["a line goes on"]),
        ("a line  \nends\\\nhere\n", ["a line", "ends", "here"]),
        ("- one\n  goes on\n- two\n\n  more\n", ["one goes on", "two", "more"]),
        ("> a quote\n> goes on\n\nand text\n", ["a quote goes on", "and text"]),
        ('a title\n===\ntext [words](http://x "t")\n', ["a title", "text words"]),
        ("**all bold**\n\n[all link](x)\n\n- [ ] to do\n", ["all bold", "all link", "to do"]),
        ("a `b. C` d. <b>E</b> f.\n", ["a `b. C` d.", "E f."]),
        ("<PRE>code</pre>\n\na text\n", ["a text"]),
    ],
)
def test_wrapped_lines_are_translated_as_one_sentence(tmp_path: Path, text: str, sentences: list[str]) -> None:
    (tmp_path / "a.md").write_text(text)
    seen: list[str] = []
    assert translate_file(tmp_path / "a.md", lambda text: seen.append(text) or text) == text  # type: ignore[func-returns-value]
    assert seen == sentences


def test_translation_does_not_become_markup(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    path.write_text("aaa bbb\nccc ddd\n\n| x | y |\n|---|---|\n")
    out = translate_file(path, lambda text: "a b\nc|d" if text == "x" else text.replace("ccc", "#"))
    assert out == "aaa bbb # ddd\n\n| a b c\\|d | y |\n|---|---|\n"


@given(st.lists(st.text(alphabet="abक ", min_size=1).filter(lambda line: line == line.strip()), min_size=1, max_size=4))
def test_wrapping_a_text_like_itself_changes_nothing(lines: list[str]) -> None:
    assert wrap_like(" ".join(lines), lines) == lines


@given(st.text(alphabet="ab  ", max_size=30), st.lists(st.text(alphabet="xy", min_size=1), min_size=1, max_size=4))
def test_wrapping_keeps_every_word_and_makes_no_empty_line(text: str, template: list[str]) -> None:
    lines = wrap_like(text, template)
    assert " ".join(lines).split() == text.split()
    assert len(lines) <= len(template)
    assert all(lines) or not text.strip()


def test_sentence_over_two_lines_of_a_cue_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "a.srt"
    path.write_bytes(
        b"1\r\n00:00:01,000 --> 00:00:02,000\r\nThe boy drinks\r\nhot tea.\r\n\r\n"
        b"2\r\n00:00:03,000 --> 00:00:04,000\r\n- Yes\r\n- <i>No</i>\r\n"
    )
    seen: list[str] = []
    out = translate_file(path, lambda text: seen.append(text) or text[::-1])  # type: ignore[func-returns-value]
    assert seen == ["The boy drinks hot tea.", "Yes", "No"]
    assert out.split("\r\n") == [
        "1",
        "00:00:01,000 --> 00:00:02,000",
        ".aet toh sknird",
        "yob ehT",
        "",
        "2",
        "00:00:03,000 --> 00:00:04,000",
        "- seY",
        "- <i>oN</i>",
        "",
    ]


def test_plain_text_has_no_markup(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("# a <b> %s\n\n- b\nc", encoding="utf-8")
    assert translate_file(path, str.upper) == "# A <B> %S\n\n- B\nC"


def test_invalid_utf8_outside_the_text_stays_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    path.write_bytes(b"```\n\xff\xfe\n```\nab \xff cd\n")
    out = documents.translate_document(path, fake_translator(str.upper), False, no_progress)
    assert out == b"```\n\xff\xfe\n```\nAB \xef\xbf\xbd CD\n"
    assert warnings == [f"{path}, line 4: invalid UTF-8 replaced by U+FFFD"]


def test_malformed_po_is_reported_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "a.po").write_text('msgid "a"\nmsgstr "b"\nnonsense\n')
    with pytest.raises(UserError, match=r"a\.po, line 3: not PO"):
        translate_file(tmp_path / "a.po", identity)


PAGE = """<!doctype html>
<html><head><title>Tea</title><style>p { color: red }</style></head>
<body><!-- a note --><h1>I like <b>tea</b>.</h1>
<p class="x">Two  words &amp; caf&eacute;<br>Next</p><pre>let a = 1 < 2</pre><script>if (a < b) f("tea")</script>
<p>Not <unclosed
"""


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ('<a title="a > b">I like tea.</a>', '<a title="a > b">I LIKE TEA.</a>'),
        (
            "<div data-x='<p>'>I like <b title='>'>tea</b>.</div>",
            "<div data-x='<p>'>I LIKE <b title='>'>TEA</b>.</div>",
        ),
        ("<p don't>Tea's here</p>", "<p don't>TEA'S HERE</p>"),
        ("I don&rsquo;t. It&#39;s &quot;my&quot; dog.", 'I DON\u2019T. IT\'S "MY" DOG.'),
        ("Tom&nbsp;likes tea &amp; milk.", "TOM LIKES TEA &amp; MILK."),
        ('<a href="?a=1&amp;b=2&lang;">salt &amp; tea</a>', '<a href="?a=1&amp;b=2&lang;">SALT &amp; TEA</a>'),
        ("write &amp;lt; or &lt;b&gt;", "WRITE &amp;LT; OR &lt;B&gt;"),
        ("salt & tea &amp; milk", "SALT & TEA & MILK"),
        ("<p>salt<svg/>tea<math x='/>' />milk", "<p>SALT<svg/>TEA<math x='/>' />MILK"),
        ("salt<svg x='/>'>code</svg>tea", "SALT<svg x='/>'>code</svg>TEA"),
    ],
)
def test_html_with_entities_and_angle_brackets_in_attributes(body: str, expected: str, tmp_path: Path) -> None:
    upper = fake_translator(str.upper)
    found = documents.translate_content(tmp_path / "a.html", body.encode(), upper, False, lambda *_: lambda _: None)
    assert found.decode() == expected


def test_html_counts_the_lines_before_a_text() -> None:
    parts = read_parts(Document("<p>\n\n\nHello<p>Tea\n<p>\nMilk", Path("a.html")))
    assert [part.line for part in parts if isinstance(part, TranslationUnit)] == [4, 4, 6]


def test_html_is_translated_between_its_blocks_and_unchanged_elsewhere(tmp_path: Path) -> None:
    translate_file = documents.translate_content
    (tmp_path / "page.html").write_text(PAGE)
    upper = fake_translator(str.upper)
    found = translate_file(tmp_path / "page.html", PAGE.encode(), upper, False, lambda *_: lambda _: None).decode()
    assert "<title>TEA</title>" in found and "I LIKE <b>TEA</b>." in found
    assert "TWO WORDS &amp; CAFÉ<br>NEXT</p>" in found
    for kept in ("<style>p { color: red }</style>", "<!-- a note -->", "<pre>let a = 1 < 2</pre>", 'f("tea")</script>'):
        assert kept in found
