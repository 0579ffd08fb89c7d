"""Pictures and sounds on the command line: every option has its effect or is refused, and no file is lost."""

import json
import os
import shutil
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from seq2see.config import Config, DataConfig, ModelConfig, TextConfig, TrainConfig
from seq2see.data.batch import Sequences
from seq2see.data.batches import Batches
from seq2see.data.corpus import open_media
from seq2see.data.lines import ReadCallbacks, ReadIssue
from seq2see.decode.generate import translate_tokens
from seq2see.decode.search import Search
from seq2see.errors import UserError
from seq2see.formats.media.pairs import open_media_reader
from seq2see.formats.media.pictures import join_patches
from seq2see.storage.pipeline import Pipeline
from seq2see.train import start as run
from seq2see.train.prepare_data import TrainingData, prepare_translation
from tests.formats.media import PICTURES, SOUNDS, cli, tone, write_wav
from tests.formats.pictures import findings, message, noise
from tests.models import save, tiny_model


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of pictures, not trained."""
    return save(tiny_model(["zero one two three"], PICTURES), tmp_path_factory.mktemp("models") / "reader")


# Directories


def read_issues(folder: Path) -> tuple[list[str], list[ReadIssue]]:
    issues: list[ReadIssue] = []
    pairs = open_media_reader(folder, "pictures").read(ReadCallbacks(issues.append))
    return [Path(pair.source).name for pair in pairs], issues


def test_a_file_of_a_directory_is_never_dropped_silently(folder: Path) -> None:
    data = folder / "data"
    data.mkdir()
    for name in ("a.png", "b.jpg", "b.png", "c.avif", "d.xyz", "e.wav", "f.md", "g.png"):
        (data / name).write_bytes(b"content")
    for name in "abcdeg":
        (data / f"{name}.txt").write_text(name)
    (data / "g").mkdir()
    names, issues = read_issues(data)
    assert names == ["a.png", "b.jpg", "c.avif", "g.png"]
    assert [issue.message.partition(": ")[2].partition(":")[0] for issue in issues] == [
        "shares b.txt with b.jpg",
        'has a text beside it, but ".xyz" is not a suffix of pictures',
    ]
    with pytest.raises(UserError, match=r"^data/b\.png: shares b\.txt with b\.jpg: give each a name"):
        list(open_media([Path("data")], "pictures"))
    found = findings("--pictures", "data")
    assert found["malformed"]["count"] == 2 and found["unreadable"]["examples"][0]["file"] == "data/a.png"


def test_wrong_lists_and_directories_are_named(reader: Path, folder: Path) -> None:
    only = folder / "onlypics"
    only.mkdir()
    shutil.copy("0.png", only)
    cases = {"onlypics": "onlypics has 1 picture, but no text files such as 0.txt", "missing": "missing: no such file"}
    for path, expected in cases.items():
        assert message(cli("evaluate", "--model", reader, "--pictures", path, "--device", "cpu")) == expected
        train = ["train", "--pictures", path, "--out", folder / "run", "--steps", "1", "--device", "cpu"]
        assert message(cli(*train)) == expected
    shutil.copy("1.png", only)
    assert "has 2 pictures, but" in message(cli("data", "check", "--pictures", "onlypics"))


# Output files


@pytest.mark.parametrize("link", ["", "symlink", "hardlink", "directory"])
def test_a_translation_never_replaces_its_source(folder: Path, reader: Path, link: str) -> None:
    source = folder / "note.md" if link == "directory" else folder / "0.png"
    source.touch()
    before, out = source.read_bytes(), source
    if link == "directory":
        out = folder / "again"
        out.symlink_to(folder)
    elif link:
        out = folder / "link.png"
        (os.symlink if link == "symlink" else os.link)(source, out)
    # The model does not exist: nothing was loaded or computed.
    told = message(cli("translate", "--model", folder / "none", source, "--out", out))
    assert "would overwrite" in told and str(source) in told
    assert source.read_bytes() == before


def test_other_inputs_are_not_replaced_either(folder: Path) -> None:
    Path("terms.tsv").write_text("a\tb\n")
    Path("in.txt").write_text("a\n")
    arguments = ("translate", "--model", folder / "none", "in.txt", "--glossary", "terms.tsv", "--out", "./terms.tsv")
    assert "would overwrite terms.tsv" in message(cli(*arguments))
    assert "would overwrite 0.png" in message(cli("explain", "--model", folder / "none", "0.png", "--out", "./0.png"))


def test_a_po_file_is_still_translated_in_place(folder: Path) -> None:
    model = save(tiny_model(["zero one two three"]), folder / "text")
    Path("a.po").write_text('msgid "zero one"\nmsgstr ""\n')
    result = cli("translate", "--model", model, "a.po", "--out", "a.po", "--device", "cpu")
    assert result.exit_code == 0, result.output
    assert 'msgid "zero one"' in Path("a.po").read_text()


# Reading


def evaluate_texts(monkeypatch: pytest.MonkeyPatch, reader: Path, texts: list[str], *arguments: object) -> str:
    """What `evaluate` prints if the model reads these texts in the pictures of train.tsv."""
    monkeypatch.setattr(Pipeline, "transcribe", lambda self, paths, **search: texts)
    result = cli("evaluate", "--model", reader, "--pictures", "train.tsv", "--device", "cpu", *arguments)
    assert result.exit_code == 0, result.output
    return str(result.stdout)


def test_short_texts_are_not_scored_by_bleu_and_only_errors_are_listed(
    folder: Path, reader: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = ["zero", "one", "too"]
    printed = evaluate_texts(monkeypatch, reader, texts)
    assert "BLEU" not in printed and "character error rate" in printed and "chrF++" in printed
    assert "By reference length" not in printed and "Recall of reference words" not in printed
    worst = printed.partition("Worst translations")[2]
    assert "too" in worst and "zero" not in worst and "one" not in worst
    assert "Worst" not in evaluate_texts(monkeypatch, reader, ["zero", "one", "two"])
    report = json.loads(evaluate_texts(monkeypatch, reader, texts, "--json"))
    assert [score["name"] for score in report["scores"]] == ["BLEU", "chrF++", "TER"]
    assert len(report["worst"]) == 3 and report["by_length"] and report["by_frequency"]


def test_captions_are_scored_by_bleu(folder: Path, reader: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["a dog runs on the beach", "two men play in the snow", "a child"]
    Path("train.tsv").write_text("".join(f"{i}.png\t{text}\n" for i, text in enumerate(texts)))
    printed = evaluate_texts(monkeypatch, reader, [texts[0], texts[1], "a woman"])
    scores, _, details = printed.partition("By reference length")
    assert "BLEU" in scores and "%" in details.partition("Recall of reference words")[2]
    worst = printed.partition("Worst translations")[2]
    assert "a woman" in worst and "beach" not in worst


def test_explain_of_words_says_that_the_model_reads_pictures(reader: Path) -> None:
    told = message(cli("explain", "some\nwords", "--model", reader, "--device", "cpu"))
    assert told == f'{reader} reads pictures, but "some words" is no file: give the path of one'


@pytest.mark.parametrize("command", [("translate", "0.png"), ("evaluate", "--pictures", "valid.tsv")])
def test_the_beam_reaches_the_search(
    folder: Path, reader: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    searches: list[Search] = []

    def record(network: Any, sources: Any, special: Any, search: Search) -> Any:
        searches.append(search)
        return translate_tokens(network, sources, special, search)

    monkeypatch.setattr("seq2see.storage.pipeline.translate_tokens", record)
    for beam in (1, 3):
        assert cli(*command, "--model", reader, "--beam", beam, "--device", "cpu").exit_code == 0
    assert [search.beam for search in searches] == [1, 3]


@pytest.mark.parametrize(
    ("name", "content", "option"),
    [
        ("list.tsv", "zero\tunused\t0.png\n", ("--columns", "3,1")),
        ("list.tsv", "label\tfile\nzero\t0.png\n", ("--columns", "file,label")),
        ("list.jsonl", '{"label": {"en": "zero"}, "file": "0.png"}\n', ("--fields", "file,label.en")),
    ],
)
def test_columns_and_fields_name_the_file_and_its_text(
    folder: Path, reader: Path, monkeypatch: pytest.MonkeyPatch, name: str, content: str, option: tuple[str, str]
) -> None:
    Path(name).write_text(content)
    result = cli("evaluate", "--model", reader, "--pictures", name, *option, "--json", "--device", "cpu")
    assert result.exit_code == 0, result.output
    (row,) = json.loads(result.stdout)["worst"]
    assert (row["source"], row["reference"]) == ("0.png", "zero")
    data = data_of_train(monkeypatch, "--pictures", name, "--valid-pictures", name, *option)
    assert prepare(data, folder / "tokens").valid_pairs == [("0.png", "zero")]
    assert cli("data", "check", "--pictures", name, *option).exit_code == 0


# Training data


def data_of_train(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> DataConfig:
    """The data that `seq2see train` would train on."""
    found: list[DataConfig] = []
    monkeypatch.setattr(run, "train", lambda data, out, **options: found.append(data))
    result = cli("train", "--out", "run", *arguments)
    assert result.exit_code == 0, result.output
    return found[0]


def prepare(data: DataConfig, folder: Path, model: ModelConfig = PICTURES, **train: int) -> TrainingData:
    """Prepares batches as training does."""
    settings = TrainConfig(batch_tokens=100, gradient_accumulation=1, **train)  # type: ignore[arg-type]
    config = Config(model=model, data=data, train=settings, text=TextConfig(tokenizer="word", vocab_size=50))
    return prepare_translation(config, folder, None, 3, static=False)


def sources(batches: Batches) -> list[NDArray[Any]]:
    """The sources of all examples in an epoch, in the order of the corpus."""
    found: dict[int, NDArray[Any]] = {}
    for batch in batches.iterate(epoch=0):
        assert isinstance(batch.source, Sequences)
        parts = np.split(batch.source.tokens, np.cumsum(batch.source.lengths)[:-1])
        found |= dict(zip(map(int, batch.indices), parts, strict=True))
    return [found[index] for index in sorted(found)]


@pytest.mark.parametrize("kind", ["pictures", "sounds"])
def test_train_validates_on_the_given_files(folder: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    model = PICTURES
    if kind == "sounds":
        pytest.importorskip("soundfile")
        model = SOUNDS
        for i in range(4):
            write_wav(folder / f"{i}.png", tone(300 * (i + 1), 0.1))  # recognised by content
    data = data_of_train(monkeypatch, f"--{kind}", "train.tsv", f"--valid-{kind}", "valid.tsv")
    prepared = prepare(data, folder / "tokens", model)
    assert prepared.valid_pairs == [("3.png", "three")] and prepared.train_count == 3


def test_a_model_of_three_channels_is_trained_on_colours(folder: Path) -> None:
    for i in range(4):
        noise(folder / f"{i}.png", seed=i, channels=3)
    data = DataConfig(pictures=("train.tsv",), valid_pictures=("valid.tsv",))
    colours = sources(prepare(data, folder / "tokens", replace(PICTURES, channels=3)).batches)
    for i, patches in enumerate(colours):
        pixels = np.asarray(Image.open(f"{i}.png"))
        np.testing.assert_array_equal(join_patches(patches, PICTURES.patch_size, rows=2), pixels)
    grey = sources(prepare(data, folder / "tokens", PICTURES).batches)
    assert {patches.shape[1] for patches in grey} == {PICTURES.patch_size**2}


def test_shift_pixels_changes_the_training_pictures(folder: Path) -> None:
    data = DataConfig(pictures=("train.tsv",), valid_pictures=("valid.tsv",))
    still, shifted = (prepare(data, folder / "tokens", shift_pixels=pixels) for pixels in (0, 2))
    pairs = list(zip(sources(still.batches), sources(shifted.batches), strict=True))
    assert len(pairs) == 3 and any(not np.array_equal(one, other) for one, other in pairs)
    for one, other in zip(sources(still.valid_batches), sources(shifted.valid_batches), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("option", ["mask_bands", "mask_frames"])
def test_each_mask_alone_changes_the_training_sounds(folder: Path, option: str) -> None:
    pytest.importorskip("soundfile")
    rng = np.random.default_rng(0)
    for i in range(4):
        write_wav(folder / f"{i}.wav", 0.3 * rng.normal(size=16_000).clip(-3, 3))
    for name in ("train", "valid"):
        Path(f"{name}.tsv").write_text(Path(f"{name}.tsv").read_text().replace(".png", ".wav"))
    data = DataConfig(sounds=("train.tsv",), valid_sounds=("valid.tsv",))
    plain = prepare(data, folder / "tokens", SOUNDS, mask_bands=0, mask_frames=0)
    masked = prepare(data, folder / "tokens", SOUNDS, **{"mask_bands": 0, "mask_frames": 0, option: 6})
    pairs = zip(sources(plain.batches), sources(masked.batches), strict=True)
    changed = [(one != other).reshape(-1, SOUNDS.mel_bands) for one, other in pairs]  # each [frames, bands]
    along = 0 if option == "mask_bands" else 1  # a masked band is masked in all frames, a masked frame in all bands
    shares = list(chain.from_iterable(each.mean(along) for each in changed))
    assert any(share > 0.9 for share in shares) and all(share < 0.1 or share > 0.9 for share in shares)
    for one, other in zip(sources(plain.valid_batches), sources(masked.valid_batches), strict=True):
        np.testing.assert_array_equal(one, other)
