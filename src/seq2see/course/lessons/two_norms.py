"""`norms`: layer norm against batch norm, and why padding spoils the second.

Batch norm takes mean and variance down a column, over all tokens of a batch; layer norm along a row, over the numbers of
one token. The rows of padding that a batch of unlike sentences brings along then change the columns, and never the rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from seq2see.api import Model
from seq2see.course.lessons.models import bundled, moved
from seq2see.course.lessons.pictures import WITH, WITHOUT, heat, label, panels, save
from seq2see.course.lessons.render import Grid, Story, brief, matrix
from seq2see.course.lessons.worked_attention import Table, as_table, as_tensor
from seq2see.errors import UserError
from seq2see.inspect.trace import trace
from seq2see.layout import Packed

SAMPLES = ((2, 3, 7, 5, 4), (1, 1, 2, 3, 4), (5, 4, 1, 2, 3), (6, 1, 7, 5, 6), (7, 1, 3, 3, 4))
NAMES = ("f1", "f2", "z1", "z2", "z3")
PADDING = (0, 2, 5, 20, 100)  # the notes: a sentence with 3 words and more than 100 trailing zeros
SENTENCES = ("Thank you", "How are you?", "The man saw the astronomer with a telescope.")


@dataclass(frozen=True)
class Padded:
    """What so many rows of zeros do to the rows that are real."""

    rows: int
    mean: float  # of the first column, zeros included
    deviation: float
    first: float  # the first number of the first row after batch norm
    batch_moved: float  # how far the real rows are from where they were without padding, in parts of their length
    layer_moved: float


@dataclass(frozen=True)
class Batch:
    """A real batch of a model, at its first norm."""

    lengths: tuple[int, ...]
    padding: int  # rows of zeros that a padded table has
    batch_moved: tuple[float, ...]  # of each sentence: the mean over its tokens
    layer_moved: tuple[float, ...]


@dataclass(frozen=True)
class Norms:
    names: tuple[str, ...]
    samples: Table
    column_means: tuple[float, ...]
    column_deviations: tuple[float, ...]
    batch: Table  # normed down the columns
    row_means: tuple[float, ...]
    row_deviations: tuple[float, ...]
    layer: Table  # normed along the rows
    padded: tuple[Padded, ...]
    real: Batch


def norms(
    samples: Sequence[Sequence[float]] = SAMPLES, padding: Sequence[int] = PADDING, sentences: Sequence[str] = SENTENCES,
    model: Model | None = None,
) -> Norms:  # fmt: skip
    """The table both ways, then with rows of zeros under it, then a batch of a model."""
    x = as_tensor(samples, "samples")
    if len(x) < 2 or min(padding, default=0) < 0:
        raise UserError(
            f"{len(x)} samples and padding {list(padding)}: batch norm needs two rows, and padding 0 or more"
        )
    names = NAMES if x.shape[1] == len(NAMES) else tuple(f"f{i + 1}" for i in range(x.shape[1]))
    return Norms(
        names, as_table(x), _numbers(x.mean(0)), _numbers(x.std(0, correction=0)), as_table(batch_norm(x)),
        _numbers(x.mean(1)), _numbers(x.std(1, correction=0)), as_table(layer_norm(x)),
        tuple(_padded(x, rows) for rows in padding), _batch(bundled(model), sentences),
    )  # fmt: skip


def batch_norm(x: Tensor) -> Tensor:
    """(x − mean) / √(variance + ε) of each column, over the rows: torch's, as in training."""
    return F.batch_norm(x, None, None, training=True)


def layer_norm(x: Tensor) -> Tensor:
    """The same of each row, over the columns: the model's, before γ and β."""
    return F.layer_norm(x, x.shape[-1:])


def _padded(x: Tensor, rows: int) -> Padded:
    under = torch.cat([x, x.new_zeros(rows, x.shape[1])])
    made = [norm(under)[: len(x)] for norm in (batch_norm, layer_norm)]
    away = [sum(moved(norm(x), y)) / len(x) for norm, y in zip((batch_norm, layer_norm), made, strict=True)]
    first = under[:, 0]
    return Padded(rows, float(first.mean()), float(first.std(correction=0)), float(made[0][0, 0]), away[0], away[1])


@torch.no_grad()
def _batch(model: Model, sentences: Sequence[str]) -> Batch:
    tokenizer, config = model.tokenizers[0], model.config.model
    packed = Packed.of([[*tokenizer.encode(text), tokenizer.end] for text in sentences])
    stack = "encoder" if config.has_encoder else "decoder"
    first = f"{stack}.0.{'self' if config.has_encoder else 'masked'}.norm.input"
    with trace(model.network) as t:
        if config.has_encoder:
            model.network.encode(packed, model.network.taps())
        else:
            model.network(packed)
    x = t[first].double()  # [T, width]: the model never sees padding
    layout = packed.layout
    table = layout.pad(x)  # [S, L, width], zeros where there is no token
    away = []
    for norm in (batch_norm, layer_norm):
        with_zeros = layout.unpad(norm(table.flatten(0, 1)).unflatten(0, table.shape[:2]))
        distances = torch.tensor(moved(norm(x), with_zeros))
        away.append(tuple(float(distances[layout.slice(s)].mean()) for s in range(len(sentences))))
    return Batch(tuple(layout.lengths.tolist()), table[..., 0].numel() - len(x), away[0], away[1])


def _numbers(x: Tensor) -> tuple[float, ...]:
    return tuple(x.tolist())


def story(result: Norms) -> Story:
    rows = [f"S{i + 1}" for i in range(len(result.samples))]
    given = Grid(
        ("", *result.names, "mean", "σ"),
        (
            *((name, *(f"{x:g}" for x in row), f"{result.row_means[i]:.2f}", f"{result.row_deviations[i]:.2f}")
              for i, (name, row) in enumerate(zip(rows, result.samples, strict=True))),
            ("mean", *(f"{x:.2f}" for x in result.column_means), None, None),
            ("σ", *(f"{x:.2f}" for x in result.column_deviations), None, None),
        ),
        "Samples, with mean and σ of every row and column:",
    )  # fmt: skip
    real = result.real
    return Story(
        'two ways to norm. The notes: batch norm goes "across batch, column wise", layer norm "across features"; '
        'padding "zeros will effect over all calculation" of the first: "3 words & >100 trailing zeros".',
        (
            given,
            matrix(result.batch, rows, result.names, "Batch norm, down the columns: every column has mean 0 and σ 1"),
            matrix(result.layer, rows, result.names, "Layer norm, along the rows: every row has mean 0 and σ 1"),
            Grid(
                ("rows of zeros", f"mean of {result.names[0]}", "σ", f"S1's {result.names[0]}", "batch norm", "layer norm"),
                tuple(
                    (p.rows, p.mean, p.deviation, p.first, f"{p.batch_moved:.0%}", f"{p.layer_moved:.0%}")
                    for p in result.padded
                ),
                "With padding under them. The last two: how far the real rows have moved",
            ),
            f"A batch of a model, at its first norm: sentences of {', '.join(map(str, real.lengths))} tokens. Padded to the "
            f"longest they bring {real.padding} rows of zeros, and batch norm moves the tokens of each sentence by "
            f"{', '.join(f'{x:.0%}' for x in real.batch_moved)}, layer norm by "
            f"{', '.join(brief(x) for x in real.layer_moved)}.",
        ),
        "layer norm of a token depends on nothing but the token. Batch norm makes it depend on which sentences happen "
        "to be in the batch and on how long the longest of them is. (seq2see's own model never pads: only attention "
        "knows where a sentence ends.)",
    )  # fmt: skip


def draw(result: Norms, path: Path | str) -> None:
    figure, (batch, layer, padding) = panels(3)
    rows = [f"S{i + 1}" for i in range(len(result.samples))]
    heat(batch, result.batch, rows, result.names, "Batch norm: down the columns", signed=True)
    heat(layer, result.layer, rows, result.names, "Layer norm: along the rows", signed=True)
    at = [p.rows for p in result.padded]
    padding.plot(at, [p.batch_moved for p in result.padded], "o-", color=WITHOUT, label="batch norm")
    padding.plot(at, [p.layer_moved for p in result.padded], "o-", color=WITH, label="layer norm")
    label(padding, "How far padding moves the real rows", "rows of zeros", "in parts of their length")
    save(figure, path)
