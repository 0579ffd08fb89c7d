"""Pictures and messages for the tests of the options for media."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from seq2see.errors import UserError
from tests.formats.media import cli


def message(result: Any) -> str:
    assert isinstance(result.exception, UserError), result.output
    assert "\n" not in str(result.exception)
    return str(result.exception)


def noise(path: Path, width: int = 8, seed: int = 0, channels: int = 1) -> Path:
    """A picture that differs from that of any other seed."""
    pixels = np.random.default_rng(seed).integers(0, 255, (8, width, channels), np.uint8)
    Image.fromarray(pixels[..., 0] if channels == 1 else pixels).save(path)
    return path


def findings(*arguments: object) -> dict[str, dict[str, Any]]:
    result = cli("data", "check", "--json", *arguments)
    return {finding["kind"]: finding for finding in json.loads(result.stdout)["findings"]}
