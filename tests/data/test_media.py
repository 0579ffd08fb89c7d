"""Pictures and sounds: files become patches and frames, batches do not leak, and models learn to read them."""

import json
import shutil
import socket
import sys
import wave
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from typer.testing import CliRunner

from seq2see import trace
from seq2see.api import load
from seq2see.cli import app
from seq2see.config import Config, DataConfig, ModelConfig, TrainConfig
from seq2see.course.recurrent.network import Recurrent
from seq2see.data.corpus import open_media
from seq2see.data.layout import Packed
from seq2see.data.media import sounds
from seq2see.data.media.augment import MaskSpectrogram, ShiftPictures, build_augmentation
from seq2see.data.media.pictures import cut_patches, join_patches, read_picture
from seq2see.data.media.reader import MediaReader
from seq2see.data.split import PairSplit
from seq2see.decode.int8 import quantize_int8
from seq2see.decode.optimize import optimize_for_decoding
from seq2see.errors import UserError
from seq2see.evaluate.recognition import edit_distance, recognition_scores
from seq2see.exchange.export import export_model
from seq2see.inspect.alignment import word_alignment
from seq2see.inspect.attention_tables import attention_table
from seq2see.inspect.explain import rerun
from seq2see.inspect.media_view import draw_media, draw_profiles
from seq2see.inspect.trace import tap_names
from seq2see.model.source_readers import SoundConvolutions
from seq2see.model.transformer import Transformer
from seq2see.server.explore.static_export import embedded_data
from seq2see.server.service.worker import Worker
from seq2see.train import start as run
from seq2see.train.estimates import min_micro_batches, seconds_per_token
from seq2see.train.prepare_data import prepare_translation
from seq2see.train.presets import preset_config
from tests.models import TINY, save, tiny_model

PICTURES = replace(TINY, source="pictures", picture_height=8, patch_size=4, encoder_positions="grid")
SOUNDS = replace(TINY, source="sounds", mel_bands=8)
SHARES = {"black": 0.0, "grey": 0.5, "white": 1.0}


def random_rows(config: ModelConfig, lengths: tuple[int, ...]) -> list[NDArray[Any]]:
    rng = np.random.default_rng(0)
    rows = [255 * rng.random((length, config.row_size)) for length in lengths]
    return [each.astype(np.uint8) if config.source == "pictures" else (each / 255).astype(np.float16) for each in rows]


def write_wav(path: Path, samples: NDArray[np.floating[Any]], rate: int = 16_000) -> Path:
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, rate, 0, "NONE", ""))
        file.writeframes((samples * 32767).astype("<i2").tobytes())
    return path


def tone(hertz: float, seconds: float, rate: int = 16_000) -> NDArray[np.float64]:
    return 0.5 * np.sin(2 * np.pi * hertz * np.arange(int(seconds * rate)) / rate)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small noisy pictures of one to three bars, named from left to right."""
    folder, rng = tmp_path_factory.mktemp("pictures"), np.random.default_rng(0)
    lines = []
    for i in range(150):
        bars = rng.choice(list(SHARES), size=rng.integers(1, 4))
        pixels = np.repeat([255 * SHARES[bar] for bar in bars], 8)[None] + rng.normal(0, 10, (8, 8 * len(bars)))
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(folder / f"{i}.png")
        lines.append(f"{i}.png\t{' '.join(bars)}\n")
    (folder / "list.tsv").write_text("".join(lines))
    (folder / "train.tsv").write_text("".join(lines[30:]))
    (folder / "valid.tsv").write_text("".join(lines[:30]))
    return folder / "list.tsv"


SETTINGS = [
    "model.width=32", "model.heads=2", "model.encoder_layers=1", "model.decoder_layers=1", "model.feed_forward=64",
    "model.dropout=0.0", "train.lr=1e-2", "train.warmup_steps=10", "train.validate_every=40", "text.tokenizer=word",
    "train.average_checkpoints=1", "train.batch_tokens=200", "train.validation_sentences=50",
]  # fmt: skip
PICTURE_SETTINGS = ["model.picture_height=8", "model.patch_size=4", "train.shift_pixels=0", *SETTINGS]


@pytest.fixture(scope="module")
def reader_of_bars(pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "bars"
    settings = [*PICTURE_SETTINGS, "train.steps=160"]
    train, valid = ((str(pictures.with_name(f"{name}.tsv")),) for name in ("train", "valid"))
    data = DataConfig(pictures=train, valid_pictures=valid)
    run.train(data, out, preset="tiny-vision", settings=settings, device="cpu")
    return out


def cli(*arguments: object) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.mark.parametrize(
    "config",
    [replace(each, encoder_positions=kind) for each in (PICTURES, SOUNDS) for kind in ("learned", "same")] + [PICTURES],
)
def test_a_batch_gives_the_vectors_of_each_sequence_alone(config: ModelConfig) -> None:
    torch.manual_seed(0)
    model, sequences = Transformer(config).eval(), random_rows(config, (5, 1, 9, 4))
    together = model.encode(Packed.from_sequences(sequences))
    alone = torch.cat([model.encode(Packed.from_sequences([rows])) for rows in sequences])
    torch.testing.assert_close(together, alone)


def test_sound_convolutions_equal_two_plain_convolutions_of_all_frames() -> None:
    torch.manual_seed(0)
    model, (rows,) = Transformer(SOUNDS).eval(), random_rows(SOUNDS, (7,))
    reader = model.source_reader
    assert isinstance(reader, SoundConvolutions)
    with trace(model) as t:
        model(Packed.from_sequences([rows]), Packed.from_sequences([[1]]))
    frames = torch.from_numpy(rows).float().view(1, 14, SOUNDS.mel_bands).mT
    gelu = torch.nn.functional.gelu
    torch.testing.assert_close(t["encoder.embedded"], gelu(reader.conv2(gelu(reader.conv1(frames))))[0].T)


@pytest.mark.parametrize("config", [PICTURES, SOUNDS])
def test_a_trace_of_pictures_and_sounds_has_every_announced_name(config: ModelConfig) -> None:
    model, rows = Transformer(config).eval(), random_rows(config, (6,))
    with trace(model) as t:
        model(Packed.from_sequences(rows), Packed.from_sequences([[1, 2, 3]]))
    assert set(t.names()) == {*tap_names(config), "probabilities"}
    name = "patches" if config.source == "pictures" else "mel_frames"
    assert t[f"encoder.{name}"].shape == (6, config.row_size)
    assert t.layouts["encoder"].lengths.tolist() == [6]
    assert f"encoder.{name}" in cli("model", f"tiny-{'vision' if name == 'patches' else 'speech'}", "--trace").output


def test_grid_positions_tell_rows_and_columns_apart() -> None:
    model = Transformer(PICTURES)  # two patches in a column
    assert model.encoder is not None and model.encoder.sinusoids is not None
    row, column = model.encoder.sinusoids[:6].split(PICTURES.width // 2, dim=1)
    assert torch.equal(row[0], row[2]) and torch.equal(row[1], row[3]) and not torch.equal(row[0], row[1])
    assert torch.equal(column[2], column[3]) and not torch.equal(column[1], column[2])


def test_an_encoder_of_pictures_pools_each_by_its_first_patch() -> None:
    config = replace(PICTURES, shape="encoder", pooler=True)
    model, sequences = Transformer(config).eval(), random_rows(config, (6, 4))
    packed = Packed.from_sequences(sequences)
    pooled = model.pool(model(packed), packed.layout)
    alone = [Packed.from_sequences([rows]) for rows in sequences]
    expected = torch.cat([model.pool(model(one), one.layout) for one in alone])
    assert pooled.shape == (2, config.width)
    torch.testing.assert_close(pooled, expected)


def test_recurrent_models_also_read_pictures() -> None:
    config = ModelConfig(kind="rnn-attention", heads=1, width=16, encoder_layers=1, decoder_layers=1, source="pictures")
    target = Packed.from_sequences([[1, 2, 3]])
    logits = Recurrent(config).eval()(Packed.from_sequences(random_rows(config, (6,))), target)
    assert logits.shape == (3, config.vocab_size)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"source": "pictures", "picture_height": 30},
            "model.picture_height = 30 is not divisible by model.patch_size",
        ),
        ({"source": "pictures", "channels": 2}, "model.channels = 2 must be 1 (grey) or 3"),
        ({"source": "sounds", "shape": "decoder"}, "model.source = sounds requires an encoder"),
        ({"encoder_positions": "grid"}, "model.encoder_positions = grid requires pictures"),
        ({"source": "sounds", "segments": 2}, "model.segments = 2 must be 0"),
        ({"max_source_positions": 1 << 20}, "model.max_source_positions = 1048576 × model.width = 512 makes a table"),
        (
            {"positions": "learned", "encoder_positions": "sinusoidal", "width": 15, "heads": 3},
            "must be even for sinusoidal",
        ),
        ({"shape": "encoder", "max_source_positions": 5}, "model.max_source_positions = 5 requires an encoder-decoder"),
    ],
)
def test_invalid_combinations_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as error:
        ModelConfig(**changes)
    assert message in str(error.value)


def test_log_mel_equals_whispers_feature_extractor() -> None:
    transformers = pytest.importorskip("transformers")
    rng = np.random.default_rng(0)
    samples = (tone(440, 2.5) + 0.01 * rng.normal(size=40_000)).astype(np.float32)
    extract = transformers.WhisperFeatureExtractor(feature_size=80)
    theirs = extract(samples, sampling_rate=16_000, return_tensors="np").input_features[0].T  # padded to 30 seconds
    ours = sounds.log_mel(torch.nn.functional.pad(torch.from_numpy(samples), (0, 440_000)), 80)
    np.testing.assert_allclose(ours.numpy(), theirs, atol=1e-4)


@pytest.mark.parametrize("rate", [8_000, 22_050, 44_100, 48_000])
def test_resampling_keeps_the_wave(rate: int) -> None:
    samples = torch.from_numpy(tone(1000, 0.5, rate))
    result = sounds.resample(samples, rate)
    assert len(result) == 8_000
    np.testing.assert_allclose(result[500:-500], tone(1000, 0.5)[500:-500], atol=0.01)


def test_resampling_keeps_silence_silent() -> None:
    samples = torch.zeros(8_000)
    samples[1_000:1_100] = torch.randn(100, generator=torch.Generator().manual_seed(0))
    result = sounds.resample(samples, 8_000)
    assert result[6_000:].abs().max() < 1e-5 * result.abs().max()  # without a taper 5e-4: it would ring


def test_sounds_of_any_file_format_and_length_become_rows(tmp_path: Path) -> None:
    soundfile = pytest.importorskip("soundfile")
    config = replace(SOUNDS, mel_bands=80)
    stereo = np.stack([tone(440, 0.5, 44_100)] * 2, axis=1)
    for name in ("a.wav", "a.flac", "a.ogg"):
        soundfile.write(tmp_path / name, stereo, 44_100)
        assert MediaReader(config).read(tmp_path / name).shape == (25, 160)
    write_wav(tmp_path / "short.wav", tone(440, 0.001))
    assert MediaReader(config).read(tmp_path / "short.wav").shape == (1, 160)
    windows = MediaReader(replace(config, window_seconds=1)).windows(write_wav(tmp_path / "long.wav", tone(440, 2.2)))
    assert [rows.shape for rows in windows] == [(50, 160)] * 3


def test_patches_run_column_by_column_and_join_again(tmp_path: Path) -> None:
    pixels = np.arange(8 * 12, dtype=np.uint8).reshape(8, 12, 1)
    patches = cut_patches(pixels, 4)
    assert patches.shape == (6, 16)
    np.testing.assert_array_equal(patches[1].reshape(4, 4), pixels[4:, :4, 0])
    np.testing.assert_array_equal(join_patches(patches, 4, rows=2), pixels)
    Image.fromarray(pixels[:, :10, 0]).save(tmp_path / "narrow.png")
    stored = join_patches(read_picture(tmp_path / "narrow.png", PICTURES), 4, rows=2)
    np.testing.assert_array_equal(stored[:, :10], pixels[:, :10])  # exactly; the last column is repeated
    np.testing.assert_array_equal(stored[:, 10:], pixels[:, 9:10].repeat(2, 1))


def test_pictures_are_resized_and_transparency_becomes_white(tmp_path: Path) -> None:
    Image.new("RGBA", (40, 20), (0, 0, 0, 0)).save(tmp_path / "clear.png")
    pixels = read_picture(tmp_path / "clear.png", replace(PICTURES, picture_height=10, patch_size=5, channels=3))
    assert pixels.size == 10 * 20 * 3 and pixels.min() == 255
    Image.fromarray(np.full((10, 10), 40_000, np.uint16)).save(tmp_path / "deep.png")
    deep = read_picture(tmp_path / "deep.png", replace(PICTURES, picture_height=10, patch_size=5))
    assert deep.max() == 40_000 >> 8


@pytest.mark.parametrize(
    ("content", "problem"),
    [(b"", "is empty"), (b"not a picture", "not a picture that can be read"), ("truncated", "that can be read")],
)
def test_a_broken_picture_is_one_line(tmp_path: Path, content: bytes | str, problem: str) -> None:
    path = tmp_path / "broken.png"
    if isinstance(content, str):
        Image.fromarray(np.random.default_rng(0).integers(0, 255, (64, 64), np.uint8)).save(path)
        content = path.read_bytes()[:900]
    path.write_bytes(content)
    with pytest.raises(UserError) as error:
        read_picture(path, PICTURES)
    assert problem in str(error.value) and str(path) in str(error.value) and "\n" not in str(error.value)


def test_a_huge_picture_is_refused_before_it_is_decoded(tmp_path: Path) -> None:
    Image.new("1", (9000, 9000)).save(tmp_path / "huge.png")
    with pytest.raises(UserError, match=r"9,000 × 9,000 pixels"):
        read_picture(tmp_path / "huge.png", PICTURES)


@pytest.mark.parametrize(
    ("content", "problem"),
    [(b"", "is empty"), (b"not a sound", "not a sound that can be read"), (None, "has no sound")],
)
def test_a_broken_sound_is_one_line(tmp_path: Path, content: bytes | None, problem: str) -> None:
    pytest.importorskip("soundfile")
    path = tmp_path / "broken.wav"
    if content is None:
        write_wav(path, np.zeros(0))
    else:
        path.write_bytes(content)
    with pytest.raises(UserError) as error:
        sounds.read_samples(path)
    assert problem in str(error.value) and "\n" not in str(error.value)


def test_lists_and_directories_give_the_same_pairs(tmp_path: Path) -> None:
    for name in ("a", "b"):
        Image.new("L", (8, 8)).save(tmp_path / f"{name}.png")
        (tmp_path / f"{name}.txt").write_text(f"text of {name}\n")
    expected = [(str(tmp_path / f"{name}.png"), f"text of {name}") for name in ("a", "b")]
    (tmp_path / "list.tsv").write_text("a.png\ttext of a\nb.png\ttext of b\n")
    (tmp_path / "list.jsonl").write_text(
        "".join(json.dumps({"path": f"{name}.png", "text": f"text of {name}"}) + "\n" for name in ("a", "b"))
    )
    for source in ("list.tsv", "list.jsonl", "."):
        assert list(open_media([tmp_path / source], "pictures")) == expected
    (tmp_path / "list.tsv").write_text("a.png\ttext of a\nc.png\ttext of c\n")
    with pytest.raises(UserError, match=r"list\.tsv, line 2: .*c\.png: no such file"):
        list(open_media([tmp_path / "list.tsv"], "pictures"))


def test_held_out_pictures_are_the_same_wherever_they_lie(pictures: Path, tmp_path: Path) -> None:
    shutil.copytree(pictures.parent, tmp_path / "copy")
    held_out = []
    for file in (pictures, tmp_path / "copy" / "list.tsv"):
        split = PairSplit(open_media([file], "pictures"), None, 150, sources_are_paths=True)
        held_out.append([Path(source).name for source, _ in split.valid()])
    assert held_out[0] == held_out[1] and 0 < len(held_out[0]) < 20


def test_the_fingerprint_changes_with_a_picture(tmp_path: Path) -> None:
    Image.new("L", (8, 8)).save(tmp_path / "a.png")
    (tmp_path / "list.tsv").write_text("a.png\ta\n")
    before = open_media([tmp_path / "list.tsv"], "pictures").fingerprint
    Image.new("L", (8, 8), 1).save(tmp_path / "a.png")
    assert open_media([tmp_path / "list.tsv"], "pictures").fingerprint != before


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
    torch.testing.assert_close(again.trace["logits"], e.trace["logits"])
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
    draw_media(e, table, tmp_path / "sound.png")
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


def test_the_memory_and_time_of_a_step_are_estimated() -> None:
    for name in ("tiny-vision", "tiny-vit", "tiny-speech"):
        config = preset_config(name).override(["train.batch_tokens=1000"])
        assert min_micro_batches(config, torch.device("cpu"), free=1 << 34) == 1
        assert seconds_per_token(config, torch.device("cpu")) > 0


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


@pytest.mark.parametrize("config", [PICTURES, SOUNDS])
def test_decoding_a_batch_equals_decoding_each_source(config: ModelConfig) -> None:
    model = tiny_model(["a b c d e f g"], config)
    sources = random_rows(model.config.model, (9, 5, 2, 7))
    from seq2see.decode.engine import translate_tokens
    from seq2see.decode.search import Search

    special = model.tokenizers[1].framing
    for search in (Search(max_new_tokens=8), Search(beam=3, max_new_tokens=8)):
        together = translate_tokens(model.network, sources, special, search)
        for rows, hypotheses in zip(sources, together, strict=True):
            (alone,) = translate_tokens(model.network, [rows], special, search)
            assert alone[0].score == pytest.approx(hypotheses[0].score, abs=1e-4)
    sampled = Search(max_new_tokens=8, temperature=1.0, samples=3)
    assert [len(found) for found in translate_tokens(model.network, sources, special, sampled)] == [3] * 4


@pytest.mark.parametrize("config", [PICTURES, SOUNDS])
def test_int8_and_bf16_models_read_the_same(config: ModelConfig) -> None:
    model = Transformer(config).eval()
    source, target = Packed.from_sequences(random_rows(config, (6,))), Packed.from_sequences([[1, 2, 3]])
    with torch.inference_mode():
        expected = model(source, target)
        assert (quantize_int8(model)(source, target) - expected).abs().max() < 0.2
        bf16 = optimize_for_decoding(Transformer.from_weights(config, model.state_dict()).to(torch.bfloat16))
        assert (bf16(source, target).float() - expected).abs().max() < 0.2


def test_augmentation_depends_on_the_epoch_and_the_example_alone() -> None:
    config = replace(SOUNDS, mel_bands=20)
    rows = [each.astype(np.float16) for each in random_rows(config, (30, 40))]
    lengths, tokens = np.array([30, 40]), np.concatenate(rows)
    masks = MaskSpectrogram(config, bands=5, frames=6, seed=1)
    both = masks(tokens, lengths, 0, np.array([3, 8]))
    np.testing.assert_array_equal(both[30:], masks(rows[1], lengths[1:], 0, np.array([8])))
    assert not np.array_equal(both, masks(tokens, lengths, 1, np.array([3, 8])))
    changed = (both != tokens).reshape(-1, 20)[60:]  # frames of the second
    assert changed.all(1).sum() <= 12 and changed.all(0).sum() <= 10 and 0 < changed.mean() < 0.9


@pytest.mark.parametrize("channels", [1, 3])
def test_pictures_are_shifted_each_within_itself(channels: int) -> None:
    config = replace(PICTURES, channels=channels)
    patches, lengths, shift = random_rows(config, (6, 2, 8)), np.array([6, 2, 8]), ShiftPictures(config, 2, seed=1)
    shifted = np.split(shift(np.concatenate(patches), lengths, 0, np.array([3, 8, 9])), [6, 8])
    offsets = set()
    for one, found, length, index in zip(patches, shifted, lengths, (3, 8, 9), strict=True):
        np.testing.assert_array_equal(found, shift(one, np.array([length]), 0, np.array([index])))
        whole = np.pad(join_patches(one, 4, 2), ((2, 2), (2, 2), (0, 0)), mode="edge")
        height, width = whole.shape[0] - 4, whole.shape[1] - 4
        offsets |= {
            (down, right)
            for down in range(5)
            for right in range(5)
            if np.array_equal(whole[down : down + height, right : right + width], join_patches(found, 4, 2))
        }
    assert len(offsets) == 3, "every picture is shifted, and differently"


def test_augmentation_follows_the_configuration() -> None:
    assert build_augmentation(Config(model=PICTURES, train=TrainConfig(shift_pixels=2))) is not None
    assert build_augmentation(Config(model=SOUNDS, train=TrainConfig(mask_frames=2))) is not None
    assert build_augmentation(Config(model=SOUNDS, train=TrainConfig(shift_pixels=2))) is None


def test_edit_distance_counts_insertions_deletions_and_substitutions() -> None:
    assert edit_distance("kitten", "sitting") == 3
    assert edit_distance("", "abc") == edit_distance("abc", "") == 3
    scores = recognition_scores(["1 2", "3  4", "5"], ["1 2", "3 4", "6 7"])
    assert scores.exact_match == pytest.approx(2 / 3) and scores.word_error_rate == pytest.approx(2 / 6)


def test_a_model_of_pictures_is_not_exported(tmp_path: Path) -> None:
    folder = save(tiny_model(["a b"], PICTURES), tmp_path / "reader")
    with pytest.raises(UserError, match="a model of pictures cannot be exported"):
        export_model(load(folder), folder, tmp_path / "out", "huggingface")
    assert not (tmp_path / "out").exists()


def test_the_service_takes_only_models_of_text(tmp_path: Path) -> None:
    folder = save(tiny_model(["a b"], PICTURES), tmp_path / "reader")
    ours, theirs = socket.socketpair()
    with ours, theirs, pytest.raises(UserError, match='"reader" reads pictures: the service takes only models of text'):
        Worker(ours, {"models": {"reader": str(folder)}, "device": "cpu", "precision": "float32"})
