"""`positions`: sinusoidal positional encoding, and why a plain count fails.

The six numbers of position 0 in the notes, the heat map of 50 × 128, the analogy to binary counting, the rotation that shifts
any position by k, and two word orders in a model with and without positions.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from seq2see.api import Model
from seq2see.course.lessons.attention import Matrix, to_matrix
from seq2see.course.lessons.exercises import Exercise
from seq2see.course.lessons.figures import BLUE, ORANGE, label_axes, save_figure, subplots
from seq2see.course.lessons.models import explain_sentence, input_stack, relative_change, resolve_model
from seq2see.course.lessons.render import (
    ATTENTION,
    LECTURE,
    HeatMap,
    LessonText,
    Library,
    Note,
    Section,
    Table,
    Try,
    ViewLink,
    format_small,
)
from seq2see.errors import UserError
from seq2see.inspect.interventions import scale
from seq2see.model.positions import sinusoids

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
    map: Matrix  # [length, map_width]
    sign_changes: tuple[int, ...]  # of each sine of the map
    bits: Matrix  # counting in binary, highest bit first
    bit_changes: tuple[int, ...]
    shift: int
    rotation_error: float  # largest difference between PE(pos + k) and the rotated PE(pos)
    shift_from: tuple[int, ...]
    count_products: tuple[float, ...]  # pos · (pos + k)
    sinusoid_products: tuple[float, ...]  # PE(pos) · PE(pos + k)
    properties: tuple[Property, ...]
    nearest: tuple[tuple[int, float], ...]  # (waves, smallest distance between the codes of two positions)
    curve_positions: tuple[int, ...]
    curves: Matrix  # [curve_positions, map_width]
    curve_moved: tuple[int, ...]  # numbers that differ by more than 0.1 from position 0
    order: WordOrder | None  # None if the model adds no positions, or tokenizes a word differently at the start


def compute(
    width: int = 6, length: int = 50, map_width: int = 128, shift: int = 3, sentences: Sequence[str] = SENTENCES,
    model: Model | None = None,
) -> Result:  # fmt: skip
    """Computes sinusoids and their properties, and compares two word orders in a model."""
    if width % 2 or map_width % 2:
        raise UserError(f"widths {width} and {map_width}: both must be even, because sines and cosines come in pairs")
    if min(width, map_width, length, shift) < 1:
        raise UserError(f"widths {width} and {map_width}, length {length}, shift {shift}: all must be at least 1")
    if len(sentences) != 2:
        raise UserError(f"{len(sentences)} sentences: expected 2 orders of the same words")
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
        tuple(small[1].tolist()), to_matrix(table[:length]), _count_changes(table[:length, 0::2] >= 0),
        tuple(map(tuple, bits)), _count_changes(torch.tensor(bits) > 0), shift, _rotation_error(table, shift), starts,
        tuple(float(count[p] * count[p + shift]) for p in starts),
        tuple(float(table[p] @ table[p + shift]) for p in starts), properties, _nearest(table[:length]), CURVES,
        to_matrix(curves), tuple(moved.tolist()),
        _compare_orders(resolve_model(model), sentences),
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


def _compare_orders(model: Model, sentences: Sequence[str]) -> WordOrder | None:
    if model.config.model.positions in ("rotary", "none"):
        return None
    changes, translations = [], []
    stack = "encoder" if model.config.model.has_encoder else "decoder"
    for interventions in ((), (scale(f"{stack}.positions", 0.0),)):
        one, other = (explain_sentence(model, sentence, interventions=interventions) for sentence in sentences)
        first, second = input_stack(one).tokens, input_stack(other).tokens
        if sorted(first) != sorted(second):
            if sorted(sentences[0].split()) == sorted(sentences[1].split()):
                return None
            raise UserError(f'"{sentences[0]}" and "{sentences[1]}" must consist of the same words')
        vectors, reordered = (e.trace[f"{stack}.vectors"] for e in (one, other))
        reordered = reordered[[second.index(word) for word in first]]
        changes.append(relative_change(vectors, reordered))
        translations.append((one.output, other.output))
    return WordOrder(tuple(sentences), first, changes[0], changes[1], translations[0], translations[1])


def describe(result: Result) -> LessonText:
    shown = [i for i in (0, 8, 16, 24, 32, 63) if i < len(result.sign_changes)]
    (one, single), *_, (many, all_waves) = result.nearest
    more = [
        Section(
            "The formula, for a small width",
            (
                "PE(pos, 2i) = sin(pos / 10000^(2i/d)), PE(pos, 2i+1) = cos(pos / 10000^(2i/d)).",
                Table(
                    ("pos", *(f"{name} {i}" for i in range(result.width // 2) for name in ("sin", "cos"))),
                    (("0", *result.first), ("1", *result.second)),
                    f"d = {result.width}: divisors {', '.join(f'{each:.4g}' for each in result.divisors)}",
                    decimals=4,
                ),
            ),
        ),
        Section(
            "Why not simply count?",
            (
                Table(
                    ("", "count", "sinusoids"),
                    tuple((each.name, _format(each.count), _format(each.sinusoids)) for each in result.properties)
                    + tuple(
                        (f"code({p}) · code({p + result.shift})", _format(a), _format(b))
                        for p, a, b in zip(
                            result.shift_from, result.count_products, result.sinusoid_products, strict=True
                        )
                    ),
                    "A count is unbounded, it jumps, and its products do not tell a distance:",
                ),
                f"PE(pos + {result.shift}) is PE(pos) rotated, by the same angles for every pos: the two differ by at most "
                f"{format_small(result.rotation_error)}. So the dot product of two codes depends only on their distance.",
            ),
        ),
        Section(
            "Why one sine is not enough",
            (
                Table(
                    ("waves", "nearest two codes"),
                    tuple((waves, format_small(distance)) for waves, distance in result.nearest),
                    f"Smallest distance between the codes of two of {len(result.map)} positions",
                ),
                f"A sine repeats: with {one} wave, some two positions lie only {format_small(single)} apart. With {many} waves "
                f"of different lengths no two come nearer than {all_waves:.2f}.",
            ),
        ),
        Section(
            "Two positions as curves",
            (
                HeatMap(
                    "The components of two positions, low to high",
                    tuple(f"pos {p}" for p in result.curve_positions),
                    (),
                    tuple(row[:: max(1, len(row) // 64)] for row in result.curves),
                    signed=True,
                ),
                f"From one component to the next the wave is slower. At position {result.curve_positions[0]} only the "
                f"fastest have moved away from 0, 1, 0, 1; at position {result.curve_positions[-1]} "
                f"{result.curve_moved[-1]} of {len(result.curves[0])} numbers differ by more than 0.1 from those of "
                f"position 0 (at {result.curve_positions[0]}: {result.curve_moved[0]}).",
            ),
        ),
        Section(
            "Like counting in binary",
            (
                Table(
                    ("", *(f"i = {i}" for i in shown)),
                    (("sign changes", *(result.sign_changes[i] for i in shown)),),
                    f"{len(result.map)} positions of width {len(result.map[0])}: sign changes of the i-th sine",
                ),
                Table(
                    ("", "bit 3", "bit 2", "bit 1", "bit 0"),
                    (("changes", *result.bit_changes),),
                    "Counting from 0 to 15 in binary: higher bits change less often",
                ),
                HeatMap("0 to 15 in binary", tuple(str(i) for i in range(16)), ("8", "4", "2", "1"), result.bits),
            ),
        ),
    ]
    if result.order is not None:
        more.append(
            Section(
                "Two sentences that differ only in their order",
                (*_order_tables(result.order), _order_verdict(result.order)),
            )
        )
    return LessonText(
        "each row, the code of one position. The left columns change from row to row, the right ones hardly at all: fast waves "
        "tell neighbours apart, slow ones the start from the end.",
        (
            HeatMap(
                f"{len(result.map)} positions (every second row) × {len(result.map[0])} components (the sines)",
                tuple(str(i) for i in range(0, len(result.map), 2)),
                (),
                tuple(row[::2][:64] for row in result.map[::2]),
                signed=True,
            ),
        ),
        (
            f"Position 0 is {', '.join(f'{x:g}' for x in result.first)}, position 1 is "
            f"{', '.join(f'{x:.3g}' for x in result.second)} (d = {result.width}).",
        ),
        "A vector made of waves is added to each word. It is bounded, it changes smoothly, and a step of k positions "
        "is the same rotation everywhere.",
        Library(
            "from seq2see.model.positions import sinusoids\nsinusoids(50, 128)                              # "
            "[positions, width]",
            "model/positions.py",
            (ViewLink("the positions of a sentence", "walk", {"text": SENTENCES[0], "stage": "encoder.positions"}),),
        ),
        tuple(more),
        (
            Try("A larger map: the slow waves begin to move.", {"length": 200, "map_width": 64}),
            Try("Two orders of your own words.", {"sentences": ["the dog saw the cat", "the cat saw the dog"]}),
        ),
        (
            Note(
                ATTENTION,
                '"PE(pos, i) = sin(pos / 10000^(2i/d))" should be PE(pos, 2i): the sines are the even components of '
                f"the vector, so position 0 is {', '.join(f'{x:g}' for x in sinusoids(1, 6)[0].tolist())}, as is then "
                "computed there.",
            ),
            Note(LECTURE, "The curves at pos = 2 and pos = 50, and the heat map, are those above."),
        ),
    )


def _order_verdict(order: WordOrder) -> str:
    changed, unchanged = max(order.change), max(order.change_without)
    text = f"With positions the vectors differ by up to {changed:.2f}; without them by {format_small(unchanged)}" + (
        ", which is rounding: the model cannot tell the sentences apart." if unchanged < 1e-4 < changed else "."
    )
    return text + " (It was trained with positions; the lesson `order` trains one without.)"


def exercises() -> tuple[Exercise, ...]:
    table = sinusoids(8, 4).double()
    return (
        Exercise("What is the cosine component of position 0, for any i?", float(table[0, 1]), "cos(0) = 1."),
        Exercise(
            "d = 4. What is PE(2, 0) = sin(2 / 10000^0)?", float(table[2, 0]), "sin(2 / 1), with the angle in radians."
        ),
        Exercise(
            "d = 4. The codes of positions 0 and 3 have some dot product. By how much does that of positions 4 and 7 differ?",
            float(table[0] @ table[3] - table[4] @ table[7]),
            "Not at all: it depends on the distance only.",
            tolerance=0.001,
        ),
    )


def _order_tables(order: WordOrder) -> list[Table]:
    changes = Table(
        ("", "with positions", "without"),
        tuple(
            (f'relative change of "{word}"' if i == 0 else f'  "{word}"', format_small(a), format_small(b))
            for i, (word, a, b) in enumerate(zip(order.words, order.change, order.change_without, strict=True))
        ),
        f'"{order.sentences[0]}" and "{order.sentences[1]}" in a model, with and without its positions:',
    )
    if not any(order.translations):
        return [changes]
    outputs = (("with positions", order.translations), ("without", order.translations_without))
    rows = tuple((text, name, each[i]) for i, text in enumerate(order.sentences) for name, each in outputs)
    return [changes, Table(("", "", ""), rows)]


def _format(number: float) -> str:
    return f"{number:,.0f}" if number == int(number) else f"{number:.3f}" if number > 0.01 else f"{number:.1g}"


def draw(result: Result, path: Path | str) -> None:
    figure, (waves, bits, products, curves) = subplots(4)
    waves.imshow(result.map, cmap="PuOr", vmin=-1, vmax=1, aspect="auto")
    label_axes(waves, f"PE, {len(result.map)} positions × {len(result.map[0])}", "component", "position", legend=False)
    bits.imshow(result.bits, cmap="Blues", vmin=0, vmax=1.4, aspect="auto")
    bits.set_xticks(range(4), ["8", "4", "2", "1"])
    label_axes(bits, "Counting in binary", "bit", "number", legend=False)
    table = torch.tensor(result.map)
    for position, colour in zip(result.shift_from[:2], (BLUE, ORANGE), strict=False):
        dots = (table @ table[position]).tolist()
        distances = [other - position for other in range(len(dots))]
        style = "-" if position == 0 else "--"
        products.plot(distances, dots, style, color=colour, label=f"with position {position}")
    label_axes(products, "Dot product of two codes depends on distance", "distance", "dot product")
    for position, row, colour in zip(result.curve_positions, result.curves, (BLUE, ORANGE), strict=False):
        curves.plot(row[1::2], color=colour, label=f"cos, pos = {position}")
    label_axes(curves, "One position as a curve", "i", "PE(pos, 2i + 1)")
    save_figure(figure, path)
