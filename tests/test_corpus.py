"""Readers: what stands in the files comes out, all of it, in order; what cannot be read is one clear line."""

import gzip
import json
import lzma
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seq2see.errors import UserError
from seq2see.text.corpus import PairOptions, Pairs, jsonl, open_pairs, parallel, plain, po, table, tmx
from seq2see.text.formats.lines import lines

in_one_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
# All that UTF-8 can hold but surrogates.
any_text = st.text(st.characters(exclude_categories=["Cs"]))


def write(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def complaint(read: Callable[[], object]) -> str:
    with pytest.raises(UserError) as caught:
        read()
    message = str(caught.value)
    assert "\n" not in message
    return message


# Lines


def test_only_newlines_end_a_line(tmp_path: Path) -> None:
    traps = ["a\u2028b", "c\u0085d", "e\x0cf\x0bg", "h\x1ci\x1dj\x1e", "\x00", "k\rl", "", "\ufeffm"]
    file = write(tmp_path / "a", "\n".join(traps))
    assert list(lines(file)) == traps


@pytest.mark.parametrize("content", ["a\nb\n", "a\nb", "a\r\nb\r\n", "\ufeffa\nb\n", "\ufeffa\r\nb"])
def test_line_ends_and_byte_order_marks_do_not_matter(tmp_path: Path, content: str) -> None:
    assert list(lines(write(tmp_path / "a", content))) == ["a", "b"]


@given(any_text.map(lambda text: text.replace("\n", "").rstrip("\r").lstrip("\ufeff")).filter(bool))
@in_one_folder
def test_a_line_of_any_text_comes_back(tmp_path: Path, line: str) -> None:
    assert list(lines(write(tmp_path / "a", f"{line}\n{line}\r\n"))) == [line, line]


@pytest.mark.parametrize("compress", [gzip.compress, lzma.compress])
def test_compressed_files_are_known_by_their_bytes(tmp_path: Path, compress: Callable[[bytes], bytes]) -> None:
    first, second = compress("नमस्ते\n".encode()), compress(b"world\n")
    assert list(lines(write(tmp_path / "no-suffix", first + second))) == ["नमस्ते", "world"]
    assert list(lines(write(tmp_path / "not-really.gz", "plain\n"))) == ["plain"]


@pytest.mark.parametrize("compress", [gzip.compress, lzma.compress])
def test_a_truncated_archive_says_how_far_it_could_be_read(tmp_path: Path, compress: Callable[[bytes], bytes]) -> None:
    content = "".join(f"sentence {i * 7919}\n" for i in range(20_000)).encode()
    packed = compress(content)
    for kept in (len(packed) // 2, len(packed) - 3, 7):
        file = write(tmp_path / "a.en", packed[:kept])
        message = complaint(lambda file=file: list(lines(file)))  # type: ignore[misc]
        assert "a.en breaks off after line" in message


def test_a_damaged_archive_is_one_clear_line(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(b"some text that compresses\n" * 100))
    packed[-6] ^= 0xFF
    assert "damaged" in complaint(lambda: list(lines(write(tmp_path / "a.gz", bytes(packed)))))


def test_invalid_bytes_are_named_by_file_line_and_byte(tmp_path: Path) -> None:
    file = write(tmp_path / "a.hi", b"fine\n" + "नम".encode() + b"\xe9\n")
    assert "a.hi, line 2: byte 7 (0xe9) is not UTF-8" in complaint(lambda: list(lines(file)))


@pytest.mark.parametrize("bad", [b"\xed\xa0\x80", b"\xc0\x80", b"\xf5\x80\x80\x80", b"\xe0\xa4"])
def test_surrogates_overlong_and_cut_characters_are_not_utf8(tmp_path: Path, bad: bytes) -> None:
    assert "line 1: byte 2" in complaint(lambda: list(lines(write(tmp_path / "a", b"x" + bad + b"\n"))))


def test_utf16_is_recognised(tmp_path: Path) -> None:
    assert "UTF-16" in complaint(lambda: list(lines(write(tmp_path / "a", "hello".encode("utf-16")))))


# Two files


def test_two_files_pair_line_by_line(tmp_path: Path) -> None:
    pairs = parallel([write(tmp_path / "a.en", "One\nTwo\n")], [write(tmp_path / "a.hi", "एक\r\nदो")])
    assert list(pairs) == [("One", "एक"), ("Two", "दो")] == list(pairs)


def test_several_files_follow_each_other(tmp_path: Path) -> None:
    source = [write(tmp_path / f"{n}.en", f"s{n}\n") for n in "ba"]
    target = [write(tmp_path / f"{n}.hi", f"t{n}\n") for n in "ba"]
    assert list(parallel(source, target)) == [("sb", "tb"), ("sa", "ta")]
    assert "2 source files but 1 target" in complaint(lambda: parallel(source, target[:1]))


@pytest.mark.parametrize(("more", "less"), [(3, 1), (1, 3), (2, 1)])
def test_unequal_files_are_told_with_both_numbers_and_the_remedy(tmp_path: Path, more: int, less: int) -> None:
    a, b = write(tmp_path / "a.en", "x\n" * more * 1000), write(tmp_path / "a.hi", "y\n" * less * 1000)
    expected = f'{a} has {more * 1000:,} lines but {b} {less * 1000:,}: run "seq2see data check --src {a} --tgt {b}"'
    assert complaint(lambda: list(parallel([a], [b]))) == expected


def test_directories_pair_their_files_by_name(tmp_path: Path) -> None:
    for shard in ("02", "01", "10"):
        write(tmp_path / "en" / f"{shard}.en.gz", gzip.compress(f"s{shard}\n".encode()))
        write(tmp_path / "hi" / f"{shard}.hi", f"t{shard}\n")
    write(tmp_path / "hi" / ".hidden", "no\n")
    pairs = parallel([tmp_path / "en"], [tmp_path / "hi"])
    assert list(pairs) == [("s01", "t01"), ("s02", "t02"), ("s10", "t10")]
    write(tmp_path / "hi" / "03.hi", "t\n")
    message = complaint(lambda: parallel([tmp_path / "en"], [tmp_path / "hi"]))
    assert "03.hi has no partner" in message
    assert "3 files against 4" in message


def test_one_directory_may_hold_both_languages(tmp_path: Path) -> None:
    for shard in ("a", "b"):
        for language in ("en", "hi"):
            write(tmp_path / f"{shard}.{language}", f"{shard}-{language}\n")
    pairs = open_pairs(PairOptions(pairs=[tmp_path], languages="hi,en"))
    assert list(pairs) == [("a-hi", "a-en"), ("b-hi", "b-en")]


def test_what_is_not_there_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    here, empty = write(tmp_path / "a.en", "x\n"), write(tmp_path / "empty", "")
    assert "no such file" in complaint(lambda: parallel([here], [tmp_path / "b.hi"]))
    assert "empty directory" in complaint(lambda: parallel([tmp_path / "none"], [tmp_path / "none"]))
    assert "is a directory where a file" in complaint(lambda: parallel([here], [tmp_path / "none"]))
    assert "empty is empty" in complaint(lambda: list(parallel([here], [empty])))
    assert "is empty" in complaint(lambda: list(parallel([write(tmp_path / "e.gz", gzip.compress(b""))], [here])))
    assert "only once" in complaint(lambda: parallel([here], [Path("/dev/null")]))


# TSV and JSON lines

cells = any_text.map(lambda text: text.replace("\n", "").replace("\t", "").rstrip("\r").lstrip("\ufeff"))


@given(st.lists(st.tuples(cells, cells), min_size=1))
@in_one_folder
def test_any_cells_come_back_from_a_table(tmp_path: Path, rows: list[tuple[str, str]]) -> None:
    file = write(tmp_path / "a.tsv", "".join(f"tag\t{source}\t{target}\n" for source, target in rows))
    assert list(table([file], 2, 3)) == rows
    assert list(table([file], 3, 2)) == [(target, source) for source, target in rows]


def test_columns_may_be_named_by_the_header(tmp_path: Path) -> None:
    file = write(tmp_path / "a.tsv.xz", lzma.compress("\ufeffid\ten\thi\n1\tOne\tएक\n".encode()))
    assert list(table([file], "en", "hi")) == [("One", "एक")]
    assert list(open_pairs(PairOptions(pairs=[file], columns="hi,en"))) == [("एक", "One")]
    assert 'no column "enn" in its first line: did you mean "en"?' in complaint(
        lambda: list(table([file], "enn", "hi"))
    )


def test_a_row_with_too_few_columns_is_told_with_both_numbers(tmp_path: Path) -> None:
    file = write(tmp_path / "a.tsv", "x\ty\tz\nx\ty\n")
    assert complaint(lambda: list(table([file], 1, 3))) == f"{file}, line 2: 2 columns where column 3 is wanted"
    assert "counted from 1" in complaint(lambda: list(table([file], 0, 1)))


@given(st.lists(st.tuples(any_text, any_text), min_size=1), st.booleans())
@in_one_folder
def test_any_text_comes_back_from_json_lines(tmp_path: Path, rows: list[tuple[str, str]], ascii: bool) -> None:
    objects = [json.dumps({"en": source, "x": 1, "hi": target}, ensure_ascii=ascii) for source, target in rows]
    file = write(tmp_path / "a.jsonl", "\n".join(objects) + "\n\n")
    assert list(jsonl([file], "en", "hi")) == rows


def test_fields_may_be_nested(tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", '{"translation": {"en": "One", "hi": "एक"}, "a.b": "dotted"}\n')
    assert list(jsonl([file], "translation.en", "translation.hi")) == [("One", "एक")]
    assert list(jsonl([file], "a.b", "translation.hi")) == [("dotted", "एक")]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('{"en": "x", "hi": "y"', "line 2: not JSON: expecting ',' delimiter at column 22"),
        ('{"en": "x", "hj": "y"}', 'line 2: no field "hi": did you mean "hj"?'),
        ('{"en": "x", "hi": 7}', 'line 2: field "hi" holds 7, not text'),
        ('["x", "y"]', "line 2: a JSON object is wanted"),
        ('{"en": "x", "hi": "\\ud83d"}', "line 2: field \"hi\" holds half a character, \\ud83d"),
        ("[" * 200_000, "line 2: JSON nested too deeply"),
    ],
)  # fmt: skip
def test_a_bad_json_line_is_named(tmp_path: Path, line: str, expected: str) -> None:
    file = write(tmp_path / "a.jsonl", '{"en": "x", "hi": "y"}\n' + line + "\n")
    assert expected in complaint(lambda: list(jsonl([file], "en", "hi")))


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
def test_tmx_gives_the_text_of_two_languages(tmp_path: Path, encoding: str) -> None:
    content = TMX.format(encoding=encoding.removesuffix("-sig")).encode(encoding)
    file = write(tmp_path / "a.tmx.gz", gzip.compress(content))
    assert list(tmx([file], "en", "hi")) == [("Fish & chips", "मछली"), ("two\nlines", "दो")]
    assert list(tmx([file], "fr", "en-US")) == [("frites", "Fish & chips")]


def test_tmx_refuses_entities_other_files_and_what_is_no_tmx(tmp_path: Path) -> None:
    laughs = '<!DOCTYPE tmx [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;">]><tmx><body/></tmx>'
    secret = f'<!DOCTYPE tmx [<!ENTITY x SYSTEM "{Path(__file__).as_uri()}">]><tmx><seg>&x;</seg></tmx>'
    unknown = '<!DOCTYPE tmx SYSTEM "tmx14.dtd"><tmx><tu><tuv lang="en"><seg>&nbsp;</seg></tuv></tu></tmx>'
    for content in (laughs, secret, unknown):
        file = write(tmp_path / "a.tmx", content)
        assert "are refused, for safety" in complaint(lambda file=file: list(tmx([file], "en", "hi")))  # type: ignore[misc]
    assert "is not TMX: its outermost element is <html>" in complaint(
        lambda: list(tmx([write(tmp_path / "b.tmx", "<html/>")], "en", "hi"))
    )


def test_broken_tmx_and_missing_languages_are_told(tmp_path: Path) -> None:
    whole = TMX.format(encoding="utf-8")
    cut = write(tmp_path / "cut.tmx", whole[: whole.index("two")])
    assert "cut.tmx, line 7, column" in complaint(lambda: list(tmx([cut], "en", "hi")))
    file = write(tmp_path / "a.tmx", whole)
    assert "no unit with both en and de: its languages are EN-us, en, fr, hi" in complaint(
        lambda: list(tmx([file], "en", "de"))
    )
    latin = write(tmp_path / "latin.tmx", whole.replace("Fish", "Fisch ä").encode("latin-1", "ignore"))
    assert "latin.tmx, line 4" in complaint(lambda: list(tmx([latin], "en", "hi")))


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


def test_po_gives_the_finished_entries(tmp_path: Path) -> None:
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
@in_one_folder
def test_any_text_comes_back_from_po(tmp_path: Path, rows: list[tuple[str, str]], width: int) -> None:
    def wrapped(text: str) -> str:
        return "\n".join(quoted(text[i : i + width]) for i in range(0, len(text), width))

    file = write(tmp_path / "a.po", "".join(f"msgid {wrapped(a)}\nmsgstr {wrapped(b)}\n" for a, b in rows))
    assert list(po([file])) == rows


def test_octal_and_hexadecimal_escapes_are_bytes(tmp_path: Path) -> None:
    file = write(tmp_path / "a.po", r'msgid "\xe0\xa4\x95\101"' + "\n" + r'msgstr "\303\244\x21"')
    assert list(po([file])) == [("कA", "ä!")]


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ('msgid "a\nmsgstr "b"', "line 1: not PO"),
        ('msgid "a"\nmsgstr "\\q"', "line 2: unknown escape \\q"),
        ('msgid "a"\nmsgstr "\\xff"', "line 2: \\xff is not UTF-8"),
        ('"a"', "line 1: text before any keyword"),
        ('msgid "a"\n', "line 1: an entry needs both"),
        ('msgid "a"\nmsgid "a"\nmsgstr "b"', "line 2: a second msgid"),
    ],
)
def test_what_is_not_po_is_named(tmp_path: Path, entry: str, expected: str) -> None:
    assert expected in complaint(lambda: list(po([write(tmp_path / "a.po", entry)])))


# Plain text


def test_documents_end_at_blank_lines_or_with_their_file(tmp_path: Path) -> None:
    files = [write(tmp_path / "a.txt", "\n\none\ntwo\n \t\nthree\n"), write(tmp_path / "b.txt", "four\n\nfive")]
    assert list(plain(files)) == ["one\ntwo", "three", "four", "five"]
    assert list(plain(files, "file")) == ["\n\none\ntwo\n \t\nthree", "four\n\nfive"]


def test_a_long_document_comes_in_passages_that_make_it_up(tmp_path: Path) -> None:
    text = "\n".join("word " * 200 + str(i) for i in range(5000))
    documents = plain([write(tmp_path / "a.txt", text + "\n\nshort\n")])
    passages = list(documents.passages())
    assert [passage.ends for passage in passages] == [False, False, False, False, True, True]
    assert all(len(passage.text) < 1.1 * (1 << 20) for passage in passages)
    assert list(documents) == [text, "short"]


def test_a_directory_of_text_is_its_txt_files(tmp_path: Path) -> None:
    write(tmp_path / "b" / "deep.txt.gz", gzip.compress(b"deep\n"))
    write(tmp_path / "a.txt", "top\n")
    write(tmp_path / "README.md", "no\n")
    write(tmp_path / ".hidden" / "c.txt", "no\n")
    assert list(plain([tmp_path])) == ["top", "deep"]
    assert "only blank lines" in complaint(lambda: list(plain([write(tmp_path / "z", "\n \n\n")])))
    (tmp_path / "other").mkdir()
    write(tmp_path / "other" / "x.pdf", "no")
    assert "no .txt file" in complaint(lambda: plain([tmp_path / "other"]))
    assert 'did you mean "file"' in complaint(lambda: plain([tmp_path], "files"))  # type: ignore[arg-type]


# All together


def test_the_key_changes_with_the_content_and_the_way_of_reading(tmp_path: Path) -> None:
    a, b = write(tmp_path / "a.tsv", "x\ty\tz\n"), write(tmp_path / "b.tsv", "x\ty\tz\n")
    key = table([a], 1, 2).key
    assert table([b], 1, 2).key == key
    assert len({key, table([a], 1, 3).key, table([a, b], 1, 2).key, parallel([a], [b]).key, plain([a]).key}) == 5
    write(a, "x\ty\tZ\n")
    assert table([a], 1, 2).key != key


def test_options_choose_the_reader(tmp_path: Path) -> None:
    files = {
        "a.tsv": "One\tएक\n",
        "b.jsonl": '{"en": "One", "hi": "एक"}',
        "c.tmx": '<tmx><tu><tuv lang="en"><seg>One</seg></tuv><tuv lang="hi"><seg>एक</seg></tuv></tu></tmx>',
        "d.po": 'msgid "One"\nmsgstr "एक"',
    }
    for name, content in files.items():
        write(tmp_path / "in" / name, content)
    options = PairOptions(pairs=[tmp_path / "in"], languages="en,hi")
    assert list(open_pairs(options)) == [("One", "एक")] * 4
    assert "--valid-src FILE and --valid-tgt FILE" in complaint(lambda: open_pairs(PairOptions(role="valid-")))
    assert "--languages names the source and the target" in complaint(
        lambda: open_pairs(PairOptions(pairs=[tmp_path / "in" / "c.tmx"]))
    )
    write(tmp_path / "x.csv", "a,b")
    assert 'no reader for ".csv"' in complaint(lambda: open_pairs(PairOptions(pairs=[tmp_path / "x.csv"])))
    assert "not both" in complaint(lambda: open_pairs(PairOptions(src=[tmp_path], pairs=[tmp_path])))


@pytest.mark.parametrize("kind", ["two files", "tsv", "jsonl", "tmx", "po"])
def test_reading_takes_constant_memory(tmp_path: Path, kind: str) -> None:
    def corpus(count: int) -> Pairs:
        name = str(tmp_path / f"{kind}-{count}")
        text = [f"sentence number {i} of this corpus" for i in range(count)]
        if kind == "two files":
            file = write(Path(name), "\n".join(text))
            return parallel([file], [file])
        if kind == "tsv":
            return table([write(Path(name), "\n".join(f"{t}\t{t}" for t in text))])
        if kind == "jsonl":
            return jsonl([write(Path(name), "\n".join(json.dumps({"a": t, "b": t}) for t in text))], "a", "b")
        if kind == "po":
            return po([write(Path(name), "\n".join(f'msgid "{t}"\nmsgstr "{t}"' for t in text))])
        units = "".join(f'<tu><tuv lang="a"><seg>{t}</seg></tuv><tuv lang="b"><seg>{t}</seg></tuv></tu>' for t in text)
        return tmx([write(Path(name), f"<tmx>{units}</tmx>")], "a", "b")

    def peak(pairs: Pairs, count: int) -> int:
        tracemalloc.start()
        assert sum(1 for _ in pairs) == count
        memory = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return memory

    small, large = corpus(2000), corpus(16_000)
    peak(small, 2000)  # what is made once, such as compiled patterns
    assert peak(large, 16_000) < 1.3 * peak(small, 2000) + 100_000
