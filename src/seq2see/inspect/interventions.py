"""Interventions: ablate a head, force attention weights, scale an activation or patch in another one.

    with intervene(model, ablate_head("decoder.3.cross", head=5)):
        model(source, target)

An intervention changes the values at all taps that match a name, for selected sentences and positions. Several can be
combined and apply in the given order. On leaving the block, also by an exception, the model is unchanged.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from seq2see.config import ModelConfig
from seq2see.errors import UserError
from seq2see.inspect.trace import matches, matching_taps
from seq2see.model.attention import attention_mask
from seq2see.model.network import Network
from seq2see.model.taps import HookPoint, attach, quantity


@dataclass(frozen=True)
class Selection:
    """The part of a batch that an intervention acts on; None selects everything."""

    sentence: int | None = None
    positions: Sequence[int] | None = None  # in the sentence, from 0; for attention weights, of the queries
    head: int | None = None
    unit: int | None = None  # index on the last axis of each vector


EVERYWHERE = Selection()


class InterventionError(UserError):
    """An intervention that a model has no place for."""

    def __init__(self, message: str, selection: str = "") -> None:
        super().__init__(message)
        self.selection = selection  # the part of the selection that does not exist: head, unit, or "" for the pattern


@dataclass(frozen=True)
class Intervention:
    """A transformation of the values whose names match a pattern."""

    pattern: str
    transform: Callable[[Tensor, HookPoint], Tensor]
    where: Selection
    records: ClassVar[bool] = False

    def on_value(self, point: HookPoint, value: Tensor) -> Tensor:
        if not matches(point.name, (self.pattern,)):
            return value
        return torch.where(_selection_mask(point, value, self.where), self.transform(value, point).to(value), value)

    def taps(self, config: ModelConfig) -> list[str]:
        """Returns the taps of a model that it acts on; what would silently do nothing is an error."""
        names = matching_taps(self.pattern, config)
        sizes = {"width": config.width, "inner width": config.feed_forward, "vocabulary": config.vocab_size}
        for name in names:
            axes = quantity(name).axes
            if name.endswith(".tokens"):
                raise InterventionError(f"{name} holds token ids, which cannot be changed: change the text")
            if self.where.head is not None:
                if "head" not in axes:
                    raise InterventionError(f"{name} has no heads: select positions or units", "head")
                heads = config.actual_key_value_heads if axes[0] == "key token" else config.heads
                _require_index(name, "head", self.where.head, heads)
            if self.where.unit is not None and axes[-1] in sizes:
                _require_index(name, "unit", self.where.unit, sizes[axes[-1]])
        return names


def ablate_head(attention: str, head: int, where: Selection = EVERYWHERE) -> Intervention:
    """Sets the output of one head of an attention such as `decoder.3.cross` to zero."""
    where = Selection(where.sentence, where.positions, head)
    return Intervention(f"{attention}.heads", lambda value, point: torch.zeros_like(value), where)


def force_attention(attention: str, weights: Tensor, where: Selection = EVERYWHERE) -> Intervention:
    """Replaces the attention weights by given ones, which broadcast to [sentences, heads, queries, keys]."""

    def replace_weights(value: Tensor, point: HookPoint) -> Tensor:
        table = weights.view(*[1] * (4 - weights.dim()), *weights.shape).to(value)
        sentences, positions = _coordinates(point, value)
        heads, keys = (torch.arange(value.shape[axis], device=value.device) for axis in (1, 3))
        # An axis of size 1 broadcasts; a full axis is indexed at the positions that this pass computes.
        indices = zip(table.shape, (sentences, heads[:, None, None], positions, keys), strict=True)
        return table[tuple(index if size > 1 else torch.zeros_like(index) for size, index in indices)]

    return Intervention(f"{attention}.weights", replace_weights, where)


def uniform_attention(attention: str, where: Selection = EVERYWHERE) -> Intervention:
    """Gives every key that a query may attend to the same weight."""

    def average(value: Tensor, point: HookPoint) -> Tensor:
        assert point.rows is not None and point.keys is not None
        causal = point.name.endswith(".masked.weights")
        mask = attention_mask(point.rows, point.keys, causal, point.window).to(value)
        return (mask / mask.sum(-1, keepdim=True)).expand_as(value)

    return Intervention(f"{attention}.weights", average, where)


def scale(name: str, factor: float, where: Selection = EVERYWHERE) -> Intervention:
    """Multiplies a value by a factor; 0 removes it."""
    return Intervention(name, lambda value, point: value * factor, where)


def patch(name: str, value: Tensor, where: Selection = EVERYWHERE) -> Intervention:
    """Replaces a value, for example by one from another trace: of the same shape, or one vector for all positions."""
    return Intervention(name, lambda old, point: value.to(old).expand_as(old), where)


@contextmanager
def intervene(model: Network, *interventions: Intervention) -> Iterator[None]:
    """Runs the model under these interventions inside the block, in this thread only."""
    for intervention in interventions:
        intervention.taps(model.config)
    with attach(model, *interventions):
        yield


def _coordinates(point: HookPoint, value: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the sentence and the position of each row of a value, in shapes that broadcast with it."""
    layout = point.layout
    assert layout is not None
    sentences = layout.resolved_sequence_ids[layout.padded_index // layout.max_length]  # [T]
    if quantity(point.name).axes[0] == "sentence":
        return layout.pad(sentences)[:, None, :, None], layout.pad(layout.positions)[
            :, None, :, None
        ]  # [S, 1, queries, 1]
    shape = -1, *[1] * (value.dim() - 1)
    return sentences.view(shape), layout.positions.view(shape)  # [T, 1, ...]


def _selection_mask(point: HookPoint, value: Tensor, where: Selection) -> Tensor:
    """Returns a mask that is True where the intervention acts; broadcasts to the shape of `value`."""
    sentences, positions = _coordinates(point, value)
    mask = torch.ones_like(sentences, dtype=torch.bool)
    if where.sentence is not None:
        mask = mask & (sentences == where.sentence)
    if where.positions is not None:
        mask = mask & torch.isin(positions, torch.tensor(where.positions, device=value.device))
    if where.head is not None:
        axis = quantity(point.name).axes.index("head")
        heads = torch.arange(value.shape[axis], device=value.device) == where.head
        mask = mask & heads.view(-1, *[1] * (value.dim() - axis - 1))
    if where.unit is not None:
        _require_index(point.name, "unit", where.unit, value.shape[-1])
        mask = mask & (torch.arange(value.shape[-1], device=value.device) == where.unit)
    return mask


def _require_index(name: str, axis: str, index: int, size: int) -> None:
    if not 0 <= index < size:
        raise InterventionError(f"{name} has no {axis} {index}: its {axis}s are numbered from 0 to {size - 1}", axis)
