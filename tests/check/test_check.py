"""The data check: problems are found, good data passes, and the cleaned copy is clean."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from rich.cells import cell_len
from typer.testing import CliRunner

from seq2see.check.collect import CheckSettings
from seq2see.check.data import check_data
from seq2see.check.drift import Signatures, first_drift
from seq2see.check.fix import write_clean_copy
from seq2see.check.report import summary, to_json
from seq2see.check.scripts import SCRIPTS, count_letters
from seq2see.cli.check import check
from seq2see.cli.data import sample
from seq2see.cli.data_report import escape_controls, truncate_to_width
from seq2see.cli.options import CommandGroup, repeat_flags
from seq2see.data.corpus import parallel_files, plain_text
from seq2see.data.lines import MAX_LINE_BYTES
from seq2see.data.tokenizer import Tokenizer
from seq2see.errors import UserError
from seq2see.formats.tabular import tsv
from tests.check.sentences import finding, kinds_found, sentences, two_files, write

app = CommandGroup("", check, sample)


def test_examples_name_the_file_among_several(tmp_path: Path) -> None:
    source, target = sentences(100)
    for n in (0, 1):
        write(tmp_path / f"{n}.en", source[n * 50 : n * 50 + 50])
        write(tmp_path / f"{n}.hi", ["" if n else target[0], *target[n * 50 + 1 : n * 50 + 50]])
    pairs = parallel_files([tmp_path / "0.en", tmp_path / "1.en"], [tmp_path / "0.hi", tmp_path / "1.hi"])
    example = finding(check_data(pairs).report, "one-sided").examples[0]
    assert (Path(example.file).name, example.line, example.source) == ("1.en", 1, source[50])


def test_good_data_has_no_findings(tmp_path: Path) -> None:
    source, target = sentences(2000)
    report = check_data(two_files(tmp_path, source, target)).report
    assert kinds_found(report) == set()
    assert report.trainable
    assert (report.count, report.kept) == (2000, 2000)
    assert [side.script for side in report.sides] == ["Latin", "Devanagari"]
    assert report.sides[0].words == sum(len(line.split()) for line in source)
    assert report.sides[1].characters == sum(map(len, target))


def test_each_kind_of_problem_is_located(tmp_path: Path) -> None:
    source, target = sentences(500)
    source[10] = " \u3000"
    source[20] = target[20] = ""
    target[30] = "This English line is in the Hindi file."
    source[40], target[40] = target[40], source[40]
    source[50], target[50] = "the man sees the dog", "हाँ " * 60
    source[60], target[60] = source[3], target[3]
    source[70] = source[4]
    source[80], target[80] = "word " * 30, "शब्द " * 30
    report = check_data(two_files(tmp_path, source, target), CheckSettings(max_length=25, examples=9)).report
    lines = {kind: [example.line - 1 for example in finding(report, kind).examples] for kind in kinds_found(report)}
    assert lines == {
        "one-sided": [10],
        "empty": [20],
        "script": [30, 40],
        "length-ratio": [50],
        "duplicate": [60],
        "multiple-translations": [4, 70],
        "too-long": [50, 80],
    }
    assert finding(report, "duplicate").examples[0].note == "same as line 4"
    assert finding(report, "script").examples[1].note == "source in Devanagari, target in Latin"
    assert finding(report, "script").examples[0].target == target[30]
    assert report.trainable


def test_duplicates_ignore_unicode_composition_and_spaces(tmp_path: Path) -> None:
    source, target = sentences(100)
    source[7], target[7] = "caf\u00e9  is \t old", "क\u093c\u0932म"
    source[9], target[9] = " cafe\u0301 is old", "क\u093c\u0932म "
    assert finding(check_data(two_files(tmp_path, source, target)).report, "duplicate").count == 1


def test_names_numbers_and_short_lines_are_not_reported(tmp_path: Path) -> None:
    source, target = sentences(300)
    for i, (left, right) in enumerate(
        [("Linux", "Linux"), ("42", "42"), ("OpenOffice.org Writer", "OpenOffice.org Writer"), ("Yes", "जी हाँ बिलकुल"),
         ("http://example.org/a/long/path", "http://example.org/a/long/path"), ("GS", "दक्षिण जॉर्जिया द्वीप"),
         ("%(index)d of %(total)d", "%(total)d का %(index)d"), ("Hi!", "नमस्ते, आप कैसे हैं?")]
    ):  # fmt: skip
        source[i * 10], target[i * 10] = left, right
    assert kinds_found(check_data(two_files(tmp_path, source, target)).report) == set()


def test_untranslated_pairs_are_reported_unless_common(tmp_path: Path) -> None:
    source, _ = sentences(200)
    other, _ = sentences(200, seed=1)
    few = [*source[:3], *other[3:]]
    assert finding(check_data(two_files(tmp_path, source, few)).report, "untranslated").count == 3
    half = [*source[:100], *other[100:]]
    assert finding(check_data(two_files(tmp_path, source, half)).report, "untranslated").count == 0


# Misaligned files


@pytest.mark.parametrize("line", [60, 500, 940])
@pytest.mark.parametrize("lost", [1, 3])
@pytest.mark.parametrize("side", ["source", "target"])
def test_lost_line_is_located_within_a_few_lines(tmp_path: Path, line: int, lost: int, side: str) -> None:
    source, target = sentences(1000, seed=line)
    del (source if side == "source" else target)[line - 1 : line - 1 + lost]
    report = check_data(two_files(tmp_path, source, target)).report
    found = finding(report, "line-count")
    assert not report.trainable
    assert found.title.endswith(f"has {len(source):,} lines but {tmp_path / 'a.hi'} has {len(target):,}")
    assert abs(found.examples[0].line - line) <= 5
    longer = "a.hi" if side == "source" else "a.en"
    assert f"{longer} has {'1 extra line' if lost == 1 else '3 extra lines'}" in found.examples[0].note


def test_truncated_file_is_not_reported_as_misaligned(tmp_path: Path) -> None:
    source, target = sentences(1000)
    example = finding(check_data(two_files(tmp_path, source, target[:700])).report, "line-count").examples[0]
    assert example.line == 701
    assert "the end of one file may be missing" in example.note


def test_misaligned_files_of_equal_length_are_found(tmp_path: Path) -> None:
    source, target = sentences(2000)
    del source[500]
    del target[1500]
    report = check_data(two_files(tmp_path, source, target)).report
    assert abs(finding(report, "misaligned").examples[0].line - 501) <= 5
    assert report.trainable


def test_first_of_several_lost_lines_is_located(tmp_path: Path) -> None:
    source, target = sentences(3000)
    del target[400]
    del target[2000]
    example = finding(check_data(two_files(tmp_path, source, target)).report, "line-count").examples[0]
    assert abs(example.line - 401) <= 5
    assert "a.en has 1 extra line" in example.note


def test_corpus_sorted_by_length_is_not_reported_as_misaligned() -> None:
    rng = np.random.default_rng(0)
    for _ in range(5):
        lengths = np.sort(rng.normal(3.5, 0.5, 30_000))
        marks = np.zeros(30_000, np.uint8)
        source, target = (
            Signatures((lengths + rng.normal(0, 0.1, 30_000)).astype(np.float32), marks) for _ in range(2)
        )
        assert first_drift(source, target) is None


# Unreadable input


def test_invalid_utf8_is_reported_and_the_rest_is_checked(tmp_path: Path) -> None:
    source, target = sentences(100)
    pairs = two_files(tmp_path, source, target)
    raw = (tmp_path / "a.hi").read_bytes().split(b"\n")
    raw[6], raw[8] = b"ab\xff", b"\xe9"
    (tmp_path / "a.hi").write_bytes(b"\n".join(raw))
    report = check_data(pairs).report
    found = finding(report, "encoding")
    assert found.count == 2
    assert [(Path(e.file).name, e.line, e.note) for e in found.examples] == [
        ("a.hi", 7, "byte 3 (0xff) is not UTF-8"),
        ("a.hi", 9, "byte 1 (0xe9) is not UTF-8"),
    ]
    assert report.count == 98
    assert not report.trainable


def test_malformed_rows_are_counted(tmp_path: Path) -> None:
    source, target = sentences(100)
    rows = [f"{a}\t{b}" for a, b in zip(source, target, strict=True)]
    rows[5] = "one column"
    report = check_data(tsv([write(tmp_path / "a.tsv", rows)])).report
    assert (finding(report, "malformed").count, finding(report, "malformed").examples[0].line) == (1, 6)
    assert "line-count" not in {f.kind for f in report.findings}
    assert not report.trainable


@pytest.mark.parametrize(
    ("header", "columns", "expected"),
    [
        (False, (1, 3), "column 1 of a.tsv has no letters: --columns 3,5"),
        (False, (2, 3), "column 2 of a.tsv has only 1 different value in 60 rows: --columns 3,5"),
        (True, ("en", "score"), "column score of a.tsv has no letters: --columns en,hi"),
        (True, (1, 2), "column 1 of a.tsv has no letters: --columns 3,5"),
        (True, ("en", "hi"), None),
        (False, (3, 5), None),
    ],
)
def test_a_column_of_tags_or_ids_read_as_text_is_named_with_the_right_columns(
    tmp_path: Path, header: bool, columns: tuple[int | str, int | str], expected: str | None
) -> None:
    rows = [f"{i}\tnews\tthe cat number {i} sleeps\t0.9\tबिल्ली नंबर {i} सोती है" for i in range(60)]
    file = write(tmp_path / "a.tsv", ["id\ttopic\ten\tscore\thi"] * header + rows)
    report = check_data(tsv([file], *columns)).report
    assert (finding(report, "column").title if finding(report, "column").count else None) == expected
    assert report.trainable  # a warning only: the values may be meant


def test_repeated_sentences_and_short_files_are_not_taken_for_tags(tmp_path: Path) -> None:
    repeated = [f"every source has many translations here\tnumber {i} of them" for i in range(60)]
    for rows in (repeated, ["1\tone", "2\ttwo"]):
        assert not finding(check_data(tsv([write(tmp_path / "a.tsv", rows)])).report, "column").count


def test_an_overlong_line_is_reported_and_left_out(tmp_path: Path) -> None:
    source, target = sentences(50)
    source[9] += " word" * (MAX_LINE_BYTES // 5)
    pairs = two_files(tmp_path, source, target)
    checked = check_data(pairs)
    assert finding(checked.report, "malformed").examples[0].note == f"longer than {MAX_LINE_BYTES:,} bytes"
    assert finding(checked.report, "malformed").examples[0].line == 10
    write_clean_copy(pairs, checked, tmp_path / "clean")
    assert (tmp_path / "clean" / "a.hi").read_text().splitlines() == target[:9] + target[10:]
    report = check_data(plain_text([tmp_path / "a.en"])).report
    assert finding(report, "malformed").count == 1
    assert not report.trainable


# Sentences of the validation and test sets


def test_held_out_sentences_in_training_are_found(tmp_path: Path) -> None:
    source, target = sentences(300)
    valid = two_files(tmp_path / "valid", ["new words here", source[5], source[6]], ["नया", target[5], "और"])
    test = two_files(tmp_path / "test", ["all new"], ["नया"])
    checked = check_data(two_files(tmp_path, source, target), valid=valid, test=test)
    found = finding(checked.report, "valid")
    assert (found.count, found.total) == (2, 3)
    assert found.title == "validation sentences in the training data, 1 with the same translation"
    assert [(e.line, e.note) for e in found.examples] == [(6, "line 2 of a.en"), (7, "line 3 of a.en")]
    assert finding(checked.report, "test").count == 0
    assert checked.report.kept == 298


def test_malformed_validation_set_is_an_error(tmp_path: Path) -> None:
    train = two_files(tmp_path, *sentences(50))
    valid = parallel_files([write(tmp_path / "v.en", ["a", "b"])], [write(tmp_path / "v.hi", ["a"])])
    with pytest.raises(UserError, match="has 2 lines but"):
        check_data(train, valid=valid)


# The command


def run(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["check", *map(str, arguments)])
    if isinstance(result.exception, UserError):
        return 1, str(result.exception)
    return result.exit_code, result.output


def test_exit_codes_say_whether_training_is_possible(tmp_path: Path) -> None:
    source, target = sentences(100)
    two_files(tmp_path, source, [*target[:50], "", *target[51:]])
    files = ("--src", tmp_path / "a.en", "--tgt", tmp_path / "a.hi")
    code, output = run(*files)
    assert code == 0
    assert "one side empty" in output
    (tmp_path / "a.hi").write_bytes(b"\xff\n" + (tmp_path / "a.hi").read_bytes().split(b"\n", 1)[1])
    assert run(*files)[0] == 1
    assert run(*files, "--fix", tmp_path / "out")[0] == 0
    write(tmp_path / "a.hi", target[1:])
    assert run(*files)[0] == 1
    assert run(*files, "--text", tmp_path / "a.en") == (
        1,
        "use either --text, or pairs (--src and --tgt, or --pairs), not both",
    )
    assert "missing data: use --src FILE and --tgt FILE, --pairs FILE, --text FILE" in run()[1]


def test_json_contains_the_whole_report(tmp_path: Path) -> None:
    source, target = sentences(100)
    pairs = two_files(tmp_path, source, [*target[:99], target[0] * 9])
    code, output = run("--src", tmp_path / "a.en", "--tgt", tmp_path / "a.hi", "--json", "--fix", tmp_path / "out")
    document = json.loads(output)
    assert document.pop("cleaned") == {
        "files": [str(tmp_path / "out" / "a.en"), str(tmp_path / "out" / "a.hi")],
        "kept": 99,
        "removed": {"length-ratio": 1},
    }
    assert document == json.loads(json.dumps(to_json(check_data(pairs).report)))
    assert code == 0


def test_tokens_are_counted_with_a_tokenizer(tmp_path: Path) -> None:
    source, target = sentences(200)
    two_files(tmp_path, source, target)
    tokenizer = Tokenizer.train(iter(source + target), vocab_size=400)
    tokenizer.save(tmp_path / "tokenizer.json")
    code, output = run(
        "--src", tmp_path / "a.en", "--tgt", tmp_path / "a.hi", "--tokenizer", tmp_path, "--max-length", 30, "--json"
    )
    document = json.loads(output)
    counts = [len(tokenizer.encode(line)) for line in target]
    assert document["sides"][1]["tokens"] == sum(counts)
    either = [max(len(tokenizer.encode(a)), b) > 30 for a, b in zip(source, counts, strict=True)]
    assert next(f["count"] for f in document["findings"] if f["kind"] == "too-long") == sum(either)
    assert code == 0


def test_options_accept_several_files(tmp_path: Path) -> None:
    source, target = sentences(60)
    for n in (0, 1):
        write(tmp_path / f"{n}.en", source[n::2])
        write(tmp_path / f"{n}.hi", target[n::2])
    english, hindi = sorted(tmp_path.glob("*.en")), sorted(tmp_path.glob("*.hi"))
    document = json.loads(run("--src", *english, "--json", "--tgt", hindi[0], "--tgt", hindi[1])[1])
    assert document["count"] == 60
    assert repeat_flags(["--src", "a", "b", "--json", "--fix", "o", "p", "-"], {"--src"}) == [
        "--src", "a", "--src", "b", "--json", "--fix", "o", "p", "-",
    ]  # fmt: skip


def test_summary_is_two_to_six_lines(tmp_path: Path) -> None:
    source, target = sentences(300)
    clean = summary(check_data(two_files(tmp_path, source, target)).report)
    assert clean.count("\n") == 1
    assert "300 pairs" in clean
    assert clean.endswith("data: no problems found")
    for i in range(10, 20):
        source[i], target[i + 20], target[i + 40] = "", "Another English line is here too.", "हाँ" * 100
        source[i + 60], target[i + 60] = "word " * 2000, "शब्द " * 2000
        source[i + 80], target[i + 80] = "", ""
    text = summary(check_data(two_files(tmp_path, source, target)).report)
    assert 3 <= text.count("\n") + 1 <= 6
    assert "both sides empty: 10 (3.3%), first at a.en:91" in text


# In the terminal


@pytest.mark.parametrize("width", [5, 9, 14, 30])
def test_text_is_truncated_by_display_width_between_graphemes(width: int) -> None:
    for text in ("क्षत्रिय हिन्दी में लिखते हैं " * 3, "👨‍👩‍👧‍👦" * 20, "漢字" * 40, "e\u0301" * 50, "plain words " * 9):
        short = truncate_to_width(text, width)
        assert cell_len(short) <= width
        assert short.endswith("…")
        rest = text[len(short.removesuffix("…").rstrip()) :].lstrip()
        assert rest[0] not in "\u094d\u093f\u0940\u093e\u200d\u0301"
        assert not short.removesuffix("…").endswith(("\u094d", "\u200d"))
    assert truncate_to_width("नमस्ते", 10) == "नमस्ते"


def test_control_characters_are_escaped(tmp_path: Path) -> None:
    assert escape_controls("a\x1b[31mb\u202ec\td\ne") == "a⟨U+001B⟩[31mb⟨U+202E⟩c⇥d↵e"
    assert escape_controls("क्\u200dष") == "क्\u200dष"
    source, target = sentences(50)
    target[5] = "evil \x1b]0;title\x07 line in the wrong script"
    two_files(tmp_path, source, target)
    code, output = run("--src", tmp_path / "a.en", "--tgt", tmp_path / "a.hi")
    assert code == 0
    assert "evil ⟨U+001B⟩]0;title" in output
    assert "\x1b" not in output


def test_scripts_are_detected() -> None:
    samples = {
        "Latin": "Grüße ｆｕｌｌ", "Devanagari": "हिन्दी", "Cyrillic": "Привет", "Han or kana": "日本語のテキスト",
        "Hangul": "한국어", "Arabic": "مرحبا", "Greek": "Γειά", "Tamil": "தமிழ்", "none": "123 !? 👍",
    }  # fmt: skip
    counts = count_letters(list(samples.values()))
    assert [SCRIPTS[row[1:].argmax() + 1] if row[1:].any() else "none" for row in counts] == list(samples)
    assert counts[0, SCRIPTS.index("Latin")] == 9
    assert counts.sum() == sum(map(len, samples.values()))


def test_help_does_not_import_heavy_modules() -> None:
    program = (
        "import sys; import seq2see.cli.check; "
        "heavy = {'numpy', 'torch', 'tokenizers', 'rich.table'} & set(sys.modules); assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
