"""Sounds as log-mel spectrograms, computed as Whisper does: 16 kHz, windows of 25 ms every 10 ms, Slaney's mel bands.

A row is a pair of neighbouring frames, 20 ms: the model's second convolution makes one vector of each pair.

Shapes: N samples, T frames, M mel bands, U rows.
"""

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from seq2see.errors import UserError
from seq2see.formats.media.reader import TooLongError, require_tokens
from seq2see.tensors.files import require_regular_file

if TYPE_CHECKING:
    from soundfile import SoundFile

Frames = NDArray[np.float32]

# From the log of libsndfile, which silently shortens a sound to the size of its file: WAV, W64, AIFF, AU; RF64.
_PROBLEMS = {
    "bytes": re.compile(r"(?:data|riff|SSND|Data Size)\s*: (?P<stated>\d+) \(should be (?P<present>\d+)\)"),
    "frames": re.compile(
        r"Calculated frame count (?P<present>\d+) does not match value from 'ds64' chunk of (?P<stated>\d+)"
    ),
}

SAMPLE_RATE, WINDOW, HOP = 16_000, 400, 160
ROW_SAMPLES = 2 * HOP
ROWS_PER_SECOND = SAMPLE_RATE // ROW_SAMPLES
MAX_SECONDS = 4 * 3600  # of one file, which is decoded in memory
SAMPLE_RATES = 1_000, 1_000_000  # the lowest and the highest; outside, a small file is long, or needs a long transform
MAX_SAMPLE = 2.0**31  # integers stored as floats; the power of far larger samples overflows to NaN
MAX_MISSING = 0.1  # seconds; the headers of some intact MP3s count a frame too many
STREAMED_BYTES = 0x7FFF0000  # programs that write to a pipe state a size of 2 or 4 GiB, or nearly
BLOCK_SECONDS, BLOCK_MARGIN = 32, 1.0  # of the blocks that are decoded and resampled
BLOCK_WINDOWS = 1 << 14  # whose spectra are computed at once
RESAMPLING_TAPER = 0.05  # share of the spectrum over which it fades out: a sharp end would ring through the silence
RESAMPLING_MARGIN = 0.05  # seconds of silence appended, so that the end does not wrap around to the beginning


def read_sound(path: Path, bands: int, window_seconds: int = 0, max_tokens: int | None = None) -> list[Frames]:
    """Returns the rows of a sound, [U, 2 · bands]; with `window_seconds`, those of each of its windows, padded to it.

    With `max_tokens`, a sound of more tokens or of several windows is refused before it is decoded.
    """
    with _open_sound(path) as file:
        if max_tokens is not None:
            rows, window = math.ceil(_resampled_length(file) / ROW_SAMPLES), window_seconds * ROWS_PER_SECOND
            if window and rows > window:
                raise TooLongError(f"{path} is longer than model.window_seconds = {window_seconds}: split it")
            require_tokens(path, window or rows, max_tokens)
        samples = _decode(path, file)
    if not window_seconds:
        return [mel_rows(samples, bands)]
    return [mel_window(window, bands, window_seconds) for window in samples.split(window_seconds * SAMPLE_RATE)]


def read_samples(path: Path) -> Tensor:
    """Returns the mean of the channels at 16 kHz, from −1 to 1, [N]."""
    with _open_sound(path) as file:
        return _decode(path, file)


@contextmanager
def _open_sound(path: Path) -> Iterator["SoundFile"]:
    """Yields a sound whose header is plausible; whatever soundfile raises in the block becomes one line."""
    try:
        import soundfile
    except (ImportError, OSError):  # OSError: without its C library
        raise UserError('reading sounds needs soundfile: install it with pip install "seq2see[media]"') from None
    if not require_regular_file(path).stat().st_size:
        raise UserError(f"{path} is empty")
    try:
        with soundfile.SoundFile(path) as file:
            _check_header(path, file)
            yield file
    except (soundfile.SoundFileError, OSError, ValueError) as error:
        reason = str(getattr(error, "error_string", error)).strip().rstrip(".")
        if "File does not exist" in reason:  # what libsndfile says of a file that only its MP3 decoder tries
            reason = "it is damaged, or of an unknown format"
        raise UserError(f"{path} is not a sound that can be read: {reason}") from error


def _check_header(path: Path, file: "SoundFile") -> None:
    lowest, highest = SAMPLE_RATES
    if not lowest <= file.samplerate <= highest:
        raise UserError(
            f"{path} has a sample rate of {file.samplerate:,} Hz, but rates from {lowest:,} to {highest:,} are read: "
            f"convert it to {SAMPLE_RATE:,}"
        )
    seconds = file.frames / file.samplerate
    if seconds > MAX_SECONDS:
        raise UserError(f"{path} lasts {seconds / 3600:,.1f} hours, but at most 4 are read: split it")
    for unit, problem in _PROBLEMS.items():
        found = problem.search(file.extra_info)
        stated, present = (int(found["stated"]), int(found["present"])) if found else (0, 0)
        if present < stated < STREAMED_BYTES:
            raise UserError(
                f"{path} is cut off: {stated:,} {unit} of sound in its header, {present:,} in the file: copy it again"
            )


def _resampled_length(file: "SoundFile") -> int:
    down, up = _ratio(file.samplerate)
    return math.ceil(file.frames * up / down)


def _decode(path: Path, file: "SoundFile") -> Tensor:
    """Returns the mean of the channels at 16 kHz, [N]; a long sound is resampled in overlapping blocks.

    Resampling distorts both ends of a block, so each block overwrites the last `margin` of the one before it.
    """
    down, up = _ratio(file.samplerate)
    periods = file.samplerate / down  # per second; blocks of whole periods start at a sample of the result
    size, margin = (math.ceil(seconds * periods) * down for seconds in (BLOCK_SECONDS, BLOCK_MARGIN))
    samples = torch.empty(_resampled_length(file))
    block, end = torch.empty(0), 0
    while len(frames := file.read(size, dtype="float32", always_2d=True)):
        kept = block[-2 * margin :]
        block = torch.cat([kept, torch.from_numpy(frames).mean(1)])
        if not (peak := float(block.abs().max())) <= MAX_SAMPLE:  # also of NaN
            raise UserError(f"{path} has a sample of {peak:.3g}: convert it again, to samples from −1 to 1")
        resampled = resample(block, file.samplerate)
        start, skipped = (end - len(kept)) * up // down, margin * up // down if end else 0
        samples[start + skipped : start + len(resampled)] = resampled[skipped:]
        end += len(frames)
    _require_complete(path, file, end)
    return samples[: math.ceil(end * up / down)]


def _require_complete(path: Path, file: "SoundFile", frames: int) -> None:
    stated, present = file.frames / file.samplerate, frames / file.samplerate  # in seconds
    if stated - present > MAX_MISSING and _states_length(path, file):
        raise UserError(
            f"{path} is cut off: {stated:,.1f} seconds in its header, {present:,.1f} in the file: copy it again"
        )
    if not frames:
        raise UserError(f"{path} has no sound: 0 samples")


def _states_length(path: Path, file: "SoundFile") -> bool:
    """Returns whether the number of frames is from the header; of an MP3 without one, it is a guess from the bit rate."""
    if file.format != "MP3":
        return True
    with path.open("rb") as stream:
        beginning = stream.read(1 << 20)  # a picture of the album may come first
    return b"Xing" in beginning or b"Info" in beginning


def _ratio(rate: int) -> tuple[int, int]:
    """Returns the smallest numbers of samples at this rate and at 16 kHz that last equally long."""
    common = math.gcd(rate, SAMPLE_RATE)
    return rate // common, SAMPLE_RATE // common


def resample(samples: Tensor, rate: int) -> Tensor:
    """Changes the sample rate to 16 kHz by cutting or extending the spectrum, [N]."""
    down, up = _ratio(rate)
    if down == up:
        return samples
    blocks = math.ceil((len(samples) + RESAMPLING_MARGIN * rate) / down)
    unit = 1 << max(0, blocks.bit_length() - 4)
    blocks = math.ceil(blocks / unit) * unit  # a Fourier transform of a large prime length is slow and inaccurate
    highest = blocks * min(down, up) // 2  # of the frequencies that both rates have
    spectrum = torch.fft.rfft(samples, blocks * down)[: highest + 1]
    share = (1 - torch.arange(highest + 1) / highest) / RESAMPLING_TAPER  # of the taper that is left
    spectrum = spectrum * torch.sin(share.clamp(max=1) * math.pi / 2) ** 2
    result = torch.fft.irfft(spectrum, blocks * up) * (up / down)
    return result[: math.ceil(len(samples) * up / down)]


def mel_window(samples: Tensor, bands: int, seconds: int) -> Frames:
    """Returns the rows of the first seconds of samples, padded with silence, [50 · seconds, 2 · bands]."""
    size = seconds * SAMPLE_RATE
    return mel_rows(_pad(samples[:size], size), bands)


def mel_rows(samples: Tensor, bands: int) -> Frames:
    """Returns the log-mel spectrogram of samples at 16 kHz as pairs of frames, [U, 2 · bands]."""
    samples = _pad(samples, -(-len(samples) // ROW_SAMPLES) * ROW_SAMPLES)
    return log_mel(samples, bands).unflatten(0, (-1, 2)).flatten(1).numpy()


def log_mel(samples: Tensor, bands: int) -> Tensor:
    """Returns the log-mel spectrogram, [T, bands], scaled as Whisper's: the loudest 80 dB span 2."""
    padded = torch.nn.functional.pad(samples[None], (WINDOW // 2, WINDOW // 2), mode="reflect")[0]
    blocks = padded.unfold(0, WINDOW, HOP)[:-1].split(BLOCK_WINDOWS)  # of [≤ BLOCK_WINDOWS, WINDOW]
    # [WINDOW / 2 + 1, ≤ BLOCK_WINDOWS]
    powers = (torch.fft.rfft(frames * torch.hann_window(WINDOW)).abs().T ** 2 for frames in blocks)
    logs = torch.cat([(mel_filters(bands) @ power).clamp(min=1e-10).log10() for power in powers], dim=1)  # [bands, T]
    return logs.clamp_(min=float(logs.max()) - 8).add_(4).div_(4).T


@lru_cache(maxsize=4)
def mel_filters(bands: int) -> Tensor:
    """Returns triangular filters, evenly spaced on Slaney's mel scale and of equal area, [bands, WINDOW / 2 + 1]."""
    frequencies = np.linspace(0, SAMPLE_RATE / 2, WINDOW // 2 + 1)
    edges = _mel_to_hertz(np.linspace(0, _HIGHEST_MEL, bands + 2))
    rising = (frequencies - edges[:-2, None]) / np.diff(edges)[:-1, None]
    falling = (edges[2:, None] - frequencies) / np.diff(edges)[1:, None]
    filters = np.maximum(0, np.minimum(rising, falling)) * (2 / (edges[2:] - edges[:-2]))[:, None]
    return torch.from_numpy(filters.astype(np.float32))


# Slaney's scale is linear up to 1,000 Hz (15 mel), and from there logarithmic: 27 mel for a factor of 6.4.
_LINEAR_HERTZ, _LINEAR_MEL, _LOG_STEP = 1000.0, 15.0, math.log(6.4) / 27
_HIGHEST_MEL = _LINEAR_MEL + math.log(SAMPLE_RATE / 2 / _LINEAR_HERTZ) / _LOG_STEP


def _mel_to_hertz(mel: NDArray[np.float64]) -> NDArray[np.float64]:
    logarithmic = _LINEAR_HERTZ * np.exp(_LOG_STEP * (mel - _LINEAR_MEL))
    return np.where(mel < _LINEAR_MEL, mel * _LINEAR_HERTZ / _LINEAR_MEL, logarithmic)


def _pad(samples: Tensor, size: int) -> Tensor:
    return torch.nn.functional.pad(samples, (0, size - len(samples)))
