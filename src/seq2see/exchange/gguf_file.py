"""The file format of llama.cpp: one file with metadata and tensors, often quantised.

Needs the package `gguf` (the extra `seq2see[gguf]`) to dequantise: to float32, a few rows at a time, so that memory
never holds a second copy of a large one.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seq2see.errors import UserError
from seq2see.tensors.files import require_regular_file

QUANTISATIONS = ("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q4_K", "Q5_0", "Q5_1", "Q5_K", "Q6_K", "Q8_0")
ROWS = 1024  # dequantised at a time

_MAGIC, _VERSIONS = b"GGUF", (2, 3)
_NUMBERS = {0: "u1", 1: "i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 7: "?", 10: "<u8", 11: "<i8", 12: "<f8"}
_STRING, _ARRAY = 8, 9


class _Header:
    """Reads the metadata at the start of a file. (The package's own reader takes a minute for 250,000 tokens.)"""

    def __init__(self, data: memoryview) -> None:
        self.data, self.position = data, 0

    def take(self, size: int) -> memoryview:
        if self.position + size > len(self.data):
            raise ValueError(f"it ends at byte {len(self.data):,}, within a value of {size:,} bytes")
        self.position += size
        return self.data[self.position - size : self.position]

    def number(self, kind: int) -> Any:
        value = self.numbers(kind, 1)[0]
        return float(str(value)) if value.dtype == np.float32 else value.item()  # 1e-6, not 9.999999974752427e-07

    def numbers(self, kind: int, count: int) -> Any:
        dtype = np.dtype(_NUMBERS[kind])
        return np.frombuffer(self.take(dtype.itemsize * count), dtype)

    def string(self) -> str:
        return bytes(self.take(self.number(10))).decode(errors="replace")

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.string()
        if kind != _ARRAY:
            return self.number(kind)
        inner, count = self.number(4), self.number(10)
        if inner in _NUMBERS:
            return self.numbers(inner, count).tolist()
        if count > len(self.data):
            raise ValueError(f"it announces a list of {count:,} values")
        return [self.value(inner) for _ in range(count)]


@dataclass(frozen=True)
class _TensorInfo:
    shape: tuple[int, ...]
    kind: Any  # gguf.GGMLQuantizationType
    offset: int


class GgufFile(Mapping[str, Tensor]):
    """The metadata of a file, and its tensors, which stay on disk: as float32, dequantised when they are read."""

    def __init__(self, path: Path) -> None:
        try:
            from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
            from gguf.quants import dequantize
        except ImportError:
            raise UserError('reading GGUF files needs the package "gguf": pip install "seq2see[gguf]"') from None
        self.path, self._dequantize = path, dequantize
        try:
            self.data = np.memmap(require_regular_file(path), np.uint8, "r")
            header = _Header(memoryview(self.data))  # type: ignore[arg-type]
            self.fields, infos = _parse(header)
            alignment = int(self.fields.get("general.alignment", 32))
            start = -(-header.position // alignment) * alignment
            self.tensors: dict[str, _TensorInfo] = {}
            for name, shape, kind, offset in infos:
                self.tensors[name] = info = _TensorInfo(shape, GGMLQuantizationType(kind), start + offset)
                block, size = GGML_QUANT_SIZES[info.kind]
                if info.offset + math.prod(shape) // block * size > len(self.data):
                    raise ValueError(f"tensor {name} lies beyond its end")
        except (OSError, ValueError, KeyError, TypeError, ZeroDivisionError, OverflowError, RecursionError) as error:
            raise UserError(
                f"cannot read {path}: {' '.join(str(error).split())[:200]}; is the download complete?"
            ) from error
        self._sizes = GGML_QUANT_SIZES
        for name, info in self.tensors.items():
            if info.kind.name not in QUANTISATIONS:
                raise UserError(
                    f"{path}: tensor {name} is quantised as {info.kind.name}, which is not supported; supported: "
                    f"{', '.join(QUANTISATIONS)}"
                )

    def blocks(self, name: str) -> Iterator[Tensor]:
        """Yields a tensor in parts, a few rows each; all axes but the last are taken as one."""
        info = self.tensors[name]
        block, size = self._sizes[info.kind]
        row, rows = info.shape[-1] // block * size, math.prod(info.shape[:-1])
        for start in range(0, rows, ROWS):
            stop = min(start + ROWS, rows)
            data = np.array(self.data[info.offset + start * row : info.offset + stop * row]).reshape(stop - start, row)
            yield torch.from_numpy(self._dequantize(data, info.kind)).view(-1, *info.shape[1:])

    def __getitem__(self, name: str) -> Tensor:
        return torch.cat(list(self.blocks(name)))

    def __iter__(self) -> Iterator[str]:
        return iter(self.tensors)

    def __len__(self) -> int:
        return len(self.tensors)


def _parse(header: _Header) -> tuple[dict[str, Any], list[tuple[str, tuple[int, ...], int, int]]]:
    """Returns the metadata, and the name, shape, type and offset of each tensor."""
    if bytes(header.take(4)) != _MAGIC or header.number(4) not in _VERSIONS:
        raise ValueError("it is not a GGUF file of version 2 or 3")
    tensors, entries = header.number(10), header.number(10)
    fields = {header.string(): header.value(header.number(4)) for _ in range(min(entries, len(header.data)))}
    infos = []
    for _ in range(min(tensors, len(header.data))):
        name, axes = header.string(), header.number(4)
        if not 1 <= axes <= 4:
            raise ValueError(f"tensor {name[:80]} has {axes} axes")
        shape = tuple(reversed(header.numbers(10, axes).tolist()))  # the last axis comes first
        infos.append((name, shape, header.number(4), header.number(10)))
    return fields, infos
