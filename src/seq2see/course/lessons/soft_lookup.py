"""`lookup`: attention as a dictionary that answers a little with every entry.

A hotel's guest list gives a room to a name that is on it. To a name that is not, a dictionary gives nothing; attention
compares the query with every key, here by the letter pairs that they share, and mixes the values by the weights.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from seq2see.course.lessons.pictures import label, panels, save
from seq2see.course.lessons.render import Grid, Row, Story
from seq2see.course.lessons.worked_attention import Table, attention
from seq2see.errors import UserError

GUESTS: Mapping[str, float] = {"Smith": 200, "Summer": 201, "Smeeth": 202}
TEMPERATURES = (0.1, 0.5, 1.0, 3.0)


@dataclass(frozen=True)
class Lookup:
    query: str
    keys: tuple[str, ...]
    values: tuple[float, ...]
    hard: float | None  # what a dictionary answers
    distances: tuple[int, ...]  # letters to change, put in or leave out
    shared: tuple[float, ...]  # letter pairs in common: the dot product
    temperatures: tuple[float, ...]
    weights: Table  # a row for each temperature
    answers: tuple[float, ...]


def lookup(
    guests: Mapping[str, float] = GUESTS, query: str = "Summeth", temperatures: Sequence[float] = TEMPERATURES
) -> Lookup:
    """The query against every key, softly and sharply."""
    if not guests or not all(temperature > 0 for temperature in temperatures):
        raise UserError(f"{len(guests)} guests and temperatures {list(temperatures)}: one guest at least, all above 0")
    q, *keys = _letter_pairs([query, *guests])
    k, v = torch.stack(keys), torch.tensor([[float(room)] for room in guests.values()], dtype=torch.float64)
    rows = [attention(q[None] / t, k, v) for t in temperatures]
    return Lookup(
        query, tuple(guests), tuple(map(float, guests.values())), guests.get(query),
        tuple(_distance(query, name) for name in guests), attention(q[None], k, v).scores[0], tuple(temperatures),
        tuple(row.weights[0] for row in rows), tuple(row.output[0][0] for row in rows),
    )  # fmt: skip


def _letter_pairs(names: Sequence[str]) -> list[Tensor]:
    """How often each pair of letters stands in a name, its beginning and its end among them."""
    counts = [Counter(zip(f"^{name}", f"{name}$", strict=True)) for name in names]
    known = sorted(set().union(*counts))
    return [torch.tensor([count[pair] for pair in known], dtype=torch.float64) for count in counts]


def _distance(one: str, other: str) -> int:
    """Levenshtein's edit distance."""
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, start=1):
        before, row[0] = row[0], i
        for j, b in enumerate(other, start=1):
            before, row[j] = row[j], min(before + (a != b), row[j] + 1, row[j - 1] + 1)
    return row[-1]


def story(result: Lookup) -> Story:
    heads = tuple(f"T = {t:g}" for t in result.temperatures)
    rows: list[Row] = [
        (name, f"{value:g}", distance, int(shared), *(row[i] for row in result.weights))
        for i, (name, value, distance, shared) in enumerate(
            zip(result.keys, result.values, result.distances, result.shared, strict=True)
        )
    ]
    rows.append(("answer", "", None, None, *(f"{answer:.2f}" for answer in result.answers)))
    hard = f"{result.hard:g}" if result.hard is not None else "nothing, for it is not on the list"
    nearest = [name for name, d in zip(result.keys, result.distances, strict=True) if d == min(result.distances)]
    notes = lookup()
    notes_distances = ", ".join(f"{n} {d}" for n, d in zip(notes.keys, notes.distances, strict=True))
    return Story(
        'Q, K and V as a lookup. The notes: a hotel keeps last name (key) and room number (value); somebody asks for '
        f'"{result.query}" (query).',
        (
            f"A dictionary answers {hard}. Attention compares the query with every key, softmax(q · kᵀ / √d / T), and "
            "answers with all values, weighted:",
            Grid(("key", "value", "edits", "shared", *heads), tuple(rows), strong=(len(rows) - 1,)),
            "edits: letters to change, put in or leave out to make the key of the query. shared: pairs of letters in "
            "common, the dot product that the weights come from.",
        ),
        f"the nearest {'is' if len(nearest) == 1 else 'are'} {' and '.join(nearest)}; with a small T attention answers "
        "as they do, with a large one by everybody alike. The mean of room numbers is no room: it takes values of "
        "which a mixture means something, vectors, for soft lookup to be of use.",
        (
            f'"Summeth" gets 200, Smith\'s room. But Smith is the farthest: the edit distances are {notes_distances}, so '
            "the two others tie.",
        ),
    )  # fmt: skip


def draw(result: Lookup, path: Path | str) -> None:
    figure, (axes,) = panels(1)
    left = [0.0] * len(result.temperatures)
    places = range(len(result.temperatures))
    for i, name in enumerate(result.keys):
        widths = [row[i] for row in result.weights]
        axes.barh(places, widths, left=left, label=f"{name} {result.values[i]:g}")
        left = [a + b for a, b in zip(left, widths, strict=True)]
    axes.set_yticks(places, [f"{t:g}" for t in result.temperatures])
    label(axes, f'"{result.query}": who is answered with', "weight", "temperature", legend=False)
    axes.legend(frameon=False, fontsize=8, ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.16))
    save(figure, path)
