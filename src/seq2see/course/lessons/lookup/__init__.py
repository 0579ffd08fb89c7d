"""`lookup`: attention as a dictionary whose answer mixes all entries.

A hotel's guest list maps a name to a room. For a name that is not on the list a dictionary returns nothing; attention
compares the query with every key, here by shared letter pairs, and mixes the values by the weights.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from seq2see.course.lessons import kit

GUESTS: Mapping[str, float] = {"Smith": 200, "Summer": 201, "Smeeth": 202}
TEMPERATURES = (0.1, 0.5, 1.0, 3.0)


@dataclass(frozen=True)
class Result:
    query: str
    keys: tuple[str, ...]
    values: tuple[float, ...]
    exact: float | None  # the answer of a dictionary
    edit_distances: tuple[int, ...]
    shared_pairs: tuple[float, ...]  # dot products of the counts of letter pairs
    temperatures: tuple[float, ...]
    weights: kit.Matrix  # one row per temperature
    answers: tuple[float, ...]


def compute(
    guests: Mapping[str, float] = GUESTS,
    query: str = "Summeth",
    temperatures: Annotated[Sequence[float], kit.Bounds(0.01, 1000)] = TEMPERATURES,
) -> Result:
    """Attends from the query to every key at several temperatures."""
    if not guests or not all(temperature > 0 for temperature in temperatures):
        raise kit.UserError(
            f"{len(guests)} guests and temperatures {list(temperatures)}: at least one guest and temperatures above 0"
        )
    q, *keys = _letter_pairs([query, *guests])
    k, v = torch.stack(keys), torch.tensor([[float(room)] for room in guests.values()], dtype=torch.float64)
    rows = [kit.attention(q[None] / t, k, v) for t in temperatures]
    return Result(
        query, tuple(guests), tuple(map(float, guests.values())), guests.get(query),
        tuple(_edit_distance(query, name) for name in guests), kit.attention(q[None], k, v).scores[0], tuple(temperatures),
        tuple(row.weights[0] for row in rows), tuple(row.output[0][0] for row in rows),
    )  # fmt: skip


def _letter_pairs(names: Sequence[str]) -> list[Tensor]:
    """Counts the pairs of adjacent letters in each name, with markers for its start and end."""
    counts = [Counter(_pairs(name)) for name in names]
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


def _pairs(name: str) -> list[tuple[str, str]]:
    return list(zip(f"^{name}", f"{name}$", strict=True))


def values(result: Result) -> kit.Values:
    guests = list(zip(result.keys, result.values, strict=True))
    columns = zip(guests, result.edit_distances, result.shared_pairs, zip(*result.weights, strict=True), strict=True)
    notes = compute()
    return {
        "bars_by_temperature": [
            (f"T = {t:g}", [(f"{name} {room:g}", weight) for (name, room), weight in zip(guests, row, strict=True)])
            for t, row in zip(result.temperatures, result.weights, strict=True)
        ],
        "rows": [(name, f"{room:g}", edits, int(shared), *row) for (name, room), edits, shared, row in columns],
        "headings": [f"T = {t:g}" for t in result.temperatures],
        "closest": result.edit_distances.count(min(result.edit_distances)),
        "letter_pairs": ["".join(pair) for pair in _pairs(result.query)],
        "notes_query": notes.query,
        "notes_distances": [f"{name} {d}" for name, d in zip(notes.keys, notes.edit_distances, strict=True)],
    }


def answers() -> kit.Values:
    found = compute(guests={"Ana": 100, "Anna": 200}, query="Anna", temperatures=[0.01, 1000])
    shared = compute(guests={"Smith": 1}, query="Smit", temperatures=[1])
    return {"cold": found.answers[0], "hot": found.answers[1], "shared": shared.shared_pairs[0]}
