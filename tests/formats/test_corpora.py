"""TMX and PO: what is read of them, and what is refused."""

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seq2see.formats.po import po
from seq2see.formats.tmx import tmx
from tests.data.files import any_text, error_message, shared_tmp_path, write

# TMX


TMX = """<?xml version="1.0" encoding="{encoding}"?>
<!DOCTYPE tmx SYSTEM "tmx14.dtd">
<tmx version="1.4"><header srclang="en"/><body>
<tu><note>not text</note><tuv xml:lang="EN-us"><seg>Fish &amp; <bpt i="1">&lt;b&gt;</bpt><hi>chips</hi><ept i="1">&lt;/b&gt;</ept></seg></tuv>
    <tuv xml:lang="fr"><seg>frites</seg></tuv><tuv xml:lang="hi"><seg>मछली<ph>%d</ph></seg></tuv></tu>
<tu><tuv xml:lang="en"><seg>only English</seg></tuv></tu>
<tu><tuv lang="hi"><seg>दो</seg></tuv><tuv lang="en"><seg>two
lines</seg></tuv></tu>
</body></tmx>"""  # noqa: E501


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_tmx_reads_two_languages(tmp_path: Path, encoding: str) -> None:
    content = TMX.format(encoding=encoding.removesuffix("-sig")).encode(encoding)
    file = write(tmp_path / "a.tmx.gz", gzip.compress(content))
    assert list(tmx([file], "en", "hi")) == [("Fish & chips", "मछली"), ("two\nlines", "दो")]
    assert list(tmx([file], "fr", "en-US")) == [("frites", "Fish & chips")]


def test_tmx_rejects_entities_and_other_xml(tmp_path: Path) -> None:
    billion_laughs = '<!DOCTYPE tmx [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;">]><tmx><body/></tmx>'
    external = f'<!DOCTYPE tmx [<!ENTITY x SYSTEM "{Path(__file__).as_uri()}">]><tmx><seg>&x;</seg></tmx>'
    unknown = '<!DOCTYPE tmx SYSTEM "tmx14.dtd"><tmx><tu><tuv lang="en"><seg>&nbsp;</seg></tuv></tu></tmx>'
    for content in (billion_laughs, external, unknown):
        file = write(tmp_path / "a.tmx", content)
        assert "predefined XML entities are allowed" in error_message(lambda file=file: list(tmx([file], "en", "hi")))  # type: ignore[misc]
    assert "is not TMX: its root element is <html>" in error_message(
        lambda: list(tmx([write(tmp_path / "b.tmx", "<html/>")], "en", "hi"))
    )


def test_malformed_tmx_and_missing_languages_are_reported(tmp_path: Path) -> None:
    whole = TMX.format(encoding="utf-8")
    cut = write(tmp_path / "cut.tmx", whole[: whole.index("two")])
    assert "cut.tmx, line 7, column" in error_message(lambda: list(tmx([cut], "en", "hi")))
    file = write(tmp_path / "a.tmx", whole)
    assert "no unit with both en and de: its languages are EN-us, en, fr, hi" in error_message(
        lambda: list(tmx([file], "en", "de"))
    )
    latin = write(tmp_path / "latin.tmx", whole.replace("Fish", "Fisch ä").encode("latin-1", "ignore"))
    assert "latin.tmx, line 4" in error_message(lambda: list(tmx([latin], "en", "hi")))


@pytest.mark.parametrize("encoding", ["klingon", "shift_jis", "utf-7", "hex"])
def test_tmx_in_an_unknown_encoding_is_rejected(tmp_path: Path, encoding: str) -> None:
    file = write(tmp_path / "a.tmx", TMX.format(encoding=encoding))
    assert "convert it to UTF-8" in error_message(lambda: list(tmx([file], "en", "hi")))


# PO


PO = r"""
# header
msgid ""
msgstr ""
"Content-Type: text/plain; charset=UTF-8\n"
"Plural-Forms: nplurals=2; plural=(n != 1);\n"

#: file.c:1
msgid "Open \"%s\"\n"
msgstr "\"%s\" खोलें\n"
msgid ""
"two "
"parts"
msgstr "दो "
    "भाग"

#, fuzzy, c-format
#| msgid "old"
msgid "guessed"
msgstr "अनुमान"

msgid "untranslated"
msgstr ""

#, fuzzy
#~ msgid "obsolete"
#~ msgstr "पुराना"

msgctxt "menu"
msgid "File"
msgstr "फ़ाइल"

#, c-format
msgid "%d file"
msgid_plural "%d files"
msgstr[0] "%d फ़ाइल"
msgstr[1] "%d फ़ाइलें"
"""


def test_po_reads_the_translated_entries(tmp_path: Path) -> None:
    assert list(po([write(tmp_path / "a.po", PO)])) == [
        ('Open "%s"\n', '"%s" खोलें\n'),
        ("two parts", "दो भाग"),
        ("File", "फ़ाइल"),
        ("%d file", "%d फ़ाइल"),
        ("%d files", "%d फ़ाइलें"),
    ]


@pytest.mark.parametrize(
    ("rule", "forms", "expected"),
    [
        ("nplurals=1; plural=0;", ["ファイル"], [("one", "ファイル"), ("many", "ファイル")]),
        ("nplurals=3; plural=n==1 ? 0 : n<5 ? 1 : 2;", ["a", "b", "c"], [("one", "a"), ("many", "b"), ("many", "c")]),
        ("nplurals=2; plural=n==1 ? 1 : 0;", ["m", "o"], [("many", "m"), ("one", "o")]),
    ],
)
def test_plural_forms_follow_the_rule_in_the_header(
    tmp_path: Path, rule: str, forms: list[str], expected: list[tuple[str, str]]
) -> None:
    strings = "".join(f'msgstr[{i}] "{form}"\n' for i, form in enumerate(forms))
    content = f'msgid ""\nmsgstr "Plural-Forms: {rule}\\n"\n\nmsgid "one"\nmsgid_plural "many"\n{strings}'
    assert list(po([write(tmp_path / "a.po", content)])) == expected


def quoted(text: str) -> str:
    escapes = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r", "\x0b": "\\v", "\x07": "\\a"}
    return '"' + "".join(escapes.get(c, c) for c in text) + '"'


@given(st.lists(st.tuples(any_text.filter(bool), any_text.filter(bool)), min_size=1), st.integers(1, 9))
@shared_tmp_path
def test_any_text_round_trips_through_po(tmp_path: Path, rows: list[tuple[str, str]], width: int) -> None:
    def wrapped(text: str) -> str:
        return "\n".join(quoted(text[i : i + width]) for i in range(0, len(text), width))

    file = write(tmp_path / "a.po", "".join(f"msgid {wrapped(a)}\nmsgstr {wrapped(b)}\n" for a, b in rows))
    assert list(po([file])) == rows


def test_octal_and_hexadecimal_escapes_are_utf8_bytes(tmp_path: Path) -> None:
    file = write(tmp_path / "a.po", r'msgid "\xe0\xa4\x95\101"' + "\n" + r'msgstr "\303\244\x21"')
    assert list(po([file])) == [("कA", "ä!")]


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ('msgid "a\nmsgstr "b"', "line 1: not PO"),
        ('msgid "a"\nmsgstr "\\q"', "line 2: unknown escape \\q"),
        ('msgid "a"\nmsgstr "\\xff"', "line 2: \\xff is not UTF-8"),
        ('"a"', "line 1: text before any keyword"),
        ('msgid "a"\n', "line 1: an entry needs a msgid and a msgstr"),
        ('msgid "a"\nmsgid "a"\nmsgstr "b"', "line 2: duplicate msgid"),
    ],
)
def test_malformed_po_is_reported(tmp_path: Path, entry: str, expected: str) -> None:
    assert expected in error_message(lambda: list(po([write(tmp_path / "a.po", entry)])))
