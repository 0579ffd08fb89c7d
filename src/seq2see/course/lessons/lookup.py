"""`lookup`: attention as a dictionary whose answer mixes all entries.

A hotel's guest list maps a name to a room. For a name that is not on the list a dictionary returns nothing; attention
compares the query with every key, here by shared letter pairs, and mixes the values by the weights.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from seq2see.course.lessons.attention import Matrix, attention
from seq2see.course.lessons.figures import label_axes, save_figure, subplots
from seq2see.course.lessons.render import LessonText, Row, Table
from seq2see.errors import UserError

GUESTS: Mapping[str, float] = {"Smith": 200, "Summer": 201, "Smeeth": 202}
TEMPERATURES = (0.1, 0.5, 1.0, 3.0)


@dataclass(frozen=True)
class Result:
    query: str
    keys: tuple[str, ...]
    values: tuple[float, ...]
    exact: float | None  # the answer of a dictionary
    edit_distances: tuple[int, ...]
    shared_pairs: tuple[float, ...]  # letter pairs in common: the dot product
    temperatures: tuple[float, ...]
    weights: Matrix  # one row per temperature
    answers: tuple[float, ...]


def compute(
    guests: Mapping[str, float] = GUESTS, query: str = "Summeth", temperatures: Sequence[float] = TEMPERATURES
) -> Result:
    """Attends from the query to every key at several temperatures."""
    if not guests or not all(temperature > 0 for temperature in temperatures):
        raise UserError(
            f"{len(guests)} guests and temperatures {list(temperatures)}: at least one guest and temperatures above 0"
        )
    q, *keys = _letter_pairs([query, *guests])
    k, v = torch.stack(keys), torch.tensor([[float(room)] for room in guests.values()], dtype=torch.float64)
    rows = [attention(q[None] / t, k, v) for t in temperatures]
    return Result(
        query, tuple(guests), tuple(map(float, guests.values())), guests.get(query),
        tuple(_edit_distance(query, name) for name in guests), attention(q[None], k, v).scores[0], tuple(temperatures),
        tuple(row.weights[0] for row in rows), tuple(row.output[0][0] for row in rows),
    )  # fmt: skip


def _letter_pairs(names: Sequence[str]) -> list[Tensor]:
    """Counts the pairs of adjacent letters in each name, with markers for its start and end."""
    counts = [Counter(zip(f"^{name}", f"{name}$", strict=True)) for name in names]
    known = sorted(set().union(*counts))
    return [torch.tensor([count[pair] for pair in known], dtype=torch.float64) for count in counts]


def _edit_distance(one: str, other: str) -> int:
    """Computes the Levenshtein distance."""
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, start=1):
        diagonal, row[0] = row[0], i
        for j, b in enumerate(other, start=1):
            diagonal, row[j] = row[j], min(diagonal + (a != b), row[j] + 1, row[j - 1] + 1)
    return row[-1]


def describe(result: Result) -> LessonText:
    headings = tuple(f"T = {t:g}" for t in result.temperatures)
    rows: list[Row] = [
        (name, f"{value:g}", distance, int(shared), *(row[i] for row in result.weights))
        for i, (name, value, distance, shared) in enumerate(
            zip(result.keys, result.values, result.edit_distances, result.shared_pairs, strict=True)
        )
    ]
    rows.append(("answer", "", None, None, *(f"{answer:.2f}" for answer in result.answers)))
    exact = f"{result.exact:g}" if result.exact is not None else "nothing, because the name is not on the list"
    smallest = min(result.edit_distances)
    closest = [name for name, d in zip(result.keys, result.edit_distances, strict=True) if d == smallest]
    notes = compute()
    notes_distances = ", ".join(f"{n} {d}" for n, d in zip(notes.keys, notes.edit_distances, strict=True))
    return LessonText(
        "Q, K and V as a lookup. In the notes, a hotel maps last names (keys) to room numbers (values), and someone asks for "
        f'"{result.query}" (the query).',
        (
            f"A dictionary answers {exact}. Attention compares the query with every key, softmax(q · kᵀ / √d / T), and "
            "returns the weighted mean of all values:",
            Table(("key", "value", "edits", "shared", *headings), tuple(rows), bold_rows=(len(rows) - 1,)),
            "edits: edit distance between key and query. shared: letter pairs in common, the dot product from which the "
            "weights are computed.",
        ),
        f"The closest {'key is' if len(closest) == 1 else 'keys are'} {' and '.join(closest)}. At a low temperature attention "
        "returns the value of the best matches, at a high one the mean of all. The mean of room numbers is not a room: soft "
        "lookup needs values whose mixture is meaningful, such as vectors.",
        (
            f'"Summeth" gets 200, the room of Smith. But Smith is the farthest: the edit distances are {notes_distances}, so '
            "the other two tie.",
        ),
    )


def draw(result: Result, path: Path | str) -> None:
    figure, (axes,) = subplots(1)
    left = [0.0] * len(result.temperatures)
    y = range(len(result.temperatures))
    for i, name in enumerate(result.keys):
        widths = [row[i] for row in result.weights]
        axes.barh(y, widths, left=left, label=f"{name} {result.values[i]:g}")
        left = [a + b for a, b in zip(left, widths, strict=True)]
    axes.set_yticks(y, [f"{t:g}" for t in result.temperatures])
    label_axes(axes, f'Weights of the keys for "{result.query}"', "weight", "temperature", legend=False)
    axes.legend(frameon=False, fontsize=8, ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.16))
    save_figure(figure, path)
