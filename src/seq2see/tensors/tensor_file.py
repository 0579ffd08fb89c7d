"""Safetensors files: read one tensor at a time, so that memory holds only those in use, or written and read as a whole."""

from collections.abc import Iterator, Mapping
from math import prod
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from seq2see.errors import UserError
from seq2see.tensors.files import atomic_write, require_regular_file


def write_tensors(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
    """Writes a file atomically. (save_file of safetensors hides a full disk behind an error of its own.)"""
    content = save(tensors, metadata)
    with atomic_write(path) as part:
        part.write_bytes(content)


def read_tensors(path: Path, format: str, content: str, hint: str = "") -> tuple[dict[str, Tensor], dict[str, str]]:
    """Returns the tensors and the metadata of a file in a format of ours; `content` is what it holds, such as "trace"."""
    try:
        with safe_open(require_regular_file(path), framework="pt") as file:
            metadata: dict[str, str] = file.metadata() or {}
            if metadata.get("format") != format:
                raise UserError(f"{path} has no {content}: its format is {metadata.get('format')}, not {format}")
            return {name: file.get_tensor(name) for name in file.keys()}, metadata  # noqa: SIM118 (not a dict)
    except (OSError, SafetensorError) as error:
        raise UserError(f"cannot read the {content} {path}: {error}{hint}") from error


class TensorFile(Mapping[str, Tensor]):
    """The tensors of a safetensors file, largest first: the temporary copy of a large one is made while few others exist.

    Each access maps the file again: a shared mapping would keep every page that was ever read in memory.
    """

    def __init__(self, path: Path, device: str = "cpu") -> None:
        self.path, self.device = path, device
        self._version = self._current_version()
        with safe_open(path, framework="pt") as file:
            sizes = {name: prod(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118 (not a dict)
        self._names = sorted(sizes, key=lambda name: sizes[name], reverse=True)

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._names:
            raise KeyError(name)
        with safe_open(self.path, framework="pt", device=self.device) as file:
            tensor: Tensor = file.get_tensor(name)
        if self._current_version() != self._version:
            raise UserError("the file was replaced while it was being read: try again")
        return tensor

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def _current_version(self) -> tuple[int, int, int]:
        status = self.path.stat()
        return status.st_ino, status.st_size, status.st_mtime_ns
