"""Documents: the text is translated, placeholders are kept, and every other byte is as it was."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seq2see.errors import UserError
from seq2see.text.formats.lines import STRICT
from seq2see.text.formats.po import Po
from seq2see.translate import documents
from seq2see.translate.placeholders import MARKDOWN, PLACEHOLDER, harmed
from seq2see.translate.slots import Slot, rebuild
from tests.standin import same, told, translator


@pytest.fixture(autouse=True)
def _nothing_told() -> None:
    told.clear()


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


def again(name: str, text: str, everything: bool = True) -> str:
    parts = documents.read(Path(name), text, everything)
    return rebuild(parts, [part.source for part in parts if isinstance(part, Slot)])


@settings(max_examples=300)
@given(
    st.lists(LINE | st.text(st.characters(exclude_categories=["Cs"])), max_size=12),
    st.sampled_from(["\n", "\r\n"]),
    st.booleans(),
)
def test_markdown_translated_by_itself_is_itself(lines: list[str], end: str, last: bool) -> None:
    text = end.join(lines) + end * last
    assert again("a.md", text) == text
    parts = documents.read(Path("a.md"), text)
    sources = [part.source for part in parts if isinstance(part, Slot)]
    assert rebuild(parts, translator(same, keep=MARKDOWN).translate(sources, sources)) == text


CUE = st.sampled_from(
    ["1", "12", "", "00:00:01,000 --> 00:00:02,000", "01:02.500 --> 01:04.000 align:start", "The boy", "- Yes.", "<i>tea</i>",
     "WEBVTT", "NOTE a remark", "♪"]
)  # fmt: skip


@given(st.lists(CUE | st.text(st.characters(exclude_categories=["Cs"])), max_size=12), st.sampled_from(["\n", "\r\n"]))
def test_subtitles_translated_by_themselves_are_themselves(lines: list[str], end: str) -> None:
    text = end.join(lines)
    assert again("a.srt", text) == text


def literals(text: str, several: bool) -> str:
    return f'""\n"{text}"\n"{text}"' if several else f'"{text}"'


@given(
    st.lists(
        st.tuples(
            st.text(alphabet="ab कn%s.\u2028", min_size=1).map(lambda text: text.replace("n", "\\n")),
            st.booleans(), st.sampled_from(["", "# note\n", "#, fuzzy\n", '#~ msgid "x"\n#~ msgstr ""\n\n']),
            st.booleans(), st.sampled_from(["", 'msgctxt "c"\n']),
        )
    )
)  # fmt: skip
def test_po_translated_by_itself_is_itself(rows: list[tuple[str, bool, str, bool, str]]) -> None:
    entries = ['msgid ""\nmsgstr "Plural-Forms: nplurals=2; plural=n != 1;\\n"\n']
    for text, several, comment, plural, context in rows:
        one = literals(text, several)
        entry = f"msgid_plural {one}\nmsgstr[0] {one}\nmsgstr[1] {one}\n" if plural else f"msgstr {one}\n"
        entries.append(f"{comment}{context}msgid {one}\n{entry}")
    text = "\n".join(entries)
    assert again("a.po", text) == text
    assert again("a.po", text, everything=False) == text


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


def translated_file(path: Path, says: Callable[[str], str], everything: bool = False) -> str:
    watch = lambda what, size: lambda count: None  # noqa: E731
    return documents.translate(path, translator(says), everything, watch).decode()


def test_po_gets_translations_where_there_are_none_and_nothing_else_changes(tmp_path: Path) -> None:
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
    assert translated_file(path, str.upper) == expected
    assert 'msgstr "OLD"' in translated_file(path, str.upper, everything=True)
    path.write_text(expected)
    assert ("%d files", "%d FILES") in [(row.source, row.target) for row in Po(path).read(STRICT)]


def test_a_harmed_placeholder_is_put_back_and_reported(tmp_path: Path) -> None:
    path = tmp_path / "a.po"
    path.write_text(PO)
    out = translated_file(path, lambda text: text.upper().replace("%", "% "))
    assert 'msgstr "OPEN %s"' in out
    assert told[0] == f"{path}, line 7: %s changed or lost: translated around it"
    path.write_text(PO)
    assert 'msgstr "First' in translated_file(path, lambda text: f"{text} %x").replace('""\n', "")
    assert any("left as it is" in said for said in told)


@pytest.mark.parametrize(
    ("source", "translation", "harm"),
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
def test_placeholders_are_the_same_in_the_same_order_unless_named(
    source: str, translation: str, harm: list[str]
) -> None:
    assert harmed(source, translation, PLACEHOLDER) == harm


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


def test_markdown_is_translated_where_it_is_text(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    path.write_text(MARKDOWN_TEXT)
    expected = MARKDOWN_TEXT
    for text in ("Heading", "A **bold** word,", "and\na [link]", "item one", "item two", "head", "cell", "one", "quoted text",
                 "goes on"):  # fmt: skip
        expected = expected.replace(text, text.upper())
    expected = expected.replace("a\\|b", "A\\|B")
    assert translated_file(path, str.upper) == expected.replace("CODE", "code").replace("item ONE", "ITEM ONE")


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("a line\ngoes on\n", ["a line goes on"]),
        ("a line  \nends\\\nhere\n", ["a line", "ends", "here"]),
        ("- one\n  goes on\n- two\n\n  more\n", ["one goes on", "two", "more"]),
        ("> a quote\n> goes on\n\nand text\n", ["a quote goes on", "and text"]),
        ('a title\n===\ntext [words](http://x "t")\n', ["a title", 'text [words](http://x "t")']),
        ("**all bold**\n\n[all link](x)\n\n- [ ] to do\n", ["all bold", "all link", "to do"]),
        ("a `b. C` d. <b>E</b> f.\n", ["a `b. C` d.", "<b>E</b> f."]),
    ],
)
def test_what_belongs_together_is_translated_together(tmp_path: Path, text: str, sentences: list[str]) -> None:
    (tmp_path / "a.md").write_text(text)
    seen: list[str] = []
    assert translated_file(tmp_path / "a.md", lambda text: seen.append(text) or text) == text  # type: ignore[func-returns-value]
    assert seen == sentences


def test_a_translation_does_not_become_markup(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    path.write_text("aaa bbb\nccc ddd\n\n| x | y |\n|---|---|\n")
    out = translated_file(path, lambda text: "a b\nc|d" if text == "x" else text.replace("ccc", "#"))
    assert out == "aaa bbb # ddd\n\n| a b c\\|d | y |\n|---|---|\n"


def test_a_sentence_over_two_lines_of_a_cue_is_one(tmp_path: Path) -> None:
    path = tmp_path / "a.srt"
    path.write_bytes(
        b"1\r\n00:00:01,000 --> 00:00:02,000\r\nThe boy drinks\r\nhot tea.\r\n\r\n"
        b"2\r\n00:00:03,000 --> 00:00:04,000\r\n- Yes\r\n- <i>No</i>\r\n"
    )
    seen: list[str] = []
    out = translated_file(path, lambda text: seen.append(text) or text[::-1])  # type: ignore[func-returns-value]
    assert seen == ["The boy drinks hot tea.", "Yes", "No"]
    assert out.split("\r\n") == [
        "1", "00:00:01,000 --> 00:00:02,000", ".aet toh sknird", "yob ehT", "",
        "2", "00:00:03,000 --> 00:00:04,000", "- seY", "- <i>oN</i>", "",
    ]  # fmt: skip


def test_bytes_that_are_not_utf8_stay_outside_the_text_of_a_document(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    path.write_bytes(b"```\n\xff\xfe\n```\nab \xff cd\n")
    watch = lambda what, size: lambda count: None  # noqa: E731
    out = documents.translate(path, translator(str.upper), False, watch)
    assert out == b"```\n\xff\xfe\n```\nAB \xef\xbf\xbd CD\n"
    assert told == [f"{path}, line 4: bytes that are not UTF-8, replaced by U+FFFD"]


def test_what_is_no_po_is_named_by_its_line(tmp_path: Path) -> None:
    (tmp_path / "a.po").write_text('msgid "a"\nmsgstr "b"\nnonsense\n')
    with pytest.raises(UserError, match=r"a\.po, line 3: not PO"):
        translated_file(tmp_path / "a.po", same)
