"""Reads a safetensors file one tensor at a time, so that memory holds only the tensors that are in use."""

from collections.abc import Iterator, Mapping
from math import prod
from pathlib import Path

from safetensors import safe_open
from torch import Tensor

from seq2see.errors import UserError


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
