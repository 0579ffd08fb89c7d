"""Readers: the text of the files, complete and in order; one-line errors for what cannot be read."""

import gzip
import json
import lzma
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seq2see.config import DataConfig
from seq2see.data.corpus import ParallelCorpus, _files_by_stem, open_pairs, parallel_files, plain_text
from seq2see.data.lines import MAX_LINE_BYTES, read_lines
from seq2see.errors import UserError
from seq2see.formats.po import po
from seq2see.formats.tabular import jsonl, tsv
from seq2see.formats.tmx import tmx
from tests.data.files import any_text, error_message, shared_tmp_path, write

# Lines


def test_only_newlines_end_a_line(tmp_path: Path) -> None:
    edge_cases = ["a\u2028b", "c\u0085d", "e\x0cf\x0bg", "h\x1ci\x1dj\x1e", "\x00", "k\rl", "", "\ufeffm"]
    file = write(tmp_path / "a", "\n".join(edge_cases))
    assert list(read_lines(file)) == edge_cases


@pytest.mark.parametrize("content", ["a\nb\n", "a\nb", "a\r\nb\r\n", "\ufeffa\nb\n", "\ufeffa\r\nb"])
def test_line_endings_and_byte_order_marks_are_removed(tmp_path: Path, content: str) -> None:
    assert list(read_lines(write(tmp_path / "a", content))) == ["a", "b"]


@given(any_text.map(lambda text: text.replace("\n", "").rstrip("\r").lstrip("\ufeff")).filter(bool))
@shared_tmp_path
def test_any_line_round_trips(tmp_path: Path, line: str) -> None:
    assert list(read_lines(write(tmp_path / "a", f"{line}\n{line}\r\n"))) == [line, line]


@pytest.mark.parametrize("compress", [gzip.compress, lzma.compress])
def test_compression_is_detected_by_content(tmp_path: Path, compress: Callable[[bytes], bytes]) -> None:
    first, second = compress("नमस्ते\n".encode()), compress(b"world\n")
    assert list(read_lines(write(tmp_path / "no-suffix", first + second))) == ["नमस्ते", "world"]
    assert list(read_lines(write(tmp_path / "not-really.gz", "plain\n"))) == ["plain"]


@pytest.mark.parametrize("compress", [gzip.compress, lzma.compress])
def test_truncated_archive_is_reported_with_the_last_line(tmp_path: Path, compress: Callable[[bytes], bytes]) -> None:
    content = "".join(f"sentence {i * 7919}\n" for i in range(20_000)).encode()
    packed = compress(content)
    for kept in (len(packed) // 2, len(packed) - 3, 7):
        file = write(tmp_path / "a.en", packed[:kept])
        message = error_message(lambda file=file: list(read_lines(file)))  # type: ignore[misc]
        assert "a.en is truncated or damaged after line" in message


def test_damaged_archive_is_a_one_line_error(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(b"some text that compresses\n" * 100))
    packed[-6] ^= 0xFF
    assert "damaged" in error_message(lambda: list(read_lines(write(tmp_path / "a.gz", bytes(packed)))))


def test_invalid_bytes_are_reported_with_file_line_and_byte(tmp_path: Path) -> None:
    file = write(tmp_path / "a.hi", b"fine\n" + "नम".encode() + b"\xe9\n")
    assert "a.hi, line 2: byte 7 (0xe9) is not UTF-8" in error_message(lambda: list(read_lines(file)))


@pytest.mark.parametrize("bad", [b"\xed\xa0\x80", b"\xc0\x80", b"\xf5\x80\x80\x80", b"\xe0\xa4"])
def test_surrogates_overlong_and_truncated_characters_are_not_utf8(tmp_path: Path, bad: bytes) -> None:
    assert "line 1: byte 2" in error_message(lambda: list(read_lines(write(tmp_path / "a", b"x" + bad + b"\n"))))


def test_utf16_is_detected(tmp_path: Path) -> None:
    assert "UTF-16" in error_message(lambda: list(read_lines(write(tmp_path / "a", "hello".encode("utf-16")))))


# Parallel files


def test_parallel_files_are_paired_line_by_line(tmp_path: Path) -> None:
    pairs = parallel_files([write(tmp_path / "a.en", "One\nTwo\n")], [write(tmp_path / "a.hi", "एक\r\nदो")])
    assert list(pairs) == [("One", "एक"), ("Two", "दो")] == list(pairs)


def test_several_files_are_concatenated(tmp_path: Path) -> None:
    source = [write(tmp_path / f"{n}.en", f"s{n}\n") for n in "ba"]
    target = [write(tmp_path / f"{n}.hi", f"t{n}\n") for n in "ba"]
    assert list(parallel_files(source, target)) == [("sb", "tb"), ("sa", "ta")]
    assert "2 source files but 1 target" in error_message(lambda: parallel_files(source, target[:1]))


@pytest.mark.parametrize(("more", "less"), [(3, 1), (1, 3), (2, 1)])
def test_different_line_counts_are_reported_with_both_numbers(tmp_path: Path, more: int, less: int) -> None:
    a, b = write(tmp_path / "a.en", "x\n" * more * 1000), write(tmp_path / "a.hi", "y\n" * less * 1000)
    expected = (
        f'{a} has {more * 1000:,} lines but {b} has {less * 1000:,}: run "seq2see data check --src {a} --tgt {b}"'
    )
    assert error_message(lambda: list(parallel_files([a], [b]))) == expected


def test_files_in_directories_are_matched_by_name(tmp_path: Path) -> None:
    for shard in ("02", "01", "10"):
        write(tmp_path / "en" / f"{shard}.en.gz", gzip.compress(f"s{shard}\n".encode()))
        write(tmp_path / "hi" / f"{shard}.hi", f"t{shard}\n")
    write(tmp_path / "hi" / ".hidden", "no\n")
    pairs = parallel_files([tmp_path / "en"], [tmp_path / "hi"])
    assert list(pairs) == [("s01", "t01"), ("s02", "t02"), ("s10", "t10")]
    write(tmp_path / "hi" / "03.hi", "t\n")
    message = error_message(lambda: parallel_files([tmp_path / "en"], [tmp_path / "hi"]))
    assert "03.hi has no counterpart" in message
    assert "3 source and 4 target files" in message


def test_one_directory_may_contain_both_languages(tmp_path: Path) -> None:
    for shard in ("a", "b"):
        for language in ("en", "hi"):
            write(tmp_path / f"{shard}.{language}", f"{shard}-{language}\n")
    pairs = open_pairs(DataConfig(pairs=(str(tmp_path),), languages="hi,en"))
    assert list(pairs) == [("a-hi", "a-en"), ("b-hi", "b-en")]


def test_files_of_a_directory_are_named_with_their_suffix_only_where_it_tells_them_apart(tmp_path: Path) -> None:
    for name in ("a.en", "a.hi.gz", "b.txt"):
        write(tmp_path / name, "x\n")
    assert sorted(_files_by_stem(tmp_path)) == ["a.en", "a.hi", "b"]


def test_missing_and_empty_files_are_one_line_errors(tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    file, empty = write(tmp_path / "a.en", "x\n"), write(tmp_path / "empty", "")
    assert "no such file" in error_message(lambda: parallel_files([file], [tmp_path / "b.hi"]))
    assert "empty directory" in error_message(lambda: parallel_files([tmp_path / "none"], [tmp_path / "none"]))
    assert "is a directory, not a file" in error_message(lambda: parallel_files([file], [tmp_path / "none"]))
    assert "empty is empty" in error_message(lambda: list(parallel_files([file], [empty])))
    assert "is empty" in error_message(
        lambda: list(parallel_files([write(tmp_path / "e.gz", gzip.compress(b""))], [file]))
    )
    assert "only once" in error_message(lambda: parallel_files([file], [Path("/dev/null")]))


# TSV and JSON lines


cells = any_text.map(lambda text: text.replace("\n", "").replace("\t", "").rstrip("\r").lstrip("\ufeff"))


@given(st.lists(st.tuples(cells, cells), min_size=1))
@shared_tmp_path
def test_any_cells_round_trip_through_tsv(tmp_path: Path, rows: list[tuple[str, str]]) -> None:
    file = write(tmp_path / "a.tsv", "".join(f"tag\t{source}\t{target}\n" for source, target in rows))
    assert list(tsv([file], 2, 3)) == rows
    assert list(tsv([file], 3, 2)) == [(target, source) for source, target in rows]


def test_columns_may_be_named_in_the_header(tmp_path: Path) -> None:
    file = write(tmp_path / "a.tsv.xz", lzma.compress("\ufeffid\ten\thi\n1\tOne\tएक\n".encode()))
    assert list(tsv([file], "en", "hi")) == [("One", "एक")]
    assert list(open_pairs(DataConfig(pairs=(str(file),), columns="hi,en"))) == [("एक", "One")]
    assert 'no column "enn" in its first line: did you mean "en"?' in error_message(
        lambda: list(tsv([file], "enn", "hi"))
    )


@pytest.mark.parametrize("columns", ["1,", ",2", "1", "1,2,3", ","])
def test_columns_name_the_source_and_the_target(columns: str, tmp_path: Path) -> None:
    file = write(tmp_path / "a.tsv", "x\ty\n")
    with pytest.raises(UserError, match=f"--columns {columns} must name the source and the target"):
        open_pairs(DataConfig(pairs=(str(file),), columns=columns))


def test_missing_columns_are_reported_with_both_numbers(tmp_path: Path) -> None:
    file = write(tmp_path / "a.tsv", "x\ty\tz\nx\ty\n")
    assert error_message(lambda: list(tsv([file], 1, 3))) == f"{file}, line 2: found 2 columns, but column 3 is needed"
    assert "numbered from 1" in error_message(lambda: list(tsv([file], 0, 1)))


@given(st.lists(st.tuples(any_text, any_text), min_size=1), st.booleans())
@shared_tmp_path
def test_any_text_round_trips_through_json_lines(tmp_path: Path, rows: list[tuple[str, str]], ascii: bool) -> None:
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
        ('{"en": "x", "hi": 7}', 'line 2: field "hi" is 7, not a string'),
        ('["x", "y"]', "line 2: expected a JSON object"),
        ('{"en": "x", "hi": "\\ud83d"}', 'line 2: field "hi" has an unpaired surrogate, \\ud83d'),
        ("[" * 200_000, "line 2: JSON nested too deeply"),
    ],
)
def test_malformed_json_lines_are_reported(tmp_path: Path, line: str, expected: str) -> None:
    file = write(tmp_path / "a.jsonl", '{"en": "x", "hi": "y"}\n' + line + "\n")
    assert expected in error_message(lambda: list(jsonl([file], "en", "hi")))


def test_numbers_of_any_size_in_json_lines_are_read_or_reported(tmp_path: Path) -> None:
    rows = ['{"en": "x", "hi": "y", "id": 99999999999999999999}', '{"en": "x", "id": ' + "9" * 5000 + "}"]
    file = write(tmp_path / "a.jsonl", "\n".join(rows))
    assert next(iter(jsonl([file], "en", "hi"))) == ("x", "y")
    assert "a.jsonl, line 2: " in error_message(lambda: list(jsonl([file], "en", "hi")))


# Plain text


def test_documents_end_at_blank_lines_or_at_the_end_of_file(tmp_path: Path) -> None:
    files = [write(tmp_path / "a.txt", "\n\none\ntwo\n \t\nthree\n"), write(tmp_path / "b.txt", "four\n\nfive")]
    assert list(plain_text(files)) == ["one\ntwo", "three", "four", "five"]
    assert list(plain_text(files, "file")) == ["\n\none\ntwo\n \t\nthree", "four\n\nfive"]


def test_long_documents_are_read_in_chunks(tmp_path: Path) -> None:
    text = "\n".join("word " * 200 + str(i) for i in range(5000))
    documents = plain_text([write(tmp_path / "a.txt", text + "\n\nshort\n")])
    chunks = list(documents.chunks())
    assert [chunk.ends_document for chunk in chunks] == [False, False, False, False, True, True]
    assert all(len(chunk.text) < 1.1 * (1 << 20) for chunk in chunks)
    assert list(documents) == [text, "short"]


def test_text_directories_are_searched_for_txt_files(tmp_path: Path) -> None:
    write(tmp_path / "b" / "deep.txt.gz", gzip.compress(b"deep\n"))
    write(tmp_path / "a.txt", "top\n")
    write(tmp_path / "README.md", "no\n")
    write(tmp_path / ".hidden" / "c.txt", "no\n")
    assert list(plain_text([tmp_path])) == ["top", "deep"]
    assert "only blank lines" in error_message(lambda: list(plain_text([write(tmp_path / "z", "\n \n\n")])))
    (tmp_path / "other").mkdir()
    write(tmp_path / "other" / "x.pdf", "no")
    assert "no .txt file" in error_message(lambda: plain_text([tmp_path / "other"]))
    assert 'did you mean "file"' in error_message(lambda: plain_text([tmp_path], "files"))  # type: ignore[arg-type]


# Corpora and options


def test_fingerprint_depends_on_content_and_reading_options(tmp_path: Path) -> None:
    a, b = write(tmp_path / "a.tsv", "x\ty\tz\n"), write(tmp_path / "b.tsv", "x\ty\tz\n")
    fingerprint = tsv([a], 1, 2).fingerprint
    assert tsv([b], 1, 2).fingerprint == fingerprint
    others = {tsv([a], 1, 3).fingerprint, tsv([a, b], 1, 2).fingerprint, parallel_files([a], [b]).fingerprint}
    assert len({fingerprint, plain_text([a]).fingerprint, *others}) == 5
    write(a, "x\ty\tZ\n")
    assert tsv([a], 1, 2).fingerprint != fingerprint


def test_suffixes_choose_the_reader(tmp_path: Path) -> None:
    files = {
        "a.tsv": "One\tएक\n",
        "b.jsonl": '{"en": "One", "hi": "एक"}',
        "c.tmx": '<tmx><tu><tuv lang="en"><seg>One</seg></tuv><tuv lang="hi"><seg>एक</seg></tuv></tu></tmx>',
        "d.po": 'msgid "One"\nmsgstr "एक"',
    }
    for name, content in files.items():
        write(tmp_path / "in" / name, content)
    options = DataConfig(pairs=(str(tmp_path / "in"),), languages="en,hi")
    assert list(open_pairs(options)) == [("One", "एक")] * 4
    assert "--valid-src FILE and --valid-tgt FILE" in error_message(lambda: open_pairs(DataConfig(), "valid_"))
    assert "missing --languages: name the source and the target" in error_message(
        lambda: open_pairs(DataConfig(pairs=(str(tmp_path / "in" / "c.tmx"),)))
    )
    write(tmp_path / "x.csv", "a,b")
    assert 'unsupported format ".csv"' in error_message(
        lambda: open_pairs(DataConfig(pairs=(str(tmp_path / "x.csv"),)))
    )
    assert "not both" in error_message(lambda: open_pairs(DataConfig(src=(str(tmp_path),), pairs=(str(tmp_path),))))


@pytest.mark.parametrize("kind", ["parallel files", "tsv", "jsonl", "tmx", "po"])
def test_reading_takes_constant_memory(tmp_path: Path, kind: str) -> None:
    def corpus(count: int) -> ParallelCorpus:
        name = str(tmp_path / f"{kind}-{count}")
        text = [f"sentence number {i} of this corpus" for i in range(count)]
        if kind == "parallel files":
            file = write(Path(name), "\n".join(text))
            return parallel_files([file], [file])
        if kind == "tsv":
            return tsv([write(Path(name), "\n".join(f"{t}\t{t}" for t in text))])
        if kind == "jsonl":
            return jsonl([write(Path(name), "\n".join(json.dumps({"a": t, "b": t}) for t in text))], "a", "b")
        if kind == "po":
            return po([write(Path(name), "\n".join(f'msgid "{t}"\nmsgstr "{t}"' for t in text))])
        units = "".join(f'<tu><tuv lang="a"><seg>{t}</seg></tuv><tuv lang="b"><seg>{t}</seg></tuv></tu>' for t in text)
        return tmx([write(Path(name), f"<tmx>{units}</tmx>")], "a", "b")

    def peak(pairs: ParallelCorpus, count: int) -> int:
        tracemalloc.start()
        assert sum(1 for _ in pairs) == count
        memory = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return memory

    small, large = corpus(2000), corpus(16_000)
    peak(small, 2000)  # warm-up: compiled patterns and other caches
    assert peak(large, 16_000) < 1.3 * peak(small, 2000) + 100_000


LONG = b"x" * (5 * MAX_LINE_BYTES // 2)


@pytest.mark.parametrize("kind", ["lines", "jsonl", "tmx text", "tmx comment", "tmx attribute"])
def test_an_overlong_line_is_refused_in_constant_memory(tmp_path: Path, kind: str) -> None:
    contents = {
        "lines": b"short\n" + LONG,
        "jsonl": b'{"a": "b", "b": "c"}\n{"a": "' + LONG,
        "tmx text": b'<tmx>\n<tu><tuv lang="a"><seg>' + LONG,
        "tmx comment": b"<tmx>\n<!--" + LONG,
        "tmx attribute": b'<tmx>\n<tu x="' + LONG,
    }
    file = write(tmp_path / "file.gz", gzip.compress(contents[kind], 1))
    readers: dict[str, Callable[[], object]] = {
        "lines": lambda: list(read_lines(file)),
        "jsonl": lambda: list(jsonl([file], "a", "b")),
        "tmx": lambda: list(tmx([file], "a", "b")),
    }
    tracemalloc.start()
    message = error_message(readers[kind.split()[0]])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "line 2: " in message and "longer than" in message
    assert peak < 2.2 * MAX_LINE_BYTES  # the line, and its parts while they are joined


def test_the_longest_line_is_read(tmp_path: Path) -> None:
    lines = ["x" * (MAX_LINE_BYTES - 1), "y" * (MAX_LINE_BYTES - 1)]
    assert list(read_lines(write(tmp_path / "a", "\n".join(lines)))) == lines
