"""Tensors in binary responses: a slice as little-endian float32 in C order, with its shape in a header.

    index=0,:,2:5        0 on axis 0, all of axis 1, 2 to 4 on axis 2; the remaining axes are returned in full
    index=:,::8,::8      every eighth row and column: enough for a small picture of a large matrix

Slices follow Python: negative numbers count from the end, and a slice past the end is truncated. Steps are positive.
"""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from seq2see.server.http.errors import ApiError

if TYPE_CHECKING:
    from torch import Tensor

_PART = r"(-?\d{1,9}|(-?\d{1,9})?:(-?\d{1,9})?(:[1-9]\d{0,8})?)"
INDEX_PATTERN = rf"^$|^{_PART}(,{_PART}){{0,4}}$"


@dataclass(frozen=True)
class TensorBytes:
    shape: tuple[int, ...]
    data: bytes


def parse_index(index: str, shape: tuple[int, ...]) -> tuple[int | slice, ...]:
    if not re.fullmatch(INDEX_PATTERN, index):
        raise ApiError(422, f'invalid index "{index[:80]}"', "write it like 0,:,2:5", "query.index")
    parts = index.split(",") if index else []
    if len(parts) > len(shape):
        message = f"the index has {len(parts)} axes, but the tensor has {len(shape)}"
        raise ApiError(422, message, f"its shape is {list(shape)}", "query.index")
    indices: list[int | slice] = []
    for axis, (part, size) in enumerate(zip(parts, shape, strict=False)):
        if ":" in part:
            indices.append(slice(*(int(end) if end else None for end in part.split(":"))))
        elif -size <= int(part) < size:
            indices.append(int(part))
        else:
            message = f"index {part} is out of range for axis {axis} of size {size}"
            raise ApiError(422, message, f"its shape is {list(shape)}", "query.index")
    return tuple(indices)


def tensor_bytes(tensor: "Tensor", index: str, max_bytes: int) -> TensorBytes:
    """Encodes a slice of a tensor. −∞ stays −∞; token ids are exact up to 16 million."""
    part = tensor[parse_index(index, tuple(tensor.shape))]
    if part.numel() * 4 > max_bytes:
        message = f"{part.numel() * 4:,} bytes exceed the maximum of {max_bytes:,} per response"
        raise ApiError(413, message, f"request a slice with index; the shape is {list(tensor.shape)}", "query.index")
    return TensorBytes(tuple(part.shape), part.detach().float().cpu().numpy().astype("<f4").tobytes())
