"""Reaching into the model: a head switched off, weights forced, a vector scaled or put in the place of another.

    with intervene(model, without("decoder.3.cross", head=5)):
        model(source, target)

An intervention is a change to whatever passes through the taps of a name, at chosen sentences and positions. Any number
of them act together, in the order given; on leaving the block, also by an exception, the model is as it was.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from seq2see.inspect.trace import matches, require_match
from seq2see.model.attention import visible
from seq2see.model.network import Network
from seq2see.model.taps import Site, listening, quantity


@dataclass(frozen=True)
class Where:
    """The part of a batch that an intervention acts on; what is left out is unrestricted."""

    sentence: int | None = None
    positions: Sequence[int] | None = None  # in the sentence, from 0; in a table of weights, of the queries
    head: int | None = None
    unit: int | None = None  # one number of each vector: the last axis


EVERYWHERE = Where()


@dataclass(frozen=True)
class Intervention:
    """A change to the values whose names match."""

    names: str
    change: Callable[[Tensor, Site], Tensor]
    where: Where
    records: ClassVar[bool] = False

    def hear(self, site: Site, value: Tensor) -> Tensor:
        if not matches(site.name, (self.names,)):
            return value
        return torch.where(_chosen(site, value, self.where), self.change(value, site).to(value), value)


def without(attention: str, head: int, where: Where = EVERYWHERE) -> Intervention:
    """One head of an attention such as `decoder.3.cross` adds nothing."""
    where = Where(where.sentence, where.positions, head)
    return Intervention(f"{attention}.heads", lambda value, site: torch.zeros_like(value), where)


def attending(attention: str, weights: Tensor, where: Where = EVERYWHERE) -> Intervention:
    """These attention weights, or any that broadcast to [sentences, heads, queries, keys], instead of the model's own."""

    def put(value: Tensor, site: Site) -> Tensor:
        assert site.rows is not None
        queries = site.rows
        table = weights.view(*[1] * (4 - weights.dim()), *weights.shape).to(value)
        sentences = queries.sentences.view(-1, 1, 1, 1)
        places = queries.pad(queries.positions)[:, None, :, None]
        heads, columns = torch.arange(value.shape[1]).view(1, -1, 1, 1), torch.arange(value.shape[3])
        # A single entry on an axis serves for all; a whole axis is asked at the places that this pass computes.
        asked = [
            index.to(value.device) if size > 1 else index.new_zeros(()).to(value.device)
            for size, index in zip(table.shape, (sentences, heads, places, columns), strict=True)
        ]
        return table[tuple(asked)].expand_as(value)

    return Intervention(f"{attention}.weights", put, where)


def attending_uniformly(attention: str, where: Where = EVERYWHERE) -> Intervention:
    """The same weight for every key that a query may look at."""

    def spread(value: Tensor, site: Site) -> Tensor:
        assert site.rows is not None and site.keys is not None
        looks = visible(site.rows, site.keys, causal=site.name.endswith(".masked.weights")).to(value)
        return (looks / looks.sum(-1, keepdim=True)).expand_as(value)

    return Intervention(f"{attention}.weights", spread, where)


def scaling(name: str, factor: float, where: Where = EVERYWHERE) -> Intervention:
    """A quantity times a factor; by 0 it is switched off."""
    return Intervention(name, lambda value, site: value * factor, where)


def patching(name: str, value: Tensor, where: Where = EVERYWHERE) -> Intervention:
    """A value from another trace: of the same shape, or a single vector for all chosen positions."""
    return Intervention(name, lambda old, site: value.to(old).expand_as(old), where)


@contextmanager
def intervene(model: Network, *interventions: Intervention) -> Iterator[None]:
    """Inside the block, and in this thread only, the model runs under these interventions."""
    for intervention in interventions:
        require_match(intervention.names, model.config)
    with listening(model, *interventions):
        yield


def _chosen(site: Site, value: Tensor, where: Where) -> Tensor:
    """True at the places of `value` that are meant; broadcasts to its shape."""
    axes = quantity(site.name).axes
    layout = site.layout
    assert layout is not None
    sentences, places = layout.sentences[layout.slots // layout.longest], layout.positions  # [T] each
    if axes[0] == "sentence":
        sentences, places = layout.pad(sentences), layout.pad(places)  # [S, L]
    chosen = torch.ones_like(sentences + places, dtype=torch.bool)
    if where.sentence is not None:
        chosen = chosen & (sentences == where.sentence)
    if where.positions is not None:
        chosen = chosen & torch.isin(places, torch.tensor(where.positions, device=value.device))
    if axes[0] == "sentence":
        chosen = chosen[:, None, :, None]  # [S, 1, queries, 1]
    else:
        chosen = chosen.view(-1, *[1] * (value.dim() - 1))  # [T, 1, ...]
    if where.head is not None:
        axis = axes.index("head")
        heads = torch.arange(value.shape[axis], device=value.device) == where.head
        chosen = chosen & heads.view([-1 if i == axis else 1 for i in range(value.dim())])
    if where.unit is not None:
        chosen = chosen & (torch.arange(value.shape[-1], device=value.device) == where.unit)
    return chosen
