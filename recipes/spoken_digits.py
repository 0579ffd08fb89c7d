"""Spoken digits: strings of 1 to 6 digits joined from the Free Spoken Digit Dataset.

    python recipes/spoken_digits.py --data DIR --work DIR --device cuda

DIR holds the recordings `{digit}_{speaker}_{number}.wav`, or fsdd-train.tar.xz. Recordings 5 to 9 of each digit and speaker are
the test set, 10 to 12 the validation set, the rest is for training, each time at another speed. The second run leaves out one
speaker, who is its whole test set.
"""

import random
import tarfile
import wave
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from recipe import Run, main, recognition_test

from seq2see.config import DataConfig

SETTINGS = (
    "text.tokenizer=character",
    "train.batch_tokens=1024",
    "train.lr=1.5e-3",
    "train.weight_decay=0.01",
    "train.patience=0",
    "train.validate_every=500",
)
LEFT_OUT = "george"
RATE = 8000
SPLITS: dict[str, Callable[[int], bool]] = {
    "test": lambda number: number < 10,
    "valid": lambda number: 10 <= number < 13,
    "train": lambda number: number >= 13,
}
STRINGS = {"train": 12_000, "valid": 300, "test": 600}
MAX_DIGITS, PAUSE = 6, 0.3  # the longest pause in seconds
SPEEDS = 0.85, 1.15  # in training (speed perturbation: Ko et al., 2015)

Samples = NDArray[np.int16]
Recordings = dict[tuple[str, str], list[Samples]]  # by speaker and digit


def runs(data: Path, work: Path) -> Sequence[Run]:
    return [
        make_run("all-speakers", data, work),
        make_run(f"without-{LEFT_OUT}", data, work, LEFT_OUT),
    ]


def make_run(name: str, data: Path, work: Path, left_out: str = "") -> Run:
    folder = work / f"{name}.data"
    if not (folder / "train.tsv").exists():
        write_sounds(data, folder, left_out)
    train, valid = ((str(folder / f"{split}.tsv"),) for split in ("train", "valid"))
    tests = {test: recognition_test("sounds", folder / f"{test}.tsv") for test in ("single", "strings", "strings-4")}
    return Run(name, DataConfig(sounds=train, valid_sounds=valid), "tiny-speech", SETTINGS, tests)


def write_sounds(data: Path, out: Path, left_out: str) -> None:
    """Writes WAV files, and lists of them: the training set last."""
    recordings = read_recordings(find_recordings(data, out))
    for split, belongs in SPLITS.items():
        chosen: Recordings = {}
        for (digit, speaker, number), samples in recordings.items():
            test_only = speaker == left_out
            if split == "test" if test_only else belongs(number) and not (left_out and split == "test"):
                chosen.setdefault((speaker, digit), []).append(samples)
        write_split(out, split, chosen, random.Random(split))


def find_recordings(data: Path, out: Path) -> list[Path]:
    archive = next(iter(data.rglob("fsdd*.tar.xz")), None)
    if archive is not None:
        data = out / "recordings"
        if not data.is_dir():
            with tarfile.open(archive) as file:
                file.extractall(data, filter="data")
    return sorted(data.rglob("*_*_*.wav"))


def read_recordings(files: Sequence[Path]) -> dict[tuple[str, str, int], Samples]:
    recordings = {}
    for file in files:
        digit, speaker, number = file.stem.split("_")
        with wave.open(str(file)) as sound:
            assert (sound.getframerate(), sound.getnchannels(), sound.getsampwidth()) == (RATE, 1, 2), file
            recordings[digit, speaker, int(number)] = np.frombuffer(sound.readframes(sound.getnframes()), "<i2")
    if not recordings:
        raise SystemExit("no recordings {digit}_{speaker}_{number}.wav found")
    return recordings


def write_split(out: Path, split: str, recordings: Recordings, rng: random.Random) -> None:
    """Writes every recording by itself, and strings of recordings of one speaker with pauses between them."""
    folder = out / split
    folder.mkdir(parents=True, exist_ok=True)
    single, strings = [], []
    for (speaker, digit), sounds in recordings.items():
        for i, samples in enumerate(sounds):
            single.append((write(folder / f"{digit}-{speaker}-{i}.wav", samples), digit))
    speakers = sorted({speaker for speaker, _ in recordings})
    for i in range(STRINGS[split]):
        speaker, digits = rng.choice(speakers), rng.choices("0123456789", k=1 + i % MAX_DIGITS)
        parts = [silence(rng)]
        for digit in digits:
            samples = rng.choice(recordings[speaker, digit])
            parts += [change_speed(samples, rng.uniform(*SPEEDS)) if split == "train" else samples, silence(rng)]
        strings.append((write(folder / f"string-{i}.wav", np.concatenate(parts)), "".join(digits)))
    lists = {split: single + strings}
    if split == "test":
        lists = {"single": single, "strings": strings, "strings-4": [row for row in strings if len(row[1]) <= 4]}
    for name, rows in lists.items():
        lines = [f"{path.relative_to(out)}\t{text}\n" for path, text in rows]
        (out / f"{name}.tsv").write_text("".join(lines), encoding="utf-8")


def change_speed(samples: Samples, speed: float) -> Samples:
    """Plays a recording faster or slower, which also changes its pitch."""
    places = np.arange(0, len(samples) - 1, speed)
    return np.interp(places, np.arange(len(samples)), samples).astype(np.int16)


def silence(rng: random.Random) -> Samples:
    return np.zeros(int(rng.random() * PAUSE * RATE), np.int16)


def write(path: Path, samples: Samples) -> Path:
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, RATE, 0, "NONE", ""))
        file.writeframes(samples.tobytes())
    return path


if __name__ == "__main__":
    main("spoken-digits", runs, __doc__)
