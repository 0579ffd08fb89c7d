"""`norms`: layer norm and batch norm, and why padding distorts batch norm.

Batch norm computes mean and variance of each column, over all tokens of a batch; layer norm those of each row, over the
numbers of one token. Rows of padding, needed when sentences differ in length, change the columns but not the rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor
from torch.nn import functional as F

from seq2see.course.lessons import kit
from seq2see.data.layout import Packed
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
    samples: kit.Matrix
    column_means: tuple[float, ...]
    column_deviations: tuple[float, ...]
    batch: kit.Matrix  # batch norm
    row_means: tuple[float, ...]
    row_deviations: tuple[float, ...]
    layer: kit.Matrix  # layer norm
    padded: tuple[PaddingEffect, ...]
    model_batch: ModelBatch
    sentences: tuple[str, ...]  # of that batch


def compute(
    samples: Sequence[Sequence[float]] = SAMPLES,
    padding: Annotated[Sequence[int], kit.Bounds(0, 1000)] = PADDING,
    sentences: Sequence[str] = SENTENCES,
    model: kit.Model | None = None,
) -> Result:
    """Normalises the samples in both ways, with and without padding, and a batch of a model."""
    x = kit.to_tensor(samples, "samples")
    if len(x) < 2 or min(padding, default=0) < 0:
        raise kit.UserError(
            f"{len(x)} samples and padding {list(padding)}: needs at least 2 samples, and padding of at least 0"
        )
    names = NAMES if x.shape[1] == len(NAMES) else tuple(f"f{i + 1}" for i in range(x.shape[1]))
    return Result(
        names, kit.to_matrix(x), tuple(x.mean(0).tolist()), tuple(x.std(0, correction=0).tolist()),
        kit.to_matrix(batch_norm(x)), tuple(x.mean(1).tolist()), tuple(x.std(1, correction=0).tolist()),
        kit.to_matrix(layer_norm(x)), tuple(_pad(x, rows) for rows in padding),
        _measure_batch(kit.resolve_model(model), sentences), tuple(sentences),
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
        sum(kit.relative_change(norm(x), y)) / len(x) for norm, y in ((batch_norm, batch), (layer_norm, layer))
    )
    first = padded[:, 0]
    return PaddingEffect(
        rows, float(first.mean()), float(first.std(correction=0)), float(batch[0, 0]), batch_change, layer_change
    )


@torch.no_grad()
def _measure_batch(model: kit.Model, sentences: Sequence[str]) -> ModelBatch:
    tokenizer, config = model.tokenizers[0], model.config.model
    packed = Packed.from_sequences([[*tokenizer.encode(text), tokenizer.end] for text in sentences])
    with trace(model.network) as t:
        if config.has_encoder:
            model.network.encode(packed, model.network.taps())
        else:
            model.network(packed)
    name = f"{'encoder.0.self' if config.has_encoder else 'decoder.0.masked'}.norm.input"
    x = torch.cat(tuple(t[name])).double()  # [T, width]: packed
    layout = packed.layout
    padded = layout.pad(x)  # [S, L, width], zeros where there is no token
    changes = []
    for norm in (batch_norm, layer_norm):
        normalized = layout.unpad(norm(padded.flatten(0, 1)).unflatten(0, padded.shape[:2]))
        change = torch.tensor(kit.relative_change(norm(x), normalized))
        changes.append(tuple(float(change[layout.slice(s)].mean()) for s in range(len(sentences))))
    return ModelBatch(tuple(layout.lengths.tolist()), padded[..., 0].numel() - len(x), changes[0], changes[1])


def values(result: Result) -> kit.Values:
    names = [f"S{i + 1}" for i in range(len(result.samples))]
    by_row = zip(names, result.samples, result.row_means, result.row_deviations, strict=True)
    return {
        "last": result.padded[-1],
        "rows": names,
        "table_rows": [
            *((name, *(f"{x:g}" for x in row), f"{mean:.2f}", f"{sigma:.2f}") for name, row, mean, sigma in by_row),
            ("mean", *(f"{x:.2f}" for x in result.column_means), None, None),
            ("σ", *(f"{x:.2f}" for x in result.column_deviations), None, None),
        ],
        "constant_columns": result.column_deviations.count(0),  # no division can make their σ 1
        "constant_rows": result.row_deviations.count(0),
    }


def answers() -> kit.Values:
    x = kit.to_tensor([[1, 3], [5, 3]])
    return {
        "layer": float(layer_norm(x)[0, 1]),
        "batch": float(batch_norm(x)[0, 1]),
        "mean": float(torch.cat([x, x.new_zeros(2, 2)])[:, 0].mean()),
    }
