"""`positions`: sinusoidal positional encoding, and why a plain count fails.

The six numbers of position 0 in the notes, the heat map of 50 × 128, the analogy to binary counting, the rotation that shifts
any position by k, and two word orders in a model with and without positions.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from seq2see.course.lessons import kit
from seq2see.inspect.interventions import scale
from seq2see.model.positions import position_effect, sinusoids

SHIFT_FROM = (0, 10, 40)  # positions at which a shift is shown
CURVES = (2, 50)  # positions drawn as curves
SENTENCES = ("Nithish killed lion", "lion killed Nithish")


@dataclass(frozen=True)
class Property:
    """A property of two position codes: a plain count, and sinusoids."""

    name: str
    count: float
    sinusoids: float


@dataclass(frozen=True)
class WordOrder:
    """The relative change of each word's vector between two orders of the same words."""

    sentences: tuple[str, ...]
    words: tuple[str, ...]  # of the first sentence
    change: tuple[float, ...]
    change_without: tuple[float, ...]  # without positions
    translations: tuple[str, ...]
    translations_without: tuple[str, ...]


@dataclass(frozen=True)
class Result:
    width: int
    divisors: tuple[float, ...]  # 10000^(2i/d)
    first: tuple[float, ...]  # PE(0)
    second: tuple[float, ...]  # PE(1)
    map: kit.Matrix  # [length, map_width]
    sign_changes: tuple[int, ...]  # of each sine of the map
    bits: kit.Matrix  # counting in binary, highest bit first
    bit_changes: tuple[int, ...]
    shift: int
    rotation_error: float  # largest difference between PE(pos + k) and the rotated PE(pos)
    shift_from: tuple[int, ...]
    count_products: tuple[float, ...]  # pos · (pos + k)
    sinusoid_products: tuple[float, ...]  # PE(pos) · PE(pos + k)
    properties: tuple[Property, ...]
    nearest: tuple[tuple[int, float], ...]  # (waves, smallest distance between the codes of two positions)
    curve_positions: tuple[int, ...]
    curves: kit.Matrix  # [curve_positions, map_width]
    curve_moved: tuple[int, ...]  # numbers that differ by more than 0.1 from position 0
    order: WordOrder | None  # None if the model adds no positions, or tokenizes a word differently at the start


def compute(
    width: Annotated[int, kit.Bounds(2, 16)] = 6,
    length: Annotated[int, kit.Bounds(1, 200)] = 50,
    map_width: Annotated[int, kit.Bounds(2, 256)] = 128,
    shift: Annotated[int, kit.Bounds(1, 100)] = 3,
    sentences: Sequence[str] = SENTENCES,
    model: kit.Model | None = None,
) -> Result:
    """Computes sinusoids and their properties, and compares two word orders in a model."""
    if width % 2 or map_width % 2:
        raise kit.UserError(
            f"widths {width} and {map_width}: both must be even, because sines and cosines come in pairs"
        )
    if min(width, map_width, length, shift) < 1:
        raise kit.UserError(f"widths {width} and {map_width}, length {length}, shift {shift}: all must be at least 1")
    if len(sentences) != 2:
        raise kit.UserError(f"{len(sentences)} sentences: expected 2 orders of the same words")
    table = sinusoids(length + shift, map_width).double()
    count = torch.arange(length + shift, dtype=torch.float64)
    starts = tuple(position for position in SHIFT_FROM if position < length)
    steps = table.diff(dim=0).abs().amax(0)
    far = 10 * length
    properties = (
        Property("largest number", float(count[:length].max()), float(table[:length].abs().max())),
        Property(f"  at position {far}", far, float(sinusoids(far + 1, map_width).abs().max())),
        Property("step to the next position: fastest number", float(count.diff().max()), float(steps.max())),
        Property("  slowest number", float(count.diff().max()), float(steps.min())),
    )
    bits = [[float(number >> bit & 1) for bit in (3, 2, 1, 0)] for number in range(16)]
    small = sinusoids(2, width)
    curves = sinusoids(max(CURVES) + 1, map_width)[list(CURVES)].double()
    moved = ((curves - table[0]).abs() > 0.1).sum(1)
    return Result(
        width, tuple(10000 ** (2 * i / width) for i in range(width // 2)), tuple(small[0].tolist()),
        tuple(small[1].tolist()), kit.to_matrix(table[:length]), _count_changes(table[:length, 0::2] >= 0),
        tuple(map(tuple, bits)), _count_changes(torch.tensor(bits) > 0), shift, _rotation_error(table, shift), starts,
        tuple(float(count[p] * count[p + shift]) for p in starts),
        tuple(float(table[p] @ table[p + shift]) for p in starts), properties, _nearest(table[:length]), CURVES,
        kit.to_matrix(curves), tuple(moved.tolist()),
        _compare_orders(kit.resolve_model(model), sentences),
    )  # fmt: skip


def _count_changes(signs: Tensor) -> tuple[int, ...]:
    """Counts how often each column changes from one row to the next."""
    return tuple((signs[1:] != signs[:-1]).sum(0).tolist())


def _nearest(table: Tensor) -> tuple[tuple[int, float], ...]:
    """Measures the smallest distance between two codes made of the first sine only, then of more waves."""
    sizes = [columns for columns in (1, 2, 4, 8, 16, 32, 64, table.shape[1]) if columns <= table.shape[1]]
    distances = []
    for columns in dict.fromkeys(sizes):
        step = table.shape[1] // columns
        codes = table[:, :1] if columns == 1 else table[:, ::step]
        between = torch.cdist(codes, codes, compute_mode="donot_use_mm_for_euclid_dist")
        between.fill_diagonal_(float("inf"))
        distances.append((codes.shape[1], float(between.min()) if len(codes) > 1 else 0.0))
    return tuple(distances)


def _rotation_error(table: Tensor, shift: int) -> float:
    """Rotates each pair (sin, cos) by shift / 10000^(2i/d), the same for all positions, and compares with the shifted code."""
    width = table.shape[1]
    angles = shift / 10000 ** (torch.arange(0, width, 2, dtype=torch.float64) / width)
    rotations = torch.stack([torch.stack([angles.cos(), angles.sin()]), torch.stack([-angles.sin(), angles.cos()])])
    rotated = torch.einsum("abi,nib->nia", rotations, table[:-shift].unflatten(1, (-1, 2))).flatten(1)
    return float((rotated - table[shift:]).abs().max())


def _compare_orders(model: kit.Model, sentences: Sequence[str]) -> WordOrder | None:
    config = model.config.model
    stack, scheme = (
        ("encoder", config.actual_encoder_positions) if config.has_encoder else ("decoder", config.positions)
    )
    if position_effect(scheme) != "vector":
        return None
    changes, translations = [], []
    for interventions in ((), (scale(f"{stack}.positions", 0.0),)):
        one, other = (kit.explain_sentence(model, sentence, interventions=interventions) for sentence in sentences)
        first, second = kit.input_stack(one).tokens, kit.input_stack(other).tokens
        if sorted(first) != sorted(second):
            if sorted(sentences[0].split()) == sorted(sentences[1].split()):
                return None
            raise kit.UserError(f'"{sentences[0]}" and "{sentences[1]}" must consist of the same words')
        vectors, reordered = (e.trace[f"{stack}.vectors", 0] for e in (one, other))
        reordered = reordered[[second.index(word) for word in first]]
        changes.append(kit.relative_change(vectors, reordered))
        translations.append((one.output, other.output))
    return WordOrder(tuple(sentences), first, changes[0], changes[1], translations[0], translations[1])


def values(result: Result) -> kit.Values:
    shown = [i for i in (0, 8, 16, 24, 32, 63) if i < len(result.sign_changes)]
    products = zip(result.shift_from, result.count_products, result.sinusoid_products, strict=True)
    counts = [(each.name, each.count, each.sinusoids) for each in result.properties]
    counts += [(f"code({p}) · code({p + result.shift})", a, b) for p, a, b in products]
    table = torch.tensor(result.map)
    return {
        "map_rows": [str(i) for i in range(0, len(result.map), 2)],
        "map_shown": [row[::2][:64] for row in result.map[::2]],
        "waves": [f"{name} {i}" for i in range(result.width // 2) for name in ("sin", "cos")],
        "formula_rows": [("0", *result.first), ("1", *result.second)],
        "count_rows": [(name, _format(a), _format(b)) for name, a, b in counts],
        "curves_shown": [row[:: max(1, len(row) // 64)] for row in result.curves],
        "curve_names": [f"pos {p}" for p in result.curve_positions],
        "sine_names": [f"i = {i}" for i in shown],
        "sine_row": ("sign changes", *(result.sign_changes[i] for i in shown)),
        "bit_row": ("changes", *result.bit_changes),
        "numbers": [str(i) for i in range(16)],
        "notes_first": sinusoids(1, 6)[0].tolist(),
        "product_curves": [
            (f"with position {p}", [(other - p, float(table[p] @ row)) for other, row in enumerate(table)])
            for p in result.shift_from[:2]
        ],
        "cosines": [
            (f"cos, pos = {p}", list(enumerate(row[1::2]))) for p, row in zip(CURVES, result.curves, strict=True)
        ],
        **(_order_values(result.order) if result.order else {}),
    }


def _order_values(order: WordOrder) -> kit.Values:
    changes = enumerate(zip(order.words, order.change, order.change_without, strict=True))
    outputs = (("with positions", order.translations), ("without", order.translations_without))
    return {
        "order_rows": [
            (f'relative change of "{word}"' if i == 0 else f'  "{word}"', kit.format_small(a), kit.format_small(b))
            for i, (word, a, b) in changes
        ],
        "order_change": max(order.change),
        "order_rest": max(order.change_without),
        "translations": [
            (text, name, each[i])
            for i, text in enumerate(order.sentences)
            for name, each in outputs
            if any(outputs[0][1])
        ],
    }


def _format(number: float) -> str:
    return f"{number:,.0f}" if number == int(number) else f"{number:.3f}" if number > 0.01 else f"{number:.1g}"


def answers() -> kit.Values:
    table = sinusoids(8, 4).double()
    difference = float(table[0] @ table[3] - table[4] @ table[7])
    return {"cosine": float(table[0, 1]), "sine": float(table[2, 0]), "difference": difference}
