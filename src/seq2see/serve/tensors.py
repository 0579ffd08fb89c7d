"""Numbers on the wire: a slice of a tensor as bare little-endian float32, its shape in a header.

    index=0,:,2:5        the first of axis 0, all of axis 1, 2 to 4 of axis 2; axes that are not named come whole

Slices are Python's: negative numbers count from the end, and a slice beyond the end is cut there.
"""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from seq2see.serve.workers import Refusal

if TYPE_CHECKING:
    from torch import Tensor

INDEX = r"^$|^(-?\d{1,9}|(-?\d{1,9})?:(-?\d{1,9})?)(,(-?\d{1,9}|(-?\d{1,9})?:(-?\d{1,9})?)){0,4}$"


@dataclass(frozen=True)
class Floats:
    shape: tuple[int, ...]
    data: bytes


def parsed(index: str, shape: tuple[int, ...]) -> tuple[int | slice, ...]:
    if not re.fullmatch(INDEX, index):
        raise Refusal(422, f'"{index[:80]}" is no index', "write one such as 0,:,2:5", "query.index")
    parts = index.split(",") if index else []
    if len(parts) > len(shape):
        raise Refusal(
            422, f"an index of {len(parts)} axes into a tensor of {len(shape)}", f"its shape is {list(shape)}", "query.index"
        )  # fmt: skip
    found: list[int | slice] = []
    for axis, (part, size) in enumerate(zip(parts, shape, strict=False)):
        if ":" in part:
            start, stop = (int(end) if end else None for end in part.split(":"))
            found.append(slice(start, stop))
        elif -size <= int(part) < size:
            found.append(int(part))
        else:
            raise Refusal(
                422, f"{part} of axis {axis}, which has {size}", f"its shape is {list(shape)}, counted from 0", "query.index"
            )  # fmt: skip
    return tuple(found)


def floats(tensor: "Tensor", index: str, most: int) -> Floats:
    """A slice as bytes. −∞ stays −∞; token ids are exact up to 16 million."""
    part = tensor[parsed(index, tuple(tensor.shape))]
    if part.numel() * 4 > most:
        raise Refusal(
            413, f"{part.numel() * 4:,} bytes, where {most:,} are the most in one answer",
            f"ask for a part by index, of the shape {list(tensor.shape)}", "query.index",
        )  # fmt: skip
    return Floats(tuple(part.shape), part.detach().cpu().numpy().astype("<f4").tobytes())
