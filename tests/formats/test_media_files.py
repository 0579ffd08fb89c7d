"""Files of pictures and sounds that are huge, damaged or unusual: each is read correctly or refused in one line."""

import struct
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from seq2see.check.collect import CheckSettings
from seq2see.check.data import check_data
from seq2see.config import ModelConfig
from seq2see.data.corpus import open_media
from seq2see.errors import UserError
from seq2see.formats.media import sounds
from seq2see.formats.media.pictures import read_picture
from seq2see.formats.media.reader import MediaReader, TooLongError
from tests.models import TINY

PICTURES = replace(TINY, source="pictures", picture_height=8, patch_size=4, encoder_positions="grid")
SOUNDS = replace(TINY, source="sounds", mel_bands=8)
LIMIT = TINY.actual_max_source_positions


def refusal(config: ModelConfig, path: Path) -> str:
    """Returns the one line with which a file is refused."""
    with pytest.raises(UserError) as error:
        MediaReader(config).windows(path)
    message = str(error.value)
    assert message.startswith(str(path)) and "\n" not in message
    return message


def write_sound(path: Path, samples: Any, rate: int = 16_000, subtype: str | None = None) -> Path:
    pytest.importorskip("soundfile").write(path, samples, rate, subtype=subtype)
    return path


def noise(seconds: float, rate: int = 16_000) -> Any:
    return 0.1 * np.random.default_rng(0).normal(size=int(seconds * rate)).astype(np.float32)


def write_bits(path: Path, width: int) -> Path:
    """Writes a black PNG, one pixel high, of one bit per pixel."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", width, 1, 1, 0, 0, 0, 0)
    pixels = zlib.compress(bytes(1 + (width + 7) // 8))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b""))
    return path


def forbid(monkeypatch: pytest.MonkeyPatch, owner: object, name: str) -> None:
    def called(*_: object, **__: object) -> None:
        raise AssertionError(f"{name} is called")

    monkeypatch.setattr(owner, name, called)


def test_a_picture_that_would_be_huge_at_the_models_height_is_not_resized(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forbid(monkeypatch, Image.Image, "resize")
    path = write_bits(tmp_path / "wide.png", 1_100_000)
    assert path.stat().st_size < 1_000
    assert "would have 8,800,000 × 8 pixels" in refusal(PICTURES, path)


def test_a_picture_of_too_many_tokens_is_not_resized(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_bits(tmp_path / "wide.png", LIMIT)
    forbid(monkeypatch, Image.Image, "resize")
    with pytest.raises(TooLongError, match=rf"makes {4 * LIMIT:,} tokens, but the model takes at most {LIMIT:,} "):
        MediaReader(PICTURES).read(path)


def test_the_largest_picture_that_fits_is_read_as_it_is_stored(tmp_path: Path) -> None:
    path = tmp_path / "turned.jpg"
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by 90 degrees
    Image.new("L", (16, LIMIT // 2 * 8)).save(path, exif=exif)
    reader = MediaReader(PICTURES)
    rows = reader.read(path)
    assert len(rows) == LIMIT
    np.testing.assert_array_equal(rows, reader.windows(path)[0])


@pytest.mark.parametrize("window_seconds", [0, 1])
def test_a_sound_of_too_many_tokens_is_not_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, window_seconds: int
) -> None:
    soundfile = pytest.importorskip("soundfile")
    config = replace(SOUNDS, window_seconds=window_seconds)
    path = write_sound(tmp_path / "long.wav", noise(2.01, 8_000), 8_000)
    assert len(MediaReader(config).windows(path)[0]) == (50 if window_seconds else 101)
    forbid(monkeypatch, soundfile.SoundFile, "read")
    limit = 50 if window_seconds else 100
    with pytest.raises(
        TooLongError, match="longer than model.window_seconds = 1" if window_seconds else "makes 101 tok"
    ):
        MediaReader(replace(config, max_source_positions=limit)).read(path)


def test_a_sound_of_exactly_the_limit_is_read(tmp_path: Path) -> None:
    path = write_sound(tmp_path / "a.wav", noise(2.0, 44_100), 44_100)
    assert len(MediaReader(replace(SOUNDS, max_source_positions=100)).read(path)) == 100


@pytest.mark.parametrize("rate", [1, 2**31 - 1])
def test_an_absurd_sample_rate_is_refused(tmp_path: Path, rate: int) -> None:
    assert f"a sample rate of {rate:,} Hz" in refusal(SOUNDS, write_sound(tmp_path / "a.wav", noise(0.1), rate))


@pytest.mark.parametrize("rate", [8_000, 15_999, 16_000, 48_000])
def test_a_long_sound_read_in_blocks_equals_the_whole(tmp_path: Path, rate: int) -> None:
    samples = noise(140.003, rate)
    path = write_sound(tmp_path / "long.wav", samples, rate, "FLOAT")
    whole = sounds.resample(torch.from_numpy(samples).double(), rate).float()
    torch.testing.assert_close(sounds.read_samples(path), whole, atol=2e-5, rtol=0)


def test_resampling_is_as_accurate_for_an_awkward_length() -> None:
    samples = torch.from_numpy(noise(140.003, 8_000))  # with the silence that is appended, 8 × 140,053
    exact = sounds.resample(samples.double(), 8_000)
    torch.testing.assert_close(sounds.resample(samples, 8_000), exact.float(), atol=2e-5, rtol=0)


def test_a_spectrogram_in_blocks_equals_the_short_time_fourier_transform(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sounds, "BLOCK_WINDOWS", 30)
    samples = torch.from_numpy(noise(1.0))
    window = torch.hann_window(sounds.WINDOW)
    spectrum = torch.stft(samples, sounds.WINDOW, sounds.HOP, window=window, return_complex=True)[:, :-1]
    logs = (sounds.mel_filters(80) @ spectrum.abs() ** 2).clamp(min=1e-10).log10()
    expected = (torch.maximum(logs, logs.max() - 8) + 4) / 4
    torch.testing.assert_close(sounds.log_mel(samples, 80), expected.T)


def test_too_little_memory_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(error: Exception) -> Any:
        def raise_it(*_: object) -> None:
            raise error

        return raise_it

    Image.new("L", (8, 8)).save(tmp_path / "a.png")
    sound = write_sound(tmp_path / "a.wav", noise(0.1))
    monkeypatch.setattr(Image.Image, "convert", fail(MemoryError()))
    assert "needs more memory than is free" in refusal(PICTURES, tmp_path / "a.png")
    monkeypatch.setattr(sounds, "resample", fail(RuntimeError("DefaultCPUAllocator: can't allocate memory")))
    assert "needs more memory than is free" in refusal(SOUNDS, sound)
    monkeypatch.setattr(sounds, "resample", fail(RuntimeError("a bug")))
    with pytest.raises(RuntimeError, match="a bug"):
        MediaReader(SOUNDS).windows(sound)


def test_the_check_reports_too_long_files_without_decoding_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    soundfile = pytest.importorskip("soundfile")
    write_sound(tmp_path / "a.wav", noise(0.5))
    (tmp_path / "list.tsv").write_text("a.wav\ta\n")
    forbid(monkeypatch, soundfile.SoundFile, "read")
    settings = CheckSettings(reader=MediaReader(replace(SOUNDS, max_source_positions=9)))
    report = check_data(open_media([tmp_path / "list.tsv"], "sounds"), settings).report
    counts = {finding.kind: finding.count for finding in report.findings}
    assert (counts["too-long"], counts["unreadable"]) == (1, 0)


@pytest.mark.parametrize("value", [1e19, -1e30, np.nan, np.inf])
def test_samples_whose_power_overflows_are_refused(tmp_path: Path, value: float) -> None:
    samples = noise(0.1)
    samples[50] = value
    path = write_sound(tmp_path / "loud.wav", samples, subtype="FLOAT")
    assert f"has a sample of {abs(value):.3g}" in refusal(SOUNDS, path)


def test_integers_stored_as_floats_are_read(tmp_path: Path) -> None:
    path = write_sound(tmp_path / "integers.wav", 2**31 * np.sign(noise(0.1)), subtype="FLOAT")
    assert np.isfinite(MediaReader(SOUNDS).read(path)).all()


@pytest.mark.parametrize("name", ["a.wav", "a.w64", "a.rf64", "a.aiff", "a.au", "a.flac", "a.ogg"])
def test_a_sound_that_is_cut_off_is_refused(tmp_path: Path, name: str) -> None:
    path = write_sound(tmp_path / name, noise(0.5))
    assert len(MediaReader(SOUNDS).read(path)) == 25
    path.write_bytes(path.read_bytes()[:2_000])
    expected = "not a sound that can be read" if name in ("a.flac", "a.ogg") else "is cut off: "
    assert expected in refusal(SOUNDS, path)


def test_a_wav_that_was_written_to_a_pipe_is_read(tmp_path: Path) -> None:
    path = write_sound(tmp_path / "piped.wav", noise(0.5))
    data = path.read_bytes()
    at = data.index(b"data") + 4
    for size in (0xFFFFFFFF, 0x7FFFF000, 0x80000000):  # as ffmpeg, SoX and arecord state
        path.write_bytes(data[:at] + struct.pack("<I", size) + data[at + 4 :])
        assert len(MediaReader(SOUNDS).read(path)) == 25


def test_an_mp3_that_is_cut_off_is_refused_for_the_right_reason(tmp_path: Path) -> None:
    soundfile = pytest.importorskip("soundfile")
    if "MP3" not in soundfile.available_formats():
        pytest.skip("this libsndfile reads no MP3")
    path = write_sound(tmp_path / "a.mp3", noise(5))
    data = path.read_bytes()
    assert len(MediaReader(SOUNDS).read(path)) == 250
    path.write_bytes(data[: len(data) // 2])
    assert "is cut off: 5.0 seconds in its header, 2." in refusal(SOUNDS, path)
    path.write_bytes(data[:300])
    assert "it is damaged, or of an unknown format" in refusal(SOUNDS, path)


def test_an_mp3_that_does_not_state_its_length_is_not_taken_for_one_that_is_cut_off(tmp_path: Path) -> None:
    soundfile = pytest.importorskip("soundfile")
    if "MP3" not in soundfile.available_formats():
        pytest.skip("this libsndfile reads no MP3")
    quiet_first = np.concatenate([np.zeros(16_000, np.float32), noise(5)])
    path = write_sound(tmp_path / "a.mp3", quiet_first)
    data = path.read_bytes()
    path.write_bytes(data[data.index(data[:2], 4) :])  # without the first frame, which states the length
    with soundfile.SoundFile(path) as file:
        assert file.frames > 7 * 16_000, "guessed from the few bits of silence"
    assert len(MediaReader(SOUNDS).windows(path)[0]) == pytest.approx(300, abs=10)


@pytest.mark.parametrize("dtype", [np.int32, np.float32])
def test_a_picture_of_32_bits_is_refused(tmp_path: Path, dtype: Any) -> None:
    Image.fromarray(np.full((8, 8), 1000, dtype)).save(tmp_path / "deep.tiff")
    assert "has pixels of 32 bits, whose range is unknown" in refusal(PICTURES, tmp_path / "deep.tiff")


def test_16_bits_are_scaled_to_8_in_every_format(tmp_path: Path) -> None:
    pixels = np.full((8, 8), 40_000, np.uint16)
    Image.fromarray(pixels).save(tmp_path / "a.tiff")
    (tmp_path / "a.pgm").write_bytes(b"P5 8 8 65535\n" + pixels.astype(">u2").tobytes())
    for name in ("a.tiff", "a.pgm"):
        assert (read_picture(tmp_path / name, PICTURES) == 40_000 >> 8).all()
