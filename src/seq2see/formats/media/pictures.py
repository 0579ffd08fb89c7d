"""Pictures as patches: a file is decoded, resized to the model's height and cut into squares.

Patches run column by column, from left to right: with `patch_rows` patches in a column, patch i is at row i % patch_rows of
column i // patch_rows. A wider picture only has more columns.

Shapes: U patches, F = patch_size² · channels pixel values in each.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from seq2see.config import ModelConfig
from seq2see.errors import UserError
from seq2see.formats.media.reader import require_tokens
from seq2see.tensors.files import require_regular_file

if TYPE_CHECKING:
    from PIL.Image import Image

Pixels = NDArray[np.uint8]

MAX_PIXELS = 1 << 26  # 8,192 × 8,192, in the file and resized; a small file can claim to be far larger


def read_picture(path: Path, config: ModelConfig, max_tokens: int | None = None) -> Pixels:
    """Returns the patches of a picture, [U, F]; one of more tokens is refused before it is resized."""
    with _open_picture(path) as picture:
        width = _resized_width(path, picture, config.picture_height)
        require_tokens(path, -(-width // config.patch_size) * config.patch_rows, max_tokens)
        return cut_patches(_to_pixels(picture, width, config.picture_height, config.channels), config.patch_size)


@contextmanager
def _open_picture(path: Path) -> Iterator["Image"]:
    """Yields an upright picture of 8 bits per channel; whatever Pillow raises in the block becomes one line."""
    try:
        from PIL import Image, ImageOps
    except ImportError:
        raise UserError('reading pictures needs Pillow: install it with pip install "seq2see[media]"') from None
    if not require_regular_file(path).stat().st_size:
        raise UserError(f"{path} is empty")
    try:
        with Image.open(path) as image:
            if image.width * image.height > MAX_PIXELS:
                raise UserError(
                    f"{path} has {image.width:,} × {image.height:,} pixels, but at most {MAX_PIXELS:,} are read: resize it"
                )
            picture = ImageOps.exif_transpose(image)
            if picture.mode.startswith("I;16") or (picture.mode == "I" and image.format == "PPM"):
                picture = Image.fromarray((np.asarray(picture) >> 8).astype(np.uint8))  # Pillow would clip it to 255
            if picture.mode in ("I", "F"):
                raise UserError(f"{path} has pixels of 32 bits, whose range is unknown: save it with 8 or 16 bits")
            yield picture
    except (UserError, MemoryError):
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise UserError(f"{path} claims to be a huge picture: at most {MAX_PIXELS:,} pixels are read") from None
    except Exception as error:  # a damaged file makes Pillow's decoders raise almost anything
        reason = " ".join(str(error).split()) or type(error).__name__
        raise UserError(f"{path} is not a picture that can be read: {reason}") from error


def _resized_width(path: Path, picture: "Image", height: int) -> int:
    width = max(1, round(picture.width * height / picture.height))
    if width * height > MAX_PIXELS:
        raise UserError(
            f"{path} would have {width:,} × {height:,} pixels at the model's height, but at most {MAX_PIXELS:,} are read: "
            "crop it"
        )
    return width


def _to_pixels(picture: "Image", width: int, height: int, channels: int) -> Pixels:
    """Returns a picture of this size on white, [height, width, channels]."""
    from PIL import Image

    if picture.has_transparency_data:
        picture = picture.convert("RGBA")
        picture = Image.alpha_composite(Image.new("RGBA", picture.size, "white"), picture)
    picture = picture.convert("L" if channels == 1 else "RGB")
    if picture.height != height:
        picture = picture.resize((width, height), Image.Resampling.BICUBIC)
    return np.asarray(picture).reshape(height, width, channels)


def cut_patches(pixels: Pixels, size: int) -> Pixels:
    """[height, width, channels] → [U, F]; the right edge is repeated to fill the last column of patches."""
    height, width, channels = pixels.shape
    pixels = np.pad(pixels, ((0, 0), (0, -width % size), (0, 0)), mode="edge")
    squares = pixels.reshape(height // size, size, -1, size, channels)  # [rows, size, columns, size, channels]
    return squares.transpose(2, 0, 1, 3, 4).reshape(-1, size * size * channels)


def join_patches(patches: Pixels, size: int, rows: int) -> Pixels:
    """[U, F] → [height, width, channels]: the inverse of `cut_patches`."""
    squares = patches.reshape(
        -1, rows, size, size, patches.shape[1] // size**2
    )  # [columns, rows, size, size, channels]
    return squares.transpose(1, 2, 0, 3, 4).reshape(rows * size, -1, squares.shape[-1])
