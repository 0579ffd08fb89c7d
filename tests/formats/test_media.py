"""Pictures and sounds: files become patches and frames, batches do not leak, and models learn to read them."""

import json
import shutil
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

from seq2see import trace
from seq2see.api import load
from seq2see.config import Config, ModelConfig, TrainConfig
from seq2see.course.recurrent.network import Recurrent
from seq2see.data.corpus import open_media
from seq2see.data.layout import Packed
from seq2see.data.split import PairSplit
from seq2see.decode.int8 import quantize_int8
from seq2see.decode.optimize import optimize_for_decoding
from seq2see.errors import UserError
from seq2see.evaluate.metrics import edit_distance, recognition_scores
from seq2see.exchange.export import export_model
from seq2see.formats.media import sounds
from seq2see.formats.media.augment import MaskSpectrogram, ShiftPictures, build_augmentation
from seq2see.formats.media.pictures import cut_patches, join_patches, read_picture
from seq2see.formats.media.reader import MediaReader
from seq2see.inspect.trace import tap_names
from seq2see.model.source_readers import SoundConvolutions
from seq2see.model.transformer import Transformer
from seq2see.server.service.worker import Worker
from tests.formats.media import PICTURES, SOUNDS, cli, tone, write_wav
from tests.models import save, tiny_model


def random_rows(config: ModelConfig, lengths: tuple[int, ...]) -> list[NDArray[Any]]:
    rng = np.random.default_rng(0)
    rows = [255 * rng.random((length, config.row_size)) for length in lengths]
    return [each.astype(np.uint8) if config.source == "pictures" else (each / 255).astype(np.float16) for each in rows]


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
    torch.testing.assert_close(t["encoder.embedded", 0], gelu(reader.conv2(gelu(reader.conv1(frames))))[0].T)


@pytest.mark.parametrize("config", [PICTURES, SOUNDS])
def test_a_trace_of_pictures_and_sounds_has_every_announced_name(config: ModelConfig) -> None:
    model, rows = Transformer(config).eval(), random_rows(config, (6,))
    with trace(model) as t:
        model(Packed.from_sequences(rows), Packed.from_sequences([[1, 2, 3]]))
    assert set(t.names()) == {*tap_names(config), "probabilities"}
    name = "patches" if config.source == "pictures" else "mel_frames"
    assert torch.cat(tuple(t[f"encoder.{name}"])).shape == (6, config.row_size)
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


@pytest.mark.parametrize("config", [PICTURES, SOUNDS])
def test_decoding_a_batch_equals_decoding_each_source(config: ModelConfig) -> None:
    model = tiny_model(["a b c d e f g"], config)
    sources = random_rows(model.config.model, (9, 5, 2, 7))
    from seq2see.decode.generate import translate_tokens
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
