"""Pictures, sounds and the command line for the tests of media."""

import wave
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typer.testing import CliRunner

from seq2see.cli import app
from tests.models import TINY

PICTURES = replace(TINY, source="pictures", picture_height=8, patch_size=4, encoder_positions="grid")
SOUNDS = replace(TINY, source="sounds", mel_bands=8)
SHARES = {"black": 0.0, "grey": 0.5, "white": 1.0}


def write_wav(path: Path, samples: NDArray[np.floating[Any]], rate: int = 16_000) -> Path:
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, rate, 0, "NONE", ""))
        file.writeframes((samples * 32767).astype("<i2").tobytes())
    return path


def tone(hertz: float, seconds: float, rate: int = 16_000) -> NDArray[np.float64]:
    return 0.5 * np.sin(2 * np.pi * hertz * np.arange(int(seconds * rate)) / rate)


def cli(*arguments: object) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])
