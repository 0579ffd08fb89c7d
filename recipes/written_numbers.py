"""Written numbers: 1 to 6 digits of MNIST side by side; and single digits, named by a classifier (`digits`).

    python recipes/written_numbers.py --data DIR --work DIR --device cuda [--only digits]

DIR holds MNIST's images and labels in idx format, plain or as .gz. The last 5,000 digits are for the test set, the 1,000 before
them for validation, the rest for training; in numbers, each time distorted in another way.
"""

import gzip
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from recipe import Run, main, recognition_test

from seq2see.config import DataConfig

# Without dropout and with a moderate learning rate: otherwise it takes long to find out where to look.
SETTINGS = (
    "text.tokenizer=character",
    "model.patch_size=8",
    "model.width=192",
    "model.heads=6",
    "model.feed_forward=768",
    "model.dropout=0",
    "train.batch_tokens=2048",
    "train.steps=10000",
    "train.lr=5e-4",
    "train.weight_decay=0.01",
    "train.patience=0",
    "train.validate_every=1000",
)
CLASSIFIER = ("text.tokenizer=word", "train.steps=6000", "train.patience=0", "train.validate_every=500")
HEIGHT, DIGIT, MAX_DIGITS = 32, 28, 6
DISTORTION = 1.0  # standard deviation in pixels
COUNTS = {"train": 60_000, "valid": 500, "test": 2_000}
HELD_OUT = {"test": 5_000, "valid": 1_000}

WriteSplit = Callable[[Path, str, NDArray[np.uint8], NDArray[np.uint8]], None]


def runs(data: Path, work: Path) -> Sequence[Run]:
    return [
        make_run("mnist", "tiny-vision", SETTINGS, data, work / "data", write_numbers),
        make_run("digits", "tiny-vit", CLASSIFIER, data, work / "digits", write_digits),
    ]


def make_run(name: str, preset: str, settings: Sequence[str], data: Path, folder: Path, write_split: WriteSplit) -> Run:
    if not (folder / "train.tsv").exists():
        write_pictures(data, folder, write_split)
    train, valid = ((str(folder / f"{split}.tsv"),) for split in ("train", "valid"))
    tests = {"test": recognition_test("pictures", folder / "test.tsv")}
    return Run(name, DataConfig(pictures=train, valid_pictures=valid), preset, settings, tests)


def write_pictures(data: Path, out: Path, write_split: WriteSplit) -> None:
    """Writes PNG files of height 32, and lists of them: the training set last."""
    images, labels = read_idx(data, "*images*"), read_idx(data, "*labels*")
    end = len(images)
    for split in ("test", "valid", "train"):
        start = end - HELD_OUT.get(split, end)
        (out / split).mkdir(parents=True, exist_ok=True)
        write_split(out, split, images[start:end], labels[start:end])
        end = start


def read_idx(data: Path, pattern: str) -> NDArray[np.uint8]:
    """Reads an idx file: a magic number whose last byte is the number of axes, the axes' sizes, the bytes."""
    file = next(iter(sorted(data.rglob(pattern))), None)
    if file is None:
        raise SystemExit(f"{data} has no file {pattern}")
    content = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    shape = np.frombuffer(content, ">i4", content[3], 4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * len(shape)).reshape(shape)


def write_digits(out: Path, split: str, images: NDArray[np.uint8], labels: NDArray[np.uint8]) -> None:
    rng, lines = np.random.default_rng(len(images)), []
    for i, (image, label) in enumerate(zip(images, labels, strict=True)):
        Image.fromarray(draw([image], rng)).save(out / split / f"{i}.png", compress_level=1)
        lines.append(f"{split}/{i}.png\t{label}\n")
    (out / f"{split}.tsv").write_text("".join(lines), encoding="utf-8")


def write_numbers(out: Path, split: str, images: NDArray[np.uint8], labels: NDArray[np.uint8]) -> None:
    rng, lines = np.random.default_rng(len(images)), []
    for i in range(COUNTS[split]):
        chosen = rng.integers(len(images), size=1 + i % MAX_DIGITS)
        name = f"{split}/{i}.png"
        digits = [distort(image, rng) if split == "train" else image for image in images[chosen]]
        Image.fromarray(draw(digits, rng)).save(out / name, compress_level=1)
        lines.append(f"{name}\t{''.join(map(str, labels[chosen]))}\n")
    (out / f"{split}.tsv").write_text("".join(lines), encoding="utf-8")


def distort(digit: NDArray[np.uint8], rng: np.random.Generator) -> NDArray[np.uint8]:
    """Moves the points of a 4 × 4 grid at random and everything between them along, as other writers would (Simard, 2003)."""
    size = digit.shape[0]
    places = []
    for base in np.mgrid[:size, :size]:
        grid = Image.fromarray(rng.normal(0, DISTORTION, (4, 4)).astype(np.float32))
        places.append(np.clip(base + np.asarray(grid.resize((size, size), Image.Resampling.BICUBIC)), 0, size - 1.001))
    (top, left), pixels = (place.astype(int) for place in places), digit.astype(np.float32)
    down, right = places[0] - top, places[1] - left  # shares of the next row and column
    upper = pixels[top, left] * (1 - right) + pixels[top, left + 1] * right
    lower = pixels[top + 1, left] * (1 - right) + pixels[top + 1, left + 1] * right
    return (upper * (1 - down) + lower * down).round().astype(np.uint8)


def draw(digits: Sequence[NDArray[np.uint8]], rng: np.random.Generator) -> NDArray[np.uint8]:
    """Places digits side by side, each up to 4 pixels lower and up to 6 closer to its neighbour, in black on white."""
    canvas = np.zeros((HEIGHT, len(digits) * DIGIT + 4), np.uint8)
    x = int(rng.integers(4))
    for digit in digits:
        y = int(rng.integers(HEIGHT - DIGIT + 1))
        place = canvas[y : y + DIGIT, x : x + DIGIT]
        np.maximum(place, digit, out=place)
        x += DIGIT - int(rng.integers(7))
    return 255 - canvas[:, : min(x + 4, canvas.shape[1])]


if __name__ == "__main__":
    main("written-numbers", runs, __doc__)
