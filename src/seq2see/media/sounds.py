"""Sounds as log-mel spectrograms, computed as Whisper does: 16 kHz, windows of 25 ms every 10 ms, Slaney's mel bands.

A row is a pair of neighbouring frames, 20 ms: the model's second convolution makes one vector of each pair.

Shapes: N samples, T frames, M mel bands, U rows.
"""

import math
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from seq2see.errors import UserError
from seq2see.files import require_regular_file

Frames = NDArray[np.float32]

SAMPLE_RATE, WINDOW, HOP = 16_000, 400, 160
ROW_SAMPLES = 2 * HOP
ROWS_PER_SECOND = SAMPLE_RATE // ROW_SAMPLES
MAX_SECONDS = 4 * 3600  # of one file, which is decoded in memory
RESAMPLING_TAPER = 0.05  # share of the spectrum over which it fades out: a sharp end would ring through the silence
RESAMPLING_MARGIN = 0.05  # seconds of silence appended, so that the end does not wrap around to the beginning


def read_sound(path: Path, bands: int, window_seconds: int = 0) -> list[Frames]:
    """Returns the rows of a sound, [U, 2 · bands]; with `window_seconds`, those of each of its windows, padded to it."""
    samples = read_samples(path)
    if not window_seconds:
        return [mel_rows(samples, bands)]
    return [mel_window(window, bands, window_seconds) for window in samples.split(window_seconds * SAMPLE_RATE)]


def read_samples(path: Path) -> Tensor:
    """Returns the mean of the channels at 16 kHz, from −1 to 1, [N]."""
    try:
        import soundfile
    except (ImportError, OSError):  # OSError: without its C library
        raise UserError('reading sounds needs soundfile: install it with pip install "seq2see[media]"') from None
    if not require_regular_file(path).stat().st_size:
        raise UserError(f"{path} is empty")
    try:
        with soundfile.SoundFile(path) as file:
            seconds = file.frames / file.samplerate
            if seconds > MAX_SECONDS:
                raise UserError(f"{path} lasts {seconds / 3600:,.1f} hours, but at most 4 are read: split it")
            samples, rate = torch.from_numpy(file.read(dtype="float32", always_2d=True)).mean(1), file.samplerate
    except (soundfile.SoundFileError, OSError, ValueError) as error:
        reason = str(getattr(error, "error_string", error)).strip().rstrip(".")
        raise UserError(f"{path} is not a sound that can be read: {reason}") from error
    if not len(samples):
        raise UserError(f"{path} has no sound: 0 samples")
    if not samples.isfinite().all():
        raise UserError(f"{path} has samples that are NaN or infinite: convert it again")
    return resample(samples, rate)


def resample(samples: Tensor, rate: int) -> Tensor:
    """Changes the sample rate to 16 kHz by cutting or extending the spectrum, [N]."""
    common = math.gcd(rate, SAMPLE_RATE)
    down, up = rate // common, SAMPLE_RATE // common
    if down == up:
        return samples
    blocks = math.ceil((len(samples) + RESAMPLING_MARGIN * rate) / down)
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
    spectrum = torch.stft(samples, WINDOW, HOP, window=torch.hann_window(WINDOW), return_complex=True)
    power = spectrum[:, :-1].abs() ** 2  # [WINDOW / 2 + 1, T]
    logs = (mel_filters(bands) @ power).clamp(min=1e-10).log10()
    return ((torch.maximum(logs, logs.max() - 8) + 4) / 4).T


@lru_cache(maxsize=4)
def mel_filters(bands: int) -> Tensor:
    """Returns triangular filters, evenly spaced on Slaney's mel scale and of equal area, [bands, WINDOW / 2 + 1]."""
    frequencies = np.linspace(0, SAMPLE_RATE / 2, WINDOW // 2 + 1)
    edges = _mel_to_hertz(np.linspace(0, _hertz_to_mel(SAMPLE_RATE / 2), bands + 2))
    rising = (frequencies - edges[:-2, None]) / np.diff(edges)[:-1, None]
    falling = (edges[2:, None] - frequencies) / np.diff(edges)[1:, None]
    filters = np.maximum(0, np.minimum(rising, falling)) * (2 / (edges[2:] - edges[:-2]))[:, None]
    return torch.from_numpy(filters.astype(np.float32))


# Slaney's scale is linear up to 1,000 Hz (15 mel), and from there logarithmic: 27 mel for a factor of 6.4.
_LINEAR_HERTZ, _LINEAR_MEL, _LOG_STEP = 1000.0, 15.0, math.log(6.4) / 27


def _hertz_to_mel(hertz: float) -> float:
    if hertz < _LINEAR_HERTZ:
        return hertz * _LINEAR_MEL / _LINEAR_HERTZ
    return _LINEAR_MEL + math.log(hertz / _LINEAR_HERTZ) / _LOG_STEP


def _mel_to_hertz(mel: NDArray[np.float64]) -> NDArray[np.float64]:
    logarithmic = _LINEAR_HERTZ * np.exp(_LOG_STEP * (mel - _LINEAR_MEL))
    return np.where(mel < _LINEAR_MEL, mel * _LINEAR_HERTZ / _LINEAR_MEL, logarithmic)


def _pad(samples: Tensor, size: int) -> Tensor:
    return torch.nn.functional.pad(samples, (0, size - len(samples)))
