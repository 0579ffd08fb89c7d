"""The data check of pictures and sounds."""

import shutil
from pathlib import Path

import pytest
from PIL import Image

from seq2see.check.data import check_data, content_hash
from seq2see.check.report import summary
from seq2see.config import DataConfig
from seq2see.data.corpus import open_media
from seq2see.errors import UserError
from seq2see.train import start as run
from tests.formats.media import cli
from tests.formats.pictures import findings, message

# Checks


def test_a_leaked_file_is_found_under_another_path_and_as_a_copy(folder: Path) -> None:
    same = findings("--pictures", "train.tsv", "--valid-pictures", folder / "train.tsv")["valid"]
    assert same["count"] == 3 and "files" in same["title"]
    (folder / "elsewhere").mkdir()
    shutil.copy("1.png", "elsewhere/copy.png")
    Path("elsewhere/list.tsv").write_text("copy.png\tanother text\n")
    copied = findings("--pictures", "train.tsv", "--valid-pictures", "elsewhere/list.tsv")["valid"]
    assert copied["count"] == 1
    assert copied["examples"][0]["source"] == "1.png" and "elsewhere/copy.png" in copied["examples"][0]["note"]
    assert findings("--pictures", "train.tsv", "--valid-pictures", "valid.tsv")["valid"]["count"] == 0


def test_a_copy_with_the_same_text_is_a_duplicate_and_each_file_is_hashed_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy("0.png", "copy.png")
    Path("list.tsv").write_text("0.png\tzero\ncopy.png\tzero\n0.png\tzero\ncopy.png\tanother\n1.png\tzero\n")
    hashed: list[str] = []

    def hashing(path: str) -> str:
        hashed.append(path)
        return content_hash(path)

    monkeypatch.setattr("seq2see.check.data.content_hash", hashing)
    duplicate = findings("--pictures", "list.tsv")["duplicate"]
    assert duplicate["count"] == 2 and duplicate["examples"][0]["note"] == "same as 0.png"
    assert sorted(hashed) == ["0.png", "1.png", "copy.png"]


def test_training_finds_leaks_under_other_paths_without_reading_the_files(folder: Path) -> None:
    Path("linked").symlink_to(folder)
    Path("list.tsv").write_text("0.png\tzero\n./0.png\tzero\nlinked/1.png\tone\n")
    for file in folder.glob("*.png"):
        file.write_bytes(b"")
    pairs, valid = open_media([Path("list.tsv")], "pictures"), open_media([folder / "train.tsv"], "pictures")
    counts = {finding.kind: finding.count for finding in check_data(pairs, valid=valid).report.findings}
    assert counts["duplicate"] == 1 and counts["valid"] == 3


def test_training_reports_leaks_and_offers_no_copy(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    Path("valid.tsv").write_text(f"{folder / '1.png'}\tone\n")
    data = DataConfig(pictures=("train.tsv",), valid_pictures=("valid.tsv",))
    settings = ["train.steps=1", "model.picture_height=8", "model.patch_size=4", "text.tokenizer=word"]
    run.train(data, folder / "run", preset="tiny-vision", settings=settings, device="cpu")
    told = " ".join(capfd.readouterr().err.split())
    assert "validation files in the training data: 1 (33.3%)" in told and "cleaned copy" not in told


def test_too_long_names_the_preset_whose_limit_was_assumed(folder: Path) -> None:
    Image.new("L", (10_000, 8)).save("wide.png")
    Path("list.tsv").write_text("0.png\tzero\nwide.png\twide\n")
    too_long = findings("--pictures", "list.tsv")["too-long"]
    assert too_long["count"] == 1 and too_long["title"] == "too long for the preset tiny-vision (at most 1,024 tokens)"


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (["--max-length", "1024"], "--max-length"),
        (["--test-src", "train.tsv"], "--test-src"),
        (["--test-pairs", "train.tsv"], "--test-pairs"),
        (["--valid-pairs", "train.tsv"], "--valid-pairs"),
        (["--valid-sounds", "train.tsv"], "--valid-sounds"),
        (["--boundaries", "blank-line"], "--boundaries"),
        (["--tokenizer", "en-fr"], "--tokenizer"),
        (["--languages", "en,hi"], "--languages"),
        (["--sounds", "train.tsv"], "--sounds"),
        (["--text", "train.tsv"], "--text"),
        (["--fix", "clean"], "--fix"),
    ],
)
def test_an_option_that_does_nothing_for_pictures_is_refused_by_name(
    folder: Path, arguments: list[str], option: str
) -> None:
    result = cli("data", "check", "--pictures", "train.tsv", *arguments)
    assert message(result) == f"{option} does not apply to --pictures: leave it out"
    assert isinstance(result.exception, UserError) and result.exception.exit_code == 2


def test_validation_pictures_are_refused_for_text(folder: Path) -> None:
    result = cli("data", "check", "--pairs", "train.tsv", "--valid-pictures", "valid.tsv")
    assert message(result) == "--valid-pictures needs --pictures or --sounds: leave it out"


def test_no_cleaned_copy_is_offered_for_pictures(folder: Path) -> None:
    Path("list.tsv").write_text("0.png\tzero\n0.png\tzero\n")
    result = cli("data", "check", "--pictures", "list.tsv")
    assert result.exit_code == 0 and "see the warnings above" in result.stdout and "--fix" not in result.stdout
    told = summary(check_data(open_media([Path("list.tsv")], "pictures")).report)
    assert "duplicate pairs" in told and told.endswith("on these files for examples")
    Path("list.tsv").write_text("0.png\t \n")
    result = cli("data", "check", "--pictures", "list.tsv")
    assert result.exit_code == 1 and "no usable pairs" in result.stdout
