"""The cleaned copy of checked data, and the check of plain text."""

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seq2see.check.data import check_data
from seq2see.check.fix import write_clean_copy
from seq2see.data.corpus import parallel_files, plain_text
from seq2see.errors import UserError
from seq2see.formats.po import po
from seq2see.formats.tabular import jsonl
from tests.check.sentences import ENGLISH, finding, kinds_found, sentences, two_files, write

# The cleaned copy


def test_cleaned_copy_is_clean_and_keeps_everything_else(tmp_path: Path) -> None:
    source, target = sentences(500)
    source[10] = ""
    target[30] = "This English line is in the Hindi file."
    source[60], target[60] = source[3], target[3]
    pairs = two_files(tmp_path, source, target)
    raw = (tmp_path / "a.hi").read_bytes().split(b"\n")
    raw[6] = b"\xff"
    (tmp_path / "a.hi").write_bytes(b"\n".join(raw))
    cleaned = write_clean_copy(pairs, check_data(pairs), tmp_path / "out")
    assert cleaned.removed == {"encoding": 1, "one-sided": 1, "script": 1, "duplicate": 1}
    assert cleaned.files == (tmp_path / "out" / "a.en", tmp_path / "out" / "a.hi")
    copy = parallel_files([cleaned.files[0]], [cleaned.files[1]])
    kept = [i for i in range(500) if i not in (6, 10, 30, 60)]
    assert list(copy) == [(source[i], target[i]) for i in kept]
    assert kinds_found(check_data(copy).report) == set()
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["a.en", "a.hi"]


any_sentence = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


@given(st.lists(st.tuples(any_sentence, any_sentence), min_size=1, max_size=12))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=40)
def test_cleaned_copy_keeps_the_text(tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str]]) -> None:
    folder = tmp_path_factory.mktemp("fix")
    pairs = jsonl([write(folder / "a.jsonl", [json.dumps({"en": a, "x.hi": b}) for a, b in rows])], "en", "x.hi")
    checked = check_data(pairs)
    kept = [pair for pair, reason in zip(rows, checked.reasons, strict=True) if not reason]
    if not kept:
        return
    cleaned = write_clean_copy(pairs, checked, folder / "out")
    assert [file.name for file in cleaned.files] == ["a.en", "a.hi"]

    for side in (0, 1):
        lines = cleaned.files[side].read_bytes().decode().split("\n")[:-1]
        assert [line.split() for line in lines] == [pair[side].split() for pair in kept]


def test_unsafe_copies_are_refused(tmp_path: Path) -> None:
    source, target = sentences(50)
    pairs = two_files(tmp_path, source, target)
    with pytest.raises(UserError, match="already exists"):
        write_clean_copy(pairs, check_data(pairs), tmp_path)
    unequal = two_files(tmp_path / "unequal", source, target[1:])
    with pytest.raises(UserError, match="would pair the wrong lines"):
        write_clean_copy(unequal, check_data(unequal), tmp_path / "out")
    nothing = two_files(tmp_path / "nothing", ["", ""], ["", ""])
    checked = check_data(nothing)
    assert not checked.report.trainable
    with pytest.raises(UserError, match="nothing would be kept"):
        write_clean_copy(nothing, checked, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_failed_copy_leaves_nothing_behind(tmp_path: Path) -> None:
    pairs = two_files(tmp_path, *sentences(50))
    checked = check_data(pairs)
    (tmp_path / "a.hi").write_text("another text now\n" * 7)
    with pytest.raises(UserError, match="changed during the check"):
        write_clean_copy(pairs, checked, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def test_po_is_cleaned_to_two_plain_files(tmp_path: Path) -> None:
    entries = ['msgid "Open\\nit"\nmsgstr "खोलें\\n"', 'msgid "Close"\nmsgstr "बंद"', 'msgid "Close"\nmsgstr "बंद"']
    pairs = po([write(tmp_path / "app.po", entries)])
    cleaned = write_clean_copy(pairs, check_data(pairs), tmp_path / "out")
    assert [file.name for file in cleaned.files] == ["app.source", "app.target"]
    assert cleaned.files[0].read_text(encoding="utf-8") == "Open it\nClose\n"


# Plain text


def test_text_is_counted_and_duplicate_documents_are_removed(tmp_path: Path) -> None:
    long = " ".join(ENGLISH * 2)
    first = write(tmp_path / "a.txt", ["Yes.", "", long, "more", "", "Yes.", "", long + "  more"])
    second = write(tmp_path / "b.txt", [long, "more", "", "other"])
    valid = plain_text([write(tmp_path / "v.txt", [long, "more", "", "Yes."])])
    documents = plain_text([first, second])
    checked = check_data(documents, valid=valid)
    assert (checked.report.count, checked.report.sides[0].sentences) == (6, 8)
    assert [e.line for e in finding(checked.report, "duplicate").examples] == [8, 1]
    assert finding(checked.report, "duplicate").examples[1].note == "same as line 3 of a.txt"
    assert (finding(checked.report, "valid").count, finding(checked.report, "valid").total) == (1, 2)
    cleaned = write_clean_copy(documents, check_data(documents), tmp_path / "out")
    assert list(plain_text(cleaned.files)) == ["Yes.", f"{long}\nmore", "Yes.", "other"]
    assert cleaned.removed == {"duplicate": 2}


def test_long_documents_are_compared_in_full(tmp_path: Path) -> None:
    lines = [" ".join(ENGLISH) + f" {i}" for i in range(20_000)]
    files = [write(tmp_path / name, lines) for name in ("a.txt", "b.txt")]
    files.append(write(tmp_path / "c.txt", [lines[0].upper(), *lines[1:]]))
    documents = plain_text(files, "file")
    report = check_data(documents).report
    assert (report.count, finding(report, "duplicate").count) == (3, 1)
    assert finding(report, "duplicate").examples[0].source.startswith(f"{lines[0]}\n{lines[1]}\n")
    cleaned = write_clean_copy(documents, check_data(documents), tmp_path / "out")
    assert [file.name for file in cleaned.files] == ["a.txt", "c.txt"]
    assert cleaned.files[0].read_bytes() == files[0].read_bytes()
