"""Checkpoints: everything that a run needs to go on as if nothing had happened.

A checkpoint is one safetensors file, and its name carries a hash of its bytes: `step-00001200-1f3a….safetensors`. It is
written beside, synced and renamed, so it is there whole or not at all; and one that a disk has damaged since, or that
somebody else has put there, does not fit its name and is passed over for the newest one that does.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from seq2see.errors import UserError
from seq2see.files import written_whole

_NAME = re.compile(r"(step|weights)-(\d{8})-([0-9a-f]{32})\.safetensors")
KEPT = 2  # checkpoints to go on from: the newest, and one more for the day when it is damaged


class Checkpoint(NamedTuple):
    path: Path
    kind: str  # "step" has everything, "weights" only what is to be averaged
    step: int
    digest: str


class Found(NamedTuple):
    checkpoint: Checkpoint
    tensors: dict[str, Tensor]
    about: dict[str, Any]


class Checkpoints:
    """The checkpoints of one run. They are written by a thread, while the training goes on."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._writer = ThreadPoolExecutor(1)
        self._pending: Future[None] | None = None

    def save(self, kind: str, step: int, tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> None:
        """Copies the tensors now and writes them soon; what went wrong with the last writing is raised here."""
        self.finish()
        copies = {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in tensors.items()}
        self._pending = self._writer.submit(self._write, kind, step, copies, dict(about))

    def finish(self) -> None:
        """Waits until what was to be written is on disk."""
        if self._pending is not None:
            pending, self._pending = self._pending, None
            pending.result()

    def _write(self, kind: str, step: int, tensors: dict[str, Tensor], about: dict[str, Any]) -> None:
        content = save(tensors, metadata={"seq2see": json.dumps(about)})
        path = self.folder / f"{kind}-{step:08d}-{_digest(content)}.safetensors"
        try:
            with written_whole(path) as part:
                part.write_bytes(content)
        except OSError as error:
            raise UserError(
                f"cannot write a checkpoint to {self.folder}: {error.strerror}; the last good one is intact: "
                f"free some space, then seq2see train --resume {self.folder.parent}"
            ) from error
        if kind == "step":
            for old in self.of_kind("step")[KEPT:]:
                old.path.unlink(missing_ok=True)

    def of_kind(self, kind: str) -> list[Checkpoint]:
        """By name alone, newest first."""
        return sorted(self._named(kind), key=lambda checkpoint: -checkpoint.step)

    def _named(self, kind: str) -> Iterator[Checkpoint]:
        if self.folder.is_dir():
            for path in self.folder.iterdir():
                match = _NAME.fullmatch(path.name)
                if match and match[1] == kind:
                    yield Checkpoint(path, kind, int(match[2]), match[3])

    def newest(self, fits: Callable[[Found], bool]) -> tuple[Found | None, list[Checkpoint]]:
        """The newest sound checkpoint that is of this run, and those passed over."""
        unusable: list[Checkpoint] = []
        for checkpoint in self.of_kind("step"):
            try:
                found = Found(checkpoint, *read(checkpoint))
            except UserError:
                unusable.append(checkpoint)
                continue
            if fits(found):
                return found, unusable
            unusable.append(checkpoint)
        if unusable:
            raise UserError(
                f"{self.folder} has {len(unusable)} checkpoints, and all are damaged or of another run, the newest "
                f"{unusable[0].path.name}: start again with another --out"
            )
        return None, unusable

    def clear(self, step: int, unusable: Sequence[Checkpoint]) -> None:
        """Leaves nothing that a run which goes on from this step could take for its own."""
        for checkpoint in unusable:
            checkpoint.path.rename(checkpoint.path.with_suffix(".damaged"))
        for checkpoint in self.of_kind("step") + self.of_kind("weights"):
            if checkpoint.step > step:
                checkpoint.path.unlink(missing_ok=True)


def read(checkpoint: Checkpoint) -> tuple[dict[str, Tensor], dict[str, Any]]:
    try:
        if _digest(checkpoint.path.read_bytes()) != checkpoint.digest:
            raise UserError(f"{checkpoint.path} is damaged: its bytes do not fit its name")
        with safe_open(checkpoint.path, framework="pt") as file:
            about = json.loads((file.metadata() or {})["seq2see"])
            return {name: file.get_tensor(name) for name in file.keys()}, about  # noqa: SIM118 (it is no dictionary)
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        raise UserError(f"cannot read {checkpoint.path}: {error}") from error


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()
