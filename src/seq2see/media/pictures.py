"""Pictures as patches: a file is decoded, resized to the model's height and cut into squares.

Patches run column by column, from left to right: with `patch_rows` patches in a column, patch i is at row i % patch_rows of
column i // patch_rows. A wider picture only has more columns.

Shapes: U patches, F = patch_size² · channels pixel values in each.
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from seq2see.config import ModelConfig
from seq2see.errors import UserError
from seq2see.files import require_regular_file

Pixels = NDArray[np.uint8]

MAX_PIXELS = 1 << 26  # 8,192 × 8,192; a small file can claim to be far larger


def read_picture(path: Path, config: ModelConfig) -> Pixels:
    """Returns the patches of a picture, [U, F]."""
    return cut_patches(read_pixels(path, config.picture_height, config.channels), config.patch_size)


def read_pixels(path: Path, height: int, channels: int) -> Pixels:
    """Returns a picture at this height, [height, width, channels]; one that has it already keeps its pixel values."""
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
            if picture.mode.startswith("I;16"):  # Pillow would clip 16-bit grey to 255
                picture = Image.fromarray((np.asarray(picture) >> 8).astype(np.uint8))
            if picture.has_transparency_data:
                picture = picture.convert("RGBA")
                picture = Image.alpha_composite(Image.new("RGBA", picture.size, "white"), picture)
            picture = picture.convert("L" if channels == 1 else "RGB")
            if picture.height != height:
                width = max(1, round(picture.width * height / picture.height))
                picture = picture.resize((width, height), Image.Resampling.BICUBIC)
            return np.asarray(picture).reshape(height, picture.width, channels)
    except UserError:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise UserError(f"{path} claims to be a huge picture: at most {MAX_PIXELS:,} pixels are read") from None
    except Exception as error:  # a damaged file makes Pillow's decoders raise almost anything
        raise UserError(f"{path} is not a picture that can be read: {' '.join(str(error).split())}") from error


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
