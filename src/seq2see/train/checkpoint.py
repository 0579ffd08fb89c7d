"""Checkpoints: the complete state of a run, so that a resumed run continues exactly where it stopped.

A checkpoint is one safetensors file whose name contains a hash of its content: `step-00001200-1f3a….safetensors`. Writes are
atomic, so a file is either complete or absent. A file that was damaged or replaced later no longer matches its name and is
skipped in favour of the newest one that does. While a run trains, its weights are those of its snapshots and checkpoints.
"""

import hashlib
import json
import re
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from seq2see.errors import UserError
from seq2see.model.network import model_class
from seq2see.storage.directory import load_files, load_pipeline, snapshots
from seq2see.storage.pipeline import Pipeline
from seq2see.tensors.files import atomic_write, require_regular_file

_NAME = re.compile(r"(step|weights)-(\d{8})-([0-9a-f]{32})\.safetensors")
MAX_CHECKPOINTS = 2  # the newest, and one more in case it is damaged
_MAX_PENDING = 2  # copies waiting to be written: after a validation, the weights and the complete state


class Checkpoint(NamedTuple):
    """A checkpoint file, described by its name."""

    path: Path
    kind: str  # "step": the complete state; "weights": only weights, for averaging
    step: int
    digest: str


class LoadedCheckpoint(NamedTuple):
    file: Checkpoint
    tensors: dict[str, Tensor]
    metadata: dict[str, Any]


class CheckpointManager:
    """The checkpoints of one run. A background thread writes them while training continues."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._writer = ThreadPoolExecutor(1)
        self._pending: deque[Future[None]] = deque()

    def save(
        self, kind: str, step: int, tensors: Mapping[str, Tensor], metadata: Mapping[str, Any],
        count: int = MAX_CHECKPOINTS, rank: Callable[[int], float] = float,
    ) -> None:  # fmt: skip
        """Copies the tensors now, and writes them in the background.

        Then deletes all but the `count` checkpoints of this kind whose steps rank highest: by default, the newest. Raises
        the error of an earlier write, if any.
        """
        self.wait(_MAX_PENDING - 1)
        copies = {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in tensors.items()}

        def write_and_delete() -> None:
            self._write(kind, step, copies, metadata)
            kept_first = sorted(self.list_files(kind), key=lambda checkpoint: rank(checkpoint.step), reverse=True)
            for old in kept_first[count:]:
                old.path.unlink(missing_ok=True)

        self._pending.append(self._writer.submit(write_and_delete))

    def wait(self, pending: int = 0) -> None:
        """Waits until everything is on disk, or all but so many checkpoints."""
        while len(self._pending) > pending:
            self._pending.popleft().result()

    def _write(self, kind: str, step: int, tensors: dict[str, Tensor], metadata: Mapping[str, Any]) -> None:
        content = save(tensors, metadata={"seq2see": json.dumps(metadata)})
        path = self.folder / f"{kind}-{step:08d}-{_digest(content)}.safetensors"
        try:
            self.folder.mkdir(exist_ok=True)
            with atomic_write(path) as part:
                part.write_bytes(content)
        except OSError as error:
            raise UserError(
                f"cannot write a checkpoint to {self.folder}: {error.strerror}; the last good one is intact: "
                f"free some space, then run: seq2see train --resume {self.folder.parent}"
            ) from error

    def list_files(self, kind: str) -> list[Checkpoint]:
        """Lists checkpoints by file name, newest first, without reading them."""
        matches = [(path, _NAME.fullmatch(path.name)) for path in self.folder.glob("*.safetensors")]
        found = [Checkpoint(path, kind, int(name[2]), name[3]) for path, name in matches if name and name[1] == kind]
        return sorted(found, key=lambda checkpoint: -checkpoint.step)

    def load_latest(
        self, is_compatible: Callable[[LoadedCheckpoint], bool]
    ) -> tuple[LoadedCheckpoint | None, list[Checkpoint]]:
        """Loads the newest valid checkpoint of this run, and deletes those of later steps. Also returns the files that it
        skipped and renamed.
        """
        files, loaded = self.list_files("step"), None
        unusable: list[Checkpoint] = []
        for checkpoint in files:
            with suppress(UserError):
                loaded = LoadedCheckpoint(checkpoint, *load_checkpoint(checkpoint))
                if is_compatible(loaded):
                    break
            unusable.append(checkpoint)
        if files and len(unusable) == len(files):
            raise UserError(
                f"{self.folder} has {len(unusable)} checkpoints, all damaged or from another run (newest: "
                f"{unusable[0].path.name}): start a new run with another --out"
            )
        for checkpoint in unusable:
            checkpoint.path.rename(checkpoint.path.with_suffix(".damaged"))
        for checkpoint in self.list_files("step") + self.list_files("weights"):
            if loaded is None or checkpoint.step > loaded.file.step:
                checkpoint.path.unlink(missing_ok=True)
        return loaded, unusable


def load_checkpoint(checkpoint: Checkpoint) -> tuple[dict[str, Tensor], dict[str, Any]]:
    try:
        if _digest(require_regular_file(checkpoint.path).read_bytes()) != checkpoint.digest:
            raise UserError(f"{checkpoint.path} is damaged: its content does not match the hash in its name")
        with safe_open(checkpoint.path, framework="pt") as file:
            metadata = json.loads((file.metadata() or {})["seq2see"])
            return {name: file.get_tensor(name) for name in file.keys()}, metadata  # noqa: SIM118 (not a dict)
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        raise UserError(f"cannot read {checkpoint.path}: {error}") from error


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def steps_with_weights(run: Path) -> list[int]:
    """Lists the steps whose weights are on disk."""
    checkpoints = CheckpointManager(run / "checkpoints").list_files("step")
    return sorted({*snapshots(run), *(checkpoint.step for checkpoint in checkpoints)})


def load_at_step(run: Path, step: int) -> Pipeline:
    """Loads the model as it was at one of those steps, on the CPU; of an earlier version, their moving average."""
    if step in snapshots(run):
        return load_pipeline(run, step=step)
    found = [file for file in CheckpointManager(run / "checkpoints").list_files("step") if file.step == step]
    if not found:
        known = ", ".join(f"{one:,}" for one in steps_with_weights(run)) or "none"
        raise UserError(
            f"{run} has no weights of step {step:,}: a run keeps its snapshots and two checkpoints ({known})"
        )
    tensors, _ = load_checkpoint(found[0])
    prefix = "ema." if any(name.startswith("ema.") for name in tensors) else "model."
    weights = {name.removeprefix(prefix): weight for name, weight in tensors.items() if name.startswith(prefix)}
    files = load_files(run)
    network = model_class(files.config.model).from_weights(files.config.model, weights).eval()
    return Pipeline(files.config, network, files.tokenizers, files.scores, files.chat_template, files.known_words)
