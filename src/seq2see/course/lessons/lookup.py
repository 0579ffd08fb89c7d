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
from seq2see.course.lessons.exercises import Exercise
from seq2see.course.lessons.figures import label_axes, save_figure, subplots
from seq2see.course.lessons.render import SLIDES, Bars, LessonText, Library, Note, Row, Section, Table, Try
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
    shared_pairs: tuple[float, ...]  # dot products of the counts of letter pairs
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


def describe(result: Result) -> LessonText:
    rows: list[Row] = [
        (name, f"{value:g}", distance, int(shared), *(row[i] for row in result.weights))
        for i, (name, value, distance, shared) in enumerate(
            zip(result.keys, result.values, result.edit_distances, result.shared_pairs, strict=True)
        )
    ]
    rows.append(("answer", "", None, None, *(f"{answer:.2f}" for answer in result.answers)))
    headings = tuple(f"T = {t:g}" for t in result.temperatures)
    exact = f"{result.exact:g}" if result.exact is not None else "nothing, because the name is not on the list"
    smallest = min(result.edit_distances)
    closest = [name for name, d in zip(result.keys, result.edit_distances, strict=True) if d == smallest]
    return LessonText(
        f'a hotel\'s guest list, and someone who asks for "{result.query}". Every guest gets a weight: the more letter pairs '
        "in common, the larger. The temperature T says how strict the lookup is.",
        (
            Bars(
                f'Weights for "{result.query}"',
                tuple(
                    (
                        f"T = {t:g}",
                        tuple((f"{k} {v:g}", w) for k, v, w in zip(result.keys, result.values, row, strict=True)),
                    )
                    for t, row in zip(result.temperatures, result.weights, strict=True)
                ),
                1.0,
            ),
        ),
        (
            f"A dictionary answers {exact}. Attention answers with the weighted mean of all rooms: "
            + ", ".join(
                f"{answer:.2f} at T = {t:g}" for t, answer in zip(result.temperatures, result.answers, strict=True)
            )
            + ".",
        ),
        "Query, key and value: what is asked, what it is compared with, what is returned. At a low temperature attention "
        f"returns the value of the best {'match' if len(closest) == 1 else 'matches'}, at a high one the mean of all. The mean "
        "of room numbers is not a room: a soft lookup needs values whose mixture has a meaning, such as vectors.",
        Library("attention(query / temperature, keys, values)   # q · kᵀ / √d / T", "model/attention.py"),
        (
            Section(
                "How the names are compared",
                (
                    f"A name becomes its pairs of adjacent letters, with its start (^) and end ($): {result.query} is "
                    f"{', '.join(''.join(pair) for pair in _pairs(result.query))}. Its vector counts each pair, so the dot "
                    "product of two names adds, over all pairs, count · count: for pairs that occur once, the number of pairs "
                    "in common. Upper and lower case differ.",
                    Table(
                        ("key", "value", "edits", "shared", *headings),
                        tuple(rows),
                        "softmax(q · kᵀ / √d / T):",
                        bold_rows=(len(rows) - 1,),
                    ),
                    "edits: letters to change, add or remove to turn one name into the other. shared: the dot product.",
                ),
            ),
        ),
        (
            Try("A name that is on the list: does attention find its room?", {"query": "Smith"}),
            Try("The strictest and the most generous lookup.", {"temperatures": [0.02, 50]}),
        ),
        _notes(),
    )


def _pairs(name: str) -> list[tuple[str, str]]:
    return list(zip(f"^{name}", f"{name}$", strict=True))


def _notes() -> tuple[Note, ...]:
    found = compute()
    distances = ", ".join(f"{n} {d}" for n, d in zip(found.keys, found.edit_distances, strict=True))
    return (
        Note(
            SLIDES,
            f'"{found.query}" gets 200, the room of Smith. But Smith is the farthest: the edit distances are '
            f"{distances}, so the other two tie.",
        ),
    )


def exercises() -> tuple[Exercise, ...]:
    found = compute(guests={"Ana": 100, "Anna": 200}, query="Anna", temperatures=[0.01, 1000])
    shared = compute(guests={"Smith": 1}, query="Smit", temperatures=[1])
    return (
        Exercise(
            "Anna is in room 200, Ana in room 100. At a very high temperature, what does attention answer for Anna?",
            found.answers[1],
            "All weights become equal, and the answer is the mean of the rooms.",
            tolerance=0.5,
        ),
        Exercise(
            "And at a very low temperature?", found.answers[0], "The best match takes all the weight.", tolerance=0.5
        ),
        Exercise(
            "How many letter pairs, with start and end, do Smit (^S Sm mi it t$) and Smith (^S Sm mi it th h$) share?",
            shared.shared_pairs[0],
            "^S, Sm, mi and it.",
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
