"""`positions`: sines and cosines of many wavelengths, and why a word count will not do.

The notes' six numbers of position 0, the heat map of 50 × 128, the likeness to binary counting, the rotation that shifts
any position by k, and two word orders through a model with its positions and without.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from seq2see.api import Model
from seq2see.course.lessons.models import bundled, read, reader
from seq2see.course.lessons.pictures import WITH, WITHOUT, label, panels, save
from seq2see.course.lessons.render import Grid, Story, brief, quoted
from seq2see.course.lessons.worked_attention import Table, as_table
from seq2see.errors import UserError
from seq2see.inspect.interventions import scaling
from seq2see.model.positions import sinusoids

PLACES = (0, 10, 40)  # from which a shift is tried
SENTENCES = ("Nithish killed lion", "lion killed Nithish")


@dataclass(frozen=True)
class Fault:
    """A property of a position code, of a plain count and of the waves."""

    what: str
    count: float
    waves: float


@dataclass(frozen=True)
class TwoOrders:
    """How far each word of the first sentence is from itself in the second, in parts of its vector's length."""

    sentences: tuple[str, ...]
    words: tuple[str, ...]
    apart: tuple[float, ...]
    apart_without: tuple[float, ...]  # with the positions switched off
    translations: tuple[str, ...]
    translations_without: tuple[str, ...]


@dataclass(frozen=True)
class Positions:
    width: int
    divisors: tuple[float, ...]  # 10000^(2i/d)
    first: tuple[float, ...]  # PE(0)
    second: tuple[float, ...]  # PE(1)
    map: Table  # [length, wide]
    turns: tuple[int, ...]  # how often each of its sines changes its sign
    bits: Table  # counting in binary, highest bit first
    flips: tuple[int, ...]  # how often each bit changes
    shift: int
    rotation_apart: float  # PE(pos + k) against the rotated PE(pos), over all pos: the largest difference
    places: tuple[int, ...]
    counts_at: tuple[float, ...]  # pos · (pos + k) at several places
    waves_at: tuple[float, ...]  # PE(pos) · PE(pos + k)
    faults: tuple[Fault, ...]
    orders: TwoOrders | None  # None where the model adds no positions, or cuts a word otherwise at the beginning


def positions(
    width: int = 6, length: int = 50, wide: int = 128, shift: int = 3, sentences: Sequence[str] = SENTENCES,
    model: Model | None = None,
) -> Positions:  # fmt: skip
    """The waves themselves, and what they do in a model."""
    if width % 2 or wide % 2:
        raise UserError(f"widths {width} and {wide}: a sine and a cosine go together, so both must be even")
    if min(width, wide, length, shift) < 1:
        raise UserError(f"widths {width} and {wide}, length {length} and shift {shift}: all from 1 up")
    if len(sentences) != 2:
        raise UserError(f"{len(sentences)} sentences, where 2 orders of the same words are compared")
    table = sinusoids(length + shift, wide).double()
    count = torch.arange(length + shift, dtype=torch.float64)
    inside = tuple(place for place in PLACES if place < length)
    steps = table.diff(dim=0).abs().amax(0)
    faults = (
        Fault("largest number", float(count[:length].max()), float(table[:length].abs().max())),
        Fault(f"  and at position {10 * length}", 10 * length, float(sinusoids(10 * length + 1, wide).abs().max())),
        Fault("step to the next position: of the fastest number", float(count.diff().max()), float(steps.max())),
        Fault("  of the slowest", float(count.diff().max()), float(steps.min())),
    )
    bits = [[float(number >> bit & 1) for bit in (3, 2, 1, 0)] for number in range(16)]
    small = sinusoids(2, width)
    return Positions(
        width, tuple(10000 ** (2 * i / width) for i in range(width // 2)), tuple(small[0].tolist()),
        tuple(small[1].tolist()), as_table(table[:length]), _changes(table[:length, 0::2] >= 0),
        tuple(map(tuple, bits)), _changes(torch.tensor(bits) > 0), shift, _rotation_apart(table, shift), inside,
        tuple(float(count[p] * count[p + shift]) for p in inside),
        tuple(float(table[p] @ table[p + shift]) for p in inside), faults, _orders(bundled(model), sentences),
    )  # fmt: skip


def _changes(signs: Tensor) -> tuple[int, ...]:
    """How often each column changes from one row to the next."""
    return tuple((signs[1:] != signs[:-1]).sum(0).tolist())


def _rotation_apart(table: Tensor, shift: int) -> float:
    """One rotation for all positions: each pair (sin, cos) turned by shift / 10000^(2i/d)."""
    wide = table.shape[1]
    angles = shift / 10000 ** (torch.arange(0, wide, 2, dtype=torch.float64) / wide)
    turns = torch.stack([torch.stack([angles.cos(), angles.sin()]), torch.stack([-angles.sin(), angles.cos()])])
    turned = torch.einsum("abi,nib->nia", turns, table[:-shift].unflatten(1, (-1, 2))).flatten(1)
    return float((turned - table[shift:]).abs().max())


def _orders(model: Model, sentences: Sequence[str]) -> TwoOrders | None:
    if model.config.model.positions in ("rotary", "none"):
        return None
    apart, said = [], []
    stack = "encoder" if model.config.model.has_encoder else "decoder"
    for off in ((), (scaling(f"{stack}.positions", 0.0),)):
        one, other = (read(model, sentence, interventions=off) for sentence in sentences)
        first, second = reader(one), reader(other)
        if sorted(first.words) != sorted(second.words):
            if sorted(sentences[0].split()) == sorted(sentences[1].split()):
                return None
            raise UserError(f"{quoted(sentences)} are not made of the same words: change one in both")
        vectors = [e.trace[f"{first.stack}.vectors"] for e in (one, other)]
        moved = [vectors[0][i] - vectors[1][second.words.index(word)] for i, word in enumerate(first.words)]
        apart.append(tuple(float(d.norm() / x.norm()) for d, x in zip(moved, vectors[0], strict=True)))
        said.append((one.output, other.output))
    return TwoOrders(tuple(sentences), first.words, apart[0], apart[1], said[0], said[1])


def story(result: Positions) -> Story:
    wide = len(result.map[0])
    small = Grid(
        ("pos", *(f"{name} {i}" for i in range(result.width // 2) for name in ("sin", "cos"))),
        (("0", *result.first), ("1", *result.second)),
        f"d = {result.width}: divisors {', '.join(f'{each:.4g}' for each in result.divisors)}",
        decimals=4,
    )
    shown = [i for i in (0, 8, 16, 24, 32, 63) if i < len(result.turns)]
    parts: list[str | Grid] = [
        small,
        Grid(
            ("", *(f"i = {i}" for i in shown)), (("changes of sign", *(result.turns[i] for i in shown)),),
            f"{len(result.map)} positions of width {wide}: how often the i-th sine changes its sign",
        ),
        Grid(
            ("", "bit 3", "bit 2", "bit 1", "bit 0"), (("changes", *result.flips),),
            "Counting from 0 to 15 in binary: the higher the bit, the more seldom it changes, too",
        ),
        Grid(
            ("", "count", "waves"),
            tuple((fault.what, _short(fault.count), _short(fault.waves)) for fault in result.faults)
            + tuple(
                (f"code({p}) · code({p + result.shift})", _short(a), _short(b))
                for p, a, b in zip(result.places, result.counts_at, result.waves_at, strict=True)
            ),
            "The notes' three faults of a count (unbounded, discrete, not relative), measured:",
        ),
        f"PE(pos + {result.shift}) is PE(pos) turned, the same turn for every pos: the two differ by "
        f"{brief(result.rotation_apart)} at most.",
    ]  # fmt: skip
    if result.orders is not None:
        o = result.orders
        parts.append(
            Grid(
                ("", "with positions", "without"),
                tuple(
                    (f'how far "{word}" is from itself' if i == 0 else f'  "{word}"', brief(a), brief(b))
                    for i, (word, a, b) in enumerate(zip(o.words, o.apart, o.apart_without, strict=True))
                ),
                f"{quoted(o.sentences)} through a model, as it is and with its encoder's positions switched off:",
            )
        )
        if any(o.translations):
            said = (("with positions", o.translations), ("without", o.translations_without))
            parts.append(
                Grid(
                    ("", "", ""),
                    tuple((text, name, each[i]) for i, text in enumerate(o.sentences) for name, each in said),
                )
            )
    return Story(
        "attention does not know the order of words, so a vector of the position is added to each. The notes want a "
        "function that is bounded, continuous and periodic: sines and cosines, sin(pos / 10000^(2i/d)) and the cosine "
        "of the same.",
        tuple(parts),
        "fast waves tell neighbours apart and slow ones the beginning from the end, as the low and the high bits of a "
        "number do, but smoothly. The dot product of two codes depends on their distance alone. Without positions the "
        "two sentences are the same to the model (it was trained with them; the lesson `order` trains one without).",
        (
            '"PE(pos, i) = sin(pos / 10000^(2i/d))" should be PE(pos, 2i): the sines are the even numbers of the vector, '
            f"so that position 0 is {', '.join(f'{x:g}' for x in sinusoids(1, 6)[0].tolist())} as they go on to compute.",
        ),
    )


def _short(number: float) -> str:
    return f"{number:,.0f}" if number == int(number) else f"{number:.3f}" if number > 0.01 else f"{number:.1g}"


def draw(result: Positions, path: Path | str) -> None:
    figure, (waves, bits, alike) = panels(3)
    waves.imshow(result.map, cmap="PuOr", vmin=-1, vmax=1, aspect="auto")
    label(waves, f"PE, {len(result.map)} positions × {len(result.map[0])}", "number in the vector", "position", False)
    bits.imshow(result.bits, cmap="Blues", vmin=0, vmax=1.4, aspect="auto")
    bits.set_xticks(range(4), ["8", "4", "2", "1"])
    label(bits, "Counting in binary", "bit", "number", False)
    table = torch.tensor(result.map)
    for place, colour in zip(result.places[:2], (WITH, WITHOUT), strict=False):
        near = (table @ table[place]).tolist()
        distances = [other - place for other in range(len(near))]
        alike.plot(distances, near, "-" if place == 0 else "--", color=colour, label=f"with position {place}")
    label(alike, "Dot product of two codes: distance is all", "distance", "dot product")
    save(figure, path)
