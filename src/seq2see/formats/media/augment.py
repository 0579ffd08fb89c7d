"""Changes pictures and sounds in training, differently in each epoch, so that a model learns what does not matter.

Each change follows from (seed, epoch, index of the example) alone, so a resumed run makes the same ones.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from seq2see.config import Config, ModelConfig
from seq2see.data.batch_plan import Int64Array
from seq2see.data.batches import Augmentation
from seq2see.data.store import TokenArray
from seq2see.formats.media.pictures import cut_patches, join_patches
from seq2see.tensors.rng import seed_hashes, splitmix64, to_uniform


def build_augmentation(config: Config) -> Augmentation | None:
    """Returns the augmentation that the configuration asks for."""
    train = config.train
    if config.model.source == "pictures" and train.shift_pixels:
        return ShiftPictures(config.model, train.shift_pixels, train.seed)
    if config.model.source == "sounds" and (train.mask_bands or train.mask_frames):
        return MaskSpectrogram(config.model, train.mask_bands, train.mask_frames, train.seed)
    return None


def _uniforms(count: int, seed: int, epoch: int, indices: Int64Array) -> NDArray[np.float64]:
    """Returns random numbers, [count, examples]."""
    states = splitmix64(seed_hashes(len(indices), seed, epoch, 7) + indices.astype(np.uint64))
    return to_uniform(splitmix64(states + np.arange(count, dtype=np.uint64)[:, None]))


@dataclass(frozen=True)
class ShiftPictures:
    """Shifts each picture by up to `pixels` in both directions; the edge is repeated."""

    model: ModelConfig
    pixels: int
    seed: int

    def __call__(self, tokens: TokenArray, lengths: Int64Array, epoch: int, indices: Int64Array) -> TokenArray:
        size, rows = self.model.patch_size, self.model.patch_rows
        pictures = join_patches(tokens, size, rows)  # side by side, [height, all widths, channels]
        widths = lengths // rows * size
        ends = np.cumsum(widths)
        down, right = (_uniforms(2, self.seed, epoch, indices) * (2 * self.pixels + 1)).astype(int) - self.pixels
        first, last, down, right = (np.repeat(each, widths) for each in (ends - widths, ends - 1, down, right))
        columns = np.clip(np.arange(ends[-1]) + right, first, last)  # of the same picture
        shifted_rows = np.clip(np.arange(rows * size)[:, None] + down, 0, rows * size - 1)  # [height, all widths]
        return cut_patches(pictures[shifted_rows, columns], size)


@dataclass(frozen=True)
class MaskSpectrogram:
    """SpecAugment: sets two ranges of mel bands and two of frames to the spectrogram's mean, each up to a maximum size.

    Of a short sound, at most a fifth of the frames are masked by each range.
    """

    model: ModelConfig
    bands: int
    frames: int
    seed: int

    def __call__(self, tokens: TokenArray, lengths: Int64Array, epoch: int, indices: Int64Array) -> TokenArray:
        parts = []
        numbers_of_each = _uniforms(8, self.seed, epoch, indices).T
        for rows, numbers in zip(np.split(tokens, np.cumsum(lengths)[:-1]), numbers_of_each, strict=True):
            frames = rows.reshape(-1, self.model.mel_bands).copy()
            mean = frames.mean(dtype=np.float32)
            for first, second in zip(numbers[0:4:2], numbers[1:4:2], strict=True):
                frames[:, _range(first, second, self.bands, self.model.mel_bands)] = mean
            for first, second in zip(numbers[4::2], numbers[5::2], strict=True):
                frames[_range(first, second, min(self.frames, len(frames) // 5), len(frames))] = mean
            parts.append(frames.reshape(rows.shape))
        return np.concatenate(parts)


def _range(size: float, start: float, max_size: int, length: int) -> slice:
    """Returns a range of 0 to `max_size` of `length` items, from two uniform numbers."""
    count = int(size * (min(max_size, length) + 1))
    first = int(start * (length - count + 1))
    return slice(first, first + count)
