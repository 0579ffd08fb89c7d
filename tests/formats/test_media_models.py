"""Models that read pictures and sounds: trained, used by the commands, explained."""

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from seq2see.api import load
from seq2see.config import DataConfig
from seq2see.errors import UserError
from seq2see.inspect.alignment import word_alignment
from seq2see.inspect.attention_tables import attention_table
from seq2see.inspect.explain import rerun
from seq2see.server.explore.static_export import embedded_data
from seq2see.train import start as run
from seq2see.train.estimates import min_micro_batches, seconds_per_token
from seq2see.train.prepare_data import prepare_translation
from seq2see.train.presets import preset_config
from seq2see.views.media import draw_profiles, plot_media
from tests.formats.media import SOUNDS, cli, tone, write_wav
from tests.models import tiny_model

SETTINGS = [
    "model.width=32",
    "model.heads=2",
    "model.encoder_layers=1",
    "model.decoder_layers=1",
    "model.feed_forward=64",
    "model.dropout=0.0",
    "train.lr=1e-2",
    "train.warmup_steps=10",
    "train.validate_every=40",
    "text.tokenizer=word",
    "train.average_checkpoints=1",
    "train.batch_tokens=200",
    "train.validation_sentences=50",
]
PICTURE_SETTINGS = ["model.picture_height=8", "model.patch_size=4", "train.shift_pixels=0", *SETTINGS]


@pytest.fixture(scope="module")
def reader_of_bars(pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "bars"
    settings = [*PICTURE_SETTINGS, "train.steps=160"]
    train, valid = ((str(pictures.with_name(f"{name}.tsv")),) for name in ("train", "valid"))
    data = DataConfig(pictures=train, valid_pictures=valid)
    run.train(data, out, preset="tiny-vision", settings=settings, device="cpu")
    return out


def test_a_model_learns_to_read_pictures(reader_of_bars: Path, pictures: Path) -> None:
    result = cli("evaluate", "--model", reader_of_bars, "--pictures", pictures, "--json", "--device", "cpu")
    assert result.exit_code == 0, result.output
    scores = json.loads(result.stdout)
    assert scores["recognition"]["exact_match"] > 0.8 and scores["recognition"]["word_error_rate"] < 0.2
    validation = json.loads((reader_of_bars / "scores.json").read_text())["validation"]
    assert validation["exact_match"] > 0.8
    assert "| character error rate |" in (reader_of_bars / "README.md").read_text()


def test_translate_writes_the_text_of_each_picture(reader_of_bars: Path, pictures: Path, tmp_path: Path) -> None:
    rows = [line.split("\t") for line in pictures.read_text().splitlines()[:20]]
    files = [pictures.parent / name for name, _ in rows]
    result = cli("translate", "--model", reader_of_bars, "--device", "cpu", *files)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert sum(line == text for line, (_, text) in zip(lines, rows, strict=True)) > 14
    model = load(reader_of_bars)
    assert model.translate([str(file) for file in files]) == lines == [model.translate(str(file)) for file in files]
    as_json = cli("translate", "--model", reader_of_bars, "--device", "cpu", "--format", "jsonl", files[0])
    assert json.loads(as_json.stdout) == {"file": str(files[0]), "text": lines[0]}


def test_explain_shows_where_each_written_token_looked(reader_of_bars: Path, pictures: Path, tmp_path: Path) -> None:
    picture = pictures.parent / "0.png"
    model = load(reader_of_bars)
    e = model.explain(str(picture))
    width = len(e.source_tokens) // 2  # columns of two patches
    assert e.source_tokens[:3] == ("row 0, column 0", "row 1, column 0", "row 0, column 1")
    assert e.trace["decoder.0.cross.weights", 0].shape == (2, len(e.target_tokens), 2 * width)
    again = rerun(e)
    torch.testing.assert_close(again.trace["logits", 0], e.trace["logits", 0])
    assert e.to_dict()["alignment"] is None
    result = cli("explain", "--model", reader_of_bars, picture, "--device", "cpu", "--out", tmp_path / "why.png")
    assert result.exit_code == 0, result.output
    assert f"{width} columns of patches" in result.stdout and "row " in result.stdout
    assert aspect_ratio(tmp_path / "why.png") > 1 / 3
    with pytest.raises(UserError, match="pictures have no words to align"):
        word_alignment(e)
    ablated = cli("explain", "--model", reader_of_bars, picture, "--ablate", "decoder.0.cross:0", "--device", "cpu")
    assert ablated.exit_code == 0 and "Without decoder.0.cross:0" in ablated.stdout
    embedded = embedded_data(e, "bars", [])
    assert [token.text for token in embedded.trace.source_tokens] == list(e.source_tokens)
    assert "encoder.patches" in embedded.tensors


def aspect_ratio(path: Path) -> float:
    with Image.open(path) as picture:
        return picture.width / picture.height


def test_explain_draws_attention_over_a_spectrogram(tmp_path: Path) -> None:
    pytest.importorskip("soundfile")
    model = tiny_model(["a b c"], SOUNDS)
    e = model.explain(str(write_wav(tmp_path / "a.wav", tone(440, 0.3))), max_new_tokens=4)
    assert e.source_tokens[:2] == ("0.00 s", "0.02 s") and len(e.source_tokens) == 15
    table = attention_table(e, "decoder.1.cross")
    plot_media(e, table, tmp_path / "sound.png")
    assert aspect_ratio(tmp_path / "sound.png") > 1 / 3
    assert "0.30 seconds" in str([column.header for column in draw_profiles(e, table, 80).columns])


def test_wrong_uses_of_a_reader_are_one_line(reader_of_bars: Path, pictures: Path, tmp_path: Path) -> None:
    picture = pictures.parent / "0.png"
    wide = tmp_path / "wide.png"
    Image.new("L", (8000, 8)).save(wide)
    cases: list[tuple[tuple[object, ...], str]] = [
        (("translate", "--model", reader_of_bars, "some", "words"), "this model reads pictures: give the files"),
        (("translate", picture), "0.png is a picture or sound, but "),
        (("translate", "--model", reader_of_bars, wide), "makes 4,000 tokens, but the model takes at most 1,024"),
        (
            ("evaluate", "--model", reader_of_bars, "--src", pictures, "--ref", pictures),
            "reads pictures: use --pictures",
        ),
        (("evaluate", "--pictures", pictures), "reads text: use --src FILE and --ref FILE"),
        (
            ("train", "--pictures", pictures, "--text", pictures, "--out", tmp_path / "x"),
            "use either --text, or --pictures",
        ),
        (
            ("train", "--sounds", pictures, "--preset", "tiny-vision", "--steps", "1", "--out", tmp_path / "y"),
            'the data are sounds, but model.source is "pictures"',
        ),
    ]
    for arguments, message in cases:
        result = cli(*arguments, *(["--device", "cpu"] if arguments[0] != "data" else []))
        text = str(result.exception) if isinstance(result.exception, UserError) else result.output
        assert result.exit_code != 0 and message in text, (arguments, text)


def test_a_run_resumes_without_decoding_files_again(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, settings = (
        DataConfig(pictures=(str(pictures),)),
        [*PICTURE_SETTINGS, "train.shift_pixels=1", "train.metric=loss", "train.schedule=constant"],
    )
    whole, part = tmp_path / "whole", tmp_path / "part"
    run.train(data, whole, preset="tiny-vision", settings=[*settings, "train.steps=6"], device="cpu")
    run.train(data, part, preset="tiny-vision", settings=[*settings, "train.steps=3"], device="cpu")
    monkeypatch.setitem(sys.modules, "PIL", None)  # as on a machine without it
    run.resume(part, ["train.steps=6"], device="cpu")
    one, other = (load(folder).network.state_dict() for folder in (whole, part))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_every_picture_is_in_one_batch_and_a_process_without_work_gets_a_dummy(pictures: Path, tmp_path: Path) -> None:
    config = replace(preset_config("tiny-vision"), data=DataConfig(pictures=(str(pictures),)))
    data = prepare_translation(config, tmp_path, None, 150, static=False)
    batches = data.batches
    seen = [index for batch in batches.iterate(epoch=0) for index in batch.indices]
    assert sorted(seen) == list(range(data.train_count))
    dummy = batches.batch(0, batches.num_batches(0))
    assert (
        dummy.source is not None and dummy.source.tokens.shape == (1, config.model.row_size) and not dummy.num_targets
    )


def test_the_memory_and_time_of_a_step_are_estimated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seq2see.train.estimates.MEASURED_TOKENS", 100)
    for name in ("tiny-vision", "tiny-vit", "tiny-speech"):
        assert min_micro_batches(preset_config(name), torch.device("cpu"), free=1 << 34) == 1
        assert seconds_per_token(preset_config(name), torch.device("cpu")) > 0


def test_a_broken_picture_stops_training_with_its_name(tmp_path: Path) -> None:
    Image.new("L", (8, 8)).save(tmp_path / "a.png")
    (tmp_path / "b.png").write_bytes(b"no")
    (tmp_path / "list.tsv").write_text("b.png\tb\n")
    (tmp_path / "valid.tsv").write_text("a.png\ta\n")
    data = DataConfig(pictures=(str(tmp_path / "list.tsv"),), valid_pictures=(str(tmp_path / "valid.tsv"),))
    with pytest.raises(UserError, match=r"b\.png is not a picture"):
        run.train(data, tmp_path / "run", preset="tiny-vision", settings=["train.steps=1"], device="cpu")


def test_data_check_finds_bad_files_and_texts(pictures: Path, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    shutil.copy(pictures.parent / "0.png", folder / "a.png")
    (folder / "b.png").write_bytes(b"no")
    (folder / "list.tsv").write_text("a.png\ta\na.png\ta\nb.png\tb\nc.png\tc\na.png\t \n")
    result = cli("data", "check", "--pictures", folder / "list.tsv", "--json")
    assert result.exit_code == 1
    counts = {finding["kind"]: finding["count"] for finding in json.loads(result.stdout)["findings"]}
    assert counts["missing"] == counts["unreadable"] == counts["duplicate"] == counts["one-sided"] == 1
    assert cli("data", "check", "--pictures", pictures).exit_code == 0


def test_sounds_are_trained_and_read(tmp_path: Path) -> None:
    pytest.importorskip("soundfile")
    lines, rng = [], np.random.default_rng(0)
    for i in range(60):
        name, hertz = (("low", 300), ("high", 2000))[i % 2]
        samples = tone(hertz * rng.uniform(0.9, 1.1), rng.uniform(0.1, 0.3)) + rng.normal(0, 0.01)
        write_wav(tmp_path / f"{i}.wav", samples)
        lines.append(f"{i}.wav\t{name}\n")
    (tmp_path / "list.tsv").write_text("".join(lines[10:]))
    (tmp_path / "valid.tsv").write_text("".join(lines[:10]))
    data = DataConfig(sounds=(str(tmp_path / "list.tsv"),), valid_sounds=(str(tmp_path / "valid.tsv"),))
    settings = [*SETTINGS, "train.steps=40", "train.mask_frames=0", "train.mask_bands=0"]
    run.train(data, tmp_path / "run", preset="tiny-speech", settings=settings, device="cpu")
    result = cli(
        "evaluate", "--model", tmp_path / "run", "--sounds", tmp_path / "valid.tsv", "--json", "--device", "cpu"
    )
    assert json.loads(result.stdout)["exact_match"] > 0.9
    assert load(tmp_path / "run").translate(str(tmp_path / "0.wav")) == "low"
