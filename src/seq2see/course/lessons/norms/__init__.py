"""`norms`: layer norm and batch norm, and why padding distorts batch norm.

Batch norm computes mean and variance of each column, over all tokens of a batch; layer norm those of each row, over the
numbers of one token. Rows of padding, needed when sentences differ in length, change the columns but not the rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from seq2see.api import Model
from seq2see.course.lessons.attention import Matrix, to_matrix, to_tensor
from seq2see.course.lessons.exercises import Exercise
from seq2see.course.lessons.figures import BLUE, ORANGE, heatmap, label_axes, save_figure, subplots
from seq2see.course.lessons.models import relative_change, resolve_model
from seq2see.course.lessons.render import (
    ATTENTION,
    Bars,
    LessonText,
    Library,
    Note,
    Section,
    Table,
    Try,
    ViewLink,
    format_small,
    matrix_table,
)
from seq2see.data.layout import Packed
from seq2see.errors import UserError
from seq2see.inspect.trace import trace

SAMPLES = ((2, 3, 7, 5, 4), (1, 1, 2, 3, 4), (5, 4, 1, 2, 3), (6, 1, 7, 5, 6), (7, 1, 3, 3, 4))
NAMES = ("f1", "f2", "z1", "z2", "z3")
PADDING = (0, 2, 5, 20, 100)  # the notes: a sentence with 3 words and more than 100 trailing zeros
SENTENCES = ("Thank you", "How are you?", "The man saw the astronomer with a telescope.")


@dataclass(frozen=True)
class PaddingEffect:
    """The effect of rows of zeros on the real rows."""

    rows: int
    mean: float  # of the first column, including zeros
    deviation: float
    first: float  # first number of the first row after batch norm
    batch_change: float  # mean relative change of the real rows, compared with no padding
    layer_change: float


@dataclass(frozen=True)
class ModelBatch:
    """A batch of a model at its first norm."""

    lengths: tuple[int, ...]
    padding: int  # rows of zeros in the padded batch
    batch_change: tuple[float, ...]  # mean relative change of the tokens of each sentence
    layer_change: tuple[float, ...]


@dataclass(frozen=True)
class Result:
    names: tuple[str, ...]
    samples: Matrix
    column_means: tuple[float, ...]
    column_deviations: tuple[float, ...]
    batch: Matrix  # batch norm
    row_means: tuple[float, ...]
    row_deviations: tuple[float, ...]
    layer: Matrix  # layer norm
    padded: tuple[PaddingEffect, ...]
    model_batch: ModelBatch
    sentences: tuple[str, ...]  # of that batch


def compute(
    samples: Sequence[Sequence[float]] = SAMPLES, padding: Sequence[int] = PADDING, sentences: Sequence[str] = SENTENCES,
    model: Model | None = None,
) -> Result:  # fmt: skip
    """Normalises the samples in both ways, with and without padding, and a batch of a model."""
    x = to_tensor(samples, "samples")
    if len(x) < 2 or min(padding, default=0) < 0:
        raise UserError(
            f"{len(x)} samples and padding {list(padding)}: needs at least 2 samples, and padding of at least 0"
        )
    names = NAMES if x.shape[1] == len(NAMES) else tuple(f"f{i + 1}" for i in range(x.shape[1]))
    return Result(
        names, to_matrix(x), tuple(x.mean(0).tolist()), tuple(x.std(0, correction=0).tolist()), to_matrix(batch_norm(x)),
        tuple(x.mean(1).tolist()), tuple(x.std(1, correction=0).tolist()), to_matrix(layer_norm(x)),
        tuple(_pad(x, rows) for rows in padding), _measure_batch(resolve_model(model), sentences), tuple(sentences),
    )  # fmt: skip


def batch_norm(x: Tensor) -> Tensor:
    """Computes (x − mean) / √(variance + ε) of each column, as torch does in training."""
    return F.batch_norm(x, None, None, training=True)


def layer_norm(x: Tensor) -> Tensor:
    """Computes the same of each row, as the model does before γ and β."""
    return F.layer_norm(x, x.shape[-1:])


def _pad(x: Tensor, rows: int) -> PaddingEffect:
    padded = torch.cat([x, x.new_zeros(rows, x.shape[1])])
    batch, layer = (norm(padded)[: len(x)] for norm in (batch_norm, layer_norm))
    batch_change, layer_change = (
        sum(relative_change(norm(x), y)) / len(x) for norm, y in ((batch_norm, batch), (layer_norm, layer))
    )
    first = padded[:, 0]
    return PaddingEffect(
        rows, float(first.mean()), float(first.std(correction=0)), float(batch[0, 0]), batch_change, layer_change
    )


@torch.no_grad()
def _measure_batch(model: Model, sentences: Sequence[str]) -> ModelBatch:
    tokenizer, config = model.tokenizers[0], model.config.model
    packed = Packed.from_sequences([[*tokenizer.encode(text), tokenizer.end] for text in sentences])
    with trace(model.network) as t:
        if config.has_encoder:
            model.network.encode(packed, model.network.taps())
        else:
            model.network(packed)
    x = t[f"{'encoder.0.self' if config.has_encoder else 'decoder.0.masked'}.norm.input"].double()  # [T, width]: packed
    layout = packed.layout
    padded = layout.pad(x)  # [S, L, width], zeros where there is no token
    changes = []
    for norm in (batch_norm, layer_norm):
        normalized = layout.unpad(norm(padded.flatten(0, 1)).unflatten(0, padded.shape[:2]))
        change = torch.tensor(relative_change(norm(x), normalized))
        changes.append(tuple(float(change[layout.slice(s)].mean()) for s in range(len(sentences))))
    return ModelBatch(tuple(layout.lengths.tolist()), padded[..., 0].numel() - len(x), changes[0], changes[1])


def describe(result: Result) -> LessonText:
    rows = [f"S{i + 1}" for i in range(len(result.samples))]
    samples = Table(
        ("", *result.names, "mean", "σ"),
        (
            *((name, *(f"{x:g}" for x in row), f"{result.row_means[i]:.2f}", f"{result.row_deviations[i]:.2f}")
              for i, (name, row) in enumerate(zip(rows, result.samples, strict=True))),
            ("mean", *(f"{x:.2f}" for x in result.column_means), None, None),
            ("σ", *(f"{x:.2f}" for x in result.column_deviations), None, None),
        ),
        "Samples, with mean and standard deviation σ of every row and column:",
    )  # fmt: skip
    batch, last = result.model_batch, result.padded[-1]
    return LessonText(
        "what rows of zeros do. Sentences of a batch differ in length; the shorter ones are filled up with zeros. The "
        "bars show how much the real rows change by it.",
        (
            Bars(
                "Relative change of the real rows",
                tuple(
                    (f"{p.rows} rows of zeros", (("batch norm", p.batch_change), ("layer norm", p.layer_change)))
                    for p in result.padded
                ),
            ),
        ),
        (
            f"With {last.rows} rows of zeros the mean of {result.names[0]} falls to {last.mean:.2f}, and batch norm "
            f"changes the real rows by {last.batch_change:.0%}; layer norm by {last.layer_change:.0%}.",
        ),
        "Batch norm works down the columns, over all words of a batch: a word's numbers depend on the other sentences "
        "and on the length of the longest. Layer norm works along the row of one word and depends on nothing else.",
        Library(
            "x = (x - mean) / sqrt(variance + eps) * gain + bias    # one word\n"
            "Packed.from_sequences(ids)                             # no padding at all",
            "model/layers.py",
            (ViewLink("mean and variance of every word", "walk", {"text": result.sentences[0]}),),
        ),
        (
            Section(
                "The same table both ways",
                (
                    samples,
                    matrix_table(
                        result.batch, rows, result.names, _caption("Batch norm", "column", result.column_deviations)
                    ),
                    matrix_table(
                        result.layer, rows, result.names, _caption("Layer norm", "row", result.row_deviations)
                    ),
                ),
            ),
            Section(
                "With padding, row by row",
                (
                    Table(
                        (
                            "rows of zeros",
                            f"mean of {result.names[0]}",
                            "σ",
                            f"S1's {result.names[0]}",
                            "batch norm",
                            "layer norm",
                        ),
                        tuple(
                            (p.rows, p.mean, p.deviation, p.first, f"{p.batch_change:.0%}", f"{p.layer_change:.0%}")
                            for p in result.padded
                        ),
                        "The last two columns: relative change of the real rows",
                    ),
                ),
            ),
            Section(
                "A batch of a model",
                (
                    f"Sentences of {', '.join(map(str, batch.lengths))} tokens at the model's first norm. Padded to "
                    f"equal length they contain {batch.padding} rows of zeros, which change the tokens of each sentence "
                    f"by {', '.join(f'{x:.0%}' for x in batch.batch_change)} with batch norm and by "
                    f"{', '.join(format_small(x) for x in batch.layer_change)} with layer norm.",
                ),
            ),
        ),
        (
            Try(
                "A constant row has no deviation: what can layer norm do?",
                {"samples": [[2, 3, 7, 5, 4], [4, 4, 4, 4, 4]]},
            ),
            Try("More padding than words.", {"padding": [0, 10, 1000]}),
        ),
        (
            Note(
                ATTENTION,
                'Batch norm goes "across batch, column wise", layer norm "across features"; padding "zeros will '
                "effect over all "
                'calculation": "3 words & >100 trailing zeros", as above.',
            ),
        ),
    )


def _caption(norm: str, axis: str, deviations: Sequence[float]) -> str:
    """Constant rows and columns have σ 0, which no division can make 1."""
    constant = sum(deviation == 0 for deviation in deviations)
    text = f"{norm}: every {axis} has mean 0 and σ 1"
    return text if not constant else f"{text}, except {constant} constant {axis}{'s' * (constant > 1)}, with σ 0"


def exercises() -> tuple[Exercise, ...]:
    x = to_tensor([[1, 3], [5, 3]])
    return (
        Exercise("Layer norm of the row (1, 3): what does the 3 become?", float(layer_norm(x)[0, 1]), "Mean 2, σ 1."),
        Exercise(
            "Batch norm of the rows (1, 3) and (5, 3): what does the first 3 become?",
            float(batch_norm(x)[0, 1]),
            "Its column is 3 and 3: the mean is 3, and nothing is left.",
        ),
        Exercise(
            "Two rows of zeros are added to (1, 3) and (5, 3). What is the mean of the first column now?",
            float(torch.cat([x, x.new_zeros(2, 2)])[:, 0].mean()),
            "(1 + 5 + 0 + 0) / 4; it was 3.",
        ),
    )


def draw(result: Result, path: Path | str) -> None:
    figure, (batch, layer, padding) = subplots(3)
    rows = [f"S{i + 1}" for i in range(len(result.samples))]
    heatmap(batch, result.batch, rows, result.names, "Batch norm: by column", signed=True)
    heatmap(layer, result.layer, rows, result.names, "Layer norm: by row", signed=True)
    x = [p.rows for p in result.padded]
    padding.plot(x, [p.batch_change for p in result.padded], "o-", color=ORANGE, label="batch norm")
    padding.plot(x, [p.layer_change for p in result.padded], "o-", color=BLUE, label="layer norm")
    label_axes(padding, "Effect of padding on the real rows", "rows of zeros", "relative change")
    save_figure(figure, path)
