"""Disks that fail and processes that die while something is written: nothing may be lost or left half-written.

    python -m tests.faults [WRITER ...] [--count N] [--seed 1]

Each writer runs once to count its steps in its directory: every open, write, fsync, truncate, close, rename, link, mkdir and
removal. Then it runs again for each of them, and there the disk is full (ENOSPC, also at all later steps that need space), the
step fails once (EIO), or the process dies. A write fails in its middle. Afterwards the directory must hold what was there
before or what should be there, and a failure must have been reported in one line. Ends in a table.
"""

import argparse
import builtins
import errno
import io
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

import torch

import seq2see
from seq2see.config import Config
from seq2see.data.bpe_dropout import BpeDropout
from seq2see.data.store import store_pairs
from seq2see.data.tokenizer import Tokenizer
from seq2see.storage.bundled import GRAMMAR
from seq2see.train.checkpoint import CheckpointManager
from tests.commands import run_command
from tests.corpora import SMALL_SETTINGS, write_phrases
from tests.kill_study import rows as log_rows

KINDS = ["ENOSPC", "EIO", "death"]
DIED = 57  # exit code
SHORT_RUN = ["train.validate_every=3", "train.checkpoint_steps=3", "train.steps=6"]
REMOVALS = {"unlink", "rmdir"}  # possible on a full disk


# The shim, in the process that writes.


class Faults:
    """Counts the steps in a folder, and lets those fail that are to."""

    def __init__(self, folder: str, kind: str, number: int) -> None:
        self.folder, self.kind, self.number = os.path.realpath(folder), kind, number
        self.steps: list[str] = []

    def step(self, name: str, target: Any, folder: int | None = None, fail_in: Callable[[], object] = bool) -> None:
        """Counts a step, if it is in the folder; one that is to fail does a part of its work and raises, or dies."""
        start = "/" if folder is None else os.readlink(f"/proc/self/fd/{folder}")
        path = os.readlink(f"/proc/self/fd/{target}") if isinstance(target, int) else os.path.abspath(target)
        if not os.path.join(start, path).startswith(self.folder):
            return
        self.steps.append(name)
        late = len(self.steps) - self.number
        if late >= 0 if self.kind == "ENOSPC" and name not in REMOVALS else late == 0:
            fail_in()
            if self.kind == "death":
                os._exit(DIED)
            number = errno.EIO if self.kind == "EIO" else errno.ENOSPC
            raise OSError(number, os.strerror(number), None if isinstance(target, int) else path)

    def install(self) -> None:
        for name in ("fsync", "truncate", "ftruncate", "sendfile", "mkdir", "unlink", "rmdir"):
            self._wrap(name, name, 0)
        for name in ("rename", "replace", "link", "symlink"):
            self._wrap(name, "rename" if name == "replace" else name, 1)
        os.remove = os.unlink
        open_descriptor, open_file = os.open, io.open

        def opened_descriptor(path: Any, flags: int, *arguments: Any, **options: Any) -> int:
            if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
                self.step("open", path, options.get("dir_fd"))
            return open_descriptor(path, flags, *arguments, **options)

        def opened_file(file: Any, mode: str = "r", buffering: int = -1, *arguments: Any, **options: Any) -> Any:
            if isinstance(file, int) or not set(mode) & set("wax+"):
                return open_file(file, mode, buffering, *arguments, **options)
            self.step("open", file)
            raw = FailingFile(file, mode.replace("b", "").replace("t", ""))
            raw.faults = self
            buffered = io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)
            return buffered if "b" in mode else io.TextIOWrapper(buffered, *arguments, **options)

        os.open = opened_descriptor
        builtins.open = io.open = opened_file

    def _wrap(self, function: str, name: str, which: int) -> None:
        original = getattr(os, function)

        def wrapped(*arguments: Any, **options: Any) -> Any:
            self.step(name, arguments[which], options.get("dir_fd"))
            return original(*arguments, **options)

        setattr(os, function, wrapped)


class FailingFile(io.FileIO):
    faults: Faults

    def write(self, content: Any) -> int:
        data = bytes(content)
        self.faults.step("write", self.fileno(), fail_in=lambda: super(FailingFile, self).write(data[: len(data) // 2]))
        return super().write(data)

    def truncate(self, size: int | None = None) -> int:
        self.faults.step("truncate", self.fileno())
        return super().truncate(size)

    def close(self) -> None:
        if not self.closed:
            self.faults.step("close", self.fileno(), fail_in=super().close)
        super().close()


def write(writer: str, folder: str, kind: str, number: str) -> None:
    """The program that runs in a process of its own: `python tests/faults.py WRITER FOLDER KIND NUMBER`."""
    from seq2see.errors import UserError

    faults = Faults(folder, kind, int(number))
    prepared = WRITERS[writer].start(Path(folder))
    faults.install()
    try:
        prepared()
    except (UserError, OSError) as error:
        print(f"seq2see: {error}", file=sys.stderr)
        sys.exit(1)
    finally:
        if kind == "none":
            print(*faults.steps, flush=True)


# What is written, and what must be there afterwards.


@dataclass(frozen=True)
class Writer:
    prepare: Callable[[Path], object]  # what is there before
    start: Callable[[Path], Callable[[], object]]  # loads what is needed; the function that it returns writes
    state: Callable[[Path], object] | None = (
        None  # what the folder holds, as read by the library; by default, its files
    )


def command(*arguments: str) -> Callable[[Path], Callable[[], object]]:
    def start(folder: Path) -> Callable[[], object]:
        from seq2see.cli import main

        os.chdir(folder)
        sys.argv = ["seq2see", *arguments]
        return main

    return start


def prepare_texts(folder: Path) -> None:
    (folder / "a.en").write_text("I like tea.\nWe are friends.\n")
    (folder / "a.hi").write_text("मुझे चाय पसंद है।\nहम दोस्त हैं।\n")
    (folder / "a.md").write_text("# I like tea.\n")
    for name in ("out.md", "out.png", "out.json", "out.safetensors"):
        (folder / name).write_text("the result of yesterday\n")


def start_save(folder: Path) -> Callable[[], object]:
    model = seq2see.load(GRAMMAR)
    return lambda: model.save(folder / "model")


def save_checkpoint(folder: Path, step: int) -> None:
    manager = CheckpointManager(folder / "checkpoints")
    manager.save("step", step, {"weights": torch.full([1000], float(step))}, {"step": step})
    manager.wait()


def prepare_checkpoints(folder: Path) -> None:
    for step in (1, 2):
        save_checkpoint(folder, step)


def newest_checkpoint(folder: Path) -> object:
    loaded, damaged = CheckpointManager(folder / "checkpoints").load_latest(lambda _: True)
    assert loaded and not damaged
    return float(loaded.tensors["weights"].sum())


def store_tokens(folder: Path, epoch: int) -> list[int]:
    """The tokens of one epoch, which replace those of the epoch before."""
    pairs = [("I like tea.", "मुझे चाय पसंद है।")] * 50
    tokenizer = Tokenizer.train((text for pair in pairs for text in pair), "bpe", vocab_size=300)
    dropout = BpeDropout(0.5, seed=1, epoch=epoch)
    store = store_pairs(folder / "tokens", pairs, "pairs", (tokenizer, tokenizer), dropout)
    return [int(token) for side in store.sides for token in side.tokens]


def prepare_run(folder: Path) -> None:
    """A finished training, which is then continued."""
    config = Config(data=write_phrases(folder)).override([*SMALL_SETTINGS, *SHORT_RUN])
    (folder / "config.toml").write_text(config.to_toml())
    trained = run_command("train", "--config", folder / "config.toml", "--out", folder / "run")
    assert trained.returncode == 0, trained.stderr


def continued_run(folder: Path) -> object:
    """The finished model is there at any time; what the run lost is made up for when it is resumed."""
    seq2see.load(folder / "run")
    done = run_command("train", "--resume", folder / "run", "--steps", "12")
    assert done.returncode == 0, done.stderr
    return (folder / "run" / "model.safetensors").read_bytes(), log_rows(folder / "run")


WRITERS = {
    "save": Writer(bool, start_save),
    "checkpoint": Writer(prepare_checkpoints, lambda folder: partial(save_checkpoint, folder, 3), newest_checkpoint),
    "tokens": Writer(
        lambda folder: store_tokens(folder, 1),
        lambda folder: partial(store_tokens, folder, 2),
        lambda folder: [store_tokens(folder, epoch) for epoch in (2, 1)],  # built again if need be
    ),
    "translate": Writer(prepare_texts, command("translate", "--model", GRAMMAR, "a.md", "--out", "out.md")),
    "explain": Writer(prepare_texts, command("explain", "--model", GRAMMAR, "I like tea.", "--out", "out.json")),
    "evaluate": Writer(prepare_texts, command("evaluate", "--hyp", "a.hi", "--ref", "a.hi", "--out", "out.png")),
    "vectors": Writer(
        prepare_texts, command("vectors", "fit", "--method", "one-hot", "--text", "a.en", "--out", "out.safetensors")
    ),
    "train": Writer(prepare_run, command("train", "--resume", "run", "--steps", "12"), continued_run),
    "export": Writer(bool, command("export", GRAMMAR, "--to", "huggingface", "--out", "exported")),
}


def files(folder: Path) -> object:
    """The content of all files, without what a process that died was writing."""
    found = sorted(path for path in folder.rglob("*") if not is_unfinished(path.relative_to(folder)))
    return {str(path.relative_to(folder)): path.is_file() and path.read_bytes() for path in found}


def is_unfinished(path: Path) -> bool:
    return any(part.endswith((".part", ".building")) for part in path.parts)


# Every fault.


@dataclass
class Study:
    """One writer: the steps that it takes, and the contents of its folder before and after."""

    name: str
    base: Path

    def __post_init__(self) -> None:
        self.writer, self.folder = WRITERS[self.name], self.base / "folder"
        self.folder.mkdir(parents=True)
        self.writer.prepare(self.folder)
        shutil.copytree(self.folder, self.base / "prepared")
        self.old = self.state()
        self.reset()
        done = self.write("none", 0)
        assert done.returncode == 0, done.stderr
        self.steps = done.stdout.splitlines()[-1].split()
        self.new = self.state()

    def reset(self) -> None:
        shutil.rmtree(self.folder)
        shutil.copytree(self.base / "prepared", self.folder)

    def state(self) -> object:
        return (self.writer.state or files)(self.folder)

    def write(self, kind: str, number: int) -> subprocess.CompletedProcess[str]:
        return run_command("--write", self.name, self.folder, kind, number, program=Path(__file__))

    def faults(self) -> list[tuple[str, int]]:
        """Every kind at every step; a full disk does not hinder removals."""
        numbered = list(enumerate(self.steps, 1))
        return [
            (kind, number) for number, step in numbered for kind in KINDS if kind != "ENOSPC" or step not in REMOVALS
        ]

    def outcome(self, kind: str, number: int) -> str:
        """What a fault leads to; starts with "wrong" if it must not."""
        self.reset()
        done = self.write(kind, number)
        unfinished = [path for path in self.folder.rglob("*") if is_unfinished(path.relative_to(self.folder))]
        try:
            state = self.state()
        except Exception as error:
            return f"wrong: cannot be read: {error!r}"
        if state not in (self.old, self.new):
            return "wrong: lost or half-written"
        if kind != "death":
            if unfinished and self.steps[number - 1] not in REMOVALS:
                return f"wrong: {unfinished[0].name} is left"
            if done.returncode not in (0, 1) or "Traceback" in done.stderr:
                return f"wrong: {done.stderr[-1000:]}"
            if done.returncode and not done.stderr.splitlines()[-1:][0].startswith("seq2see: "):
                return f"wrong: {done.stderr[-1000:]!r}"
            if not done.returncode and state != self.new:
                return "wrong: a failure was not reported"
        return "complete" if state == self.new else "as before"


def study(names: Sequence[str], count: int | None, seed: int) -> dict[str, Counter[str]]:
    """Tries all faults of each writer, or a sample of them; prints what is wrong, and a table."""
    table = {}
    for name in names:
        with tempfile.TemporaryDirectory() as base:
            one = Study(name, Path(base))
            table[name] = counts = Counter(steps=len(one.steps))
            faults = one.faults()
            for kind, number in faults if count is None else random.Random(seed).sample(faults, count):
                outcome = one.outcome(kind, number)
                counts[outcome.partition(":")[0]] += 1
                if outcome.startswith("wrong"):
                    print(f"{name}, {kind} at step {number}, {one.steps[number - 1]}: {outcome}")
        print(
            f"{name:12}", *(f"{counts[column]:6,} {column}" for column in ("steps", "as before", "complete", "wrong"))
        )
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("writers", nargs="*", default=list(WRITERS), help=f"of {', '.join(WRITERS)}; by default all")
    parser.add_argument("--count", type=int, help="faults per writer; by default all")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    table = study(options.writers, options.count, options.seed)
    sys.exit(any(counts["wrong"] for counts in table.values()))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--write"]:
        write(*sys.argv[2:])
    else:
        main()
