"""Interventions: ablate a head, force attention weights, scale an activation or patch in another one.

    with intervene(model, ablate_head("decoder.3.cross", head=5)):
        model(source, target)

An intervention changes the values at all taps that match a name, for selected sentences and positions. Several can be
combined and apply in the given order. On leaving the block, also by an exception, the model is unchanged.

An intervention that selects nothing would look like one without effect, so it is an error: at once if a sentence lacks a
position; when the block ends if a sentence never came up or, while decoding, a position.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from operator import index
from typing import ClassVar

import torch
from torch import Tensor

from seq2see.config import ModelConfig
from seq2see.errors import UserError
from seq2see.inspect.trace import matches, matching_taps
from seq2see.model.network import Network
from seq2see.model.taps import HookPoint, attach, attached_hooks, quantity, require_network

GivenValues = Tensor | Sequence[Tensor]  # for every selected sentence, or one for each sentence, such as trace[name]


@dataclass(frozen=True)
class Selection:
    """The part of a batch that an intervention acts on; None selects everything."""

    sentence: int | None = None
    positions: Sequence[int] | None = None  # negative: from the end of each sentence; of attention weights, the queries
    head: int | None = None
    unit: int | None = None  # index on the last axis of each vector

    def __post_init__(self) -> None:
        try:
            for name in ("sentence", "head", "unit"):
                value = getattr(self, name)
                object.__setattr__(self, name, None if value is None else index(value))
            if self.positions is not None:
                object.__setattr__(self, "positions", tuple(map(index, self.positions)))
        except TypeError as error:
            raise UserError(f"{self}: positions is a list of integers, such as [3]; the others are integers") from error
        if self.positions == ():
            raise UserError(f"{self} selects nothing: leave positions out to select all")


EVERYWHERE = Selection()


class InterventionError(UserError):
    """An intervention that a model has no place for."""

    def __init__(self, message: str, selection: str = "") -> None:
        super().__init__(message)
        self.selection = selection  # the part of the selection that does not exist: head, unit, sentence, or ""


@dataclass(frozen=True)
class Place:
    """Where a value of one sentence was computed: while decoding, of its next position only."""

    point: HookPoint
    index: int  # of the sentence in the pass
    sentence: int  # the caller's index
    rows: slice  # of the sentence in the value
    positions: list[int]  # of these rows
    keys: int  # number of keys, in a table of attention

    @property
    def first_key(self) -> int:
        """The position of the first key: in a step of decoding, a window hides earlier ones."""
        own = not self.point.is_whole and ".masked." in self.point.name
        return max(self.positions[-1] + 1 - self.keys, 0) if own else 0

    def part(self, value: Tensor) -> Tensor:
        """Returns the part of a value that belongs to the sentence: [n, ...], or a table [heads, queries, keys]."""
        if quantity(self.point.name).axes[0] == "sentence":
            return value[self.index, :, : len(self.positions), : self.keys]
        return value[self.rows]


Transform = Callable[[Tensor, Place], Tensor]  # of the value of one sentence, without padding


@dataclass(frozen=True)
class Intervention:
    """A transformation of the values whose names match a pattern."""

    pattern: str
    transform: Transform
    where: Selection
    records: ClassVar[bool] = False

    def on_value(self, point: HookPoint, value: Tensor) -> Tensor:
        if not matches(point.name, (self.pattern,)):
            return value
        result = value
        for place in _places(point, self.where.sentence):
            old = place.part(value)
            index = _index(self.where, place, old)
            if index is None:
                continue
            result = value.clone() if result is value else result
            new = self.transform(old, place)
            if not isinstance(new, Tensor):
                raise UserError(f"the transformation of {point.name} returned no tensor but {type(new).__name__}")
            place.part(result)[index] = _expand(point.name, new.to(old), old)[index]
        return result

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
    if where.head not in (None, head):
        raise UserError(f"ablate_head has head={head}, but its selection has head={where.head}: leave one out")
    where = replace(where, head=head)
    return Intervention(f"{attention}.heads", lambda value, place: torch.zeros_like(value), where)


def force_attention(attention: str, weights: GivenValues, where: Selection = EVERYWHERE) -> Intervention:
    """Replaces attention weights by given ones, which broadcast to the [heads, queries, keys] of a sentence."""
    return patch(f"{attention}.weights", weights, where)


def uniform_attention(attention: str, where: Selection = EVERYWHERE) -> Intervention:
    """Gives every key that a query may attend to the same weight."""

    def average(value: Tensor, place: Place) -> Tensor:
        visible = torch.ones_like(value[0])  # [queries, keys]
        if place.point.name.endswith(".masked.weights"):
            keys = place.first_key + torch.arange(place.keys, device=value.device)
            past = torch.tensor(place.positions, device=value.device)[:, None] - keys
            visible *= (past >= 0) & (past < (place.point.window or len(value) + past.max() + 1))
        return (visible / visible.sum(-1, keepdim=True)).expand_as(value)

    return Intervention(f"{attention}.weights", average, where)


def scale(name: str, factor: float, where: Selection = EVERYWHERE) -> Intervention:
    """Multiplies a value by a factor; 0 removes it."""
    return Intervention(name, lambda value, place: value * factor, where)


def patch(name: str, value: GivenValues, where: Selection = EVERYWHERE) -> Intervention:
    """Replaces a value, for example by one from another trace: of a sentence of the same length, such as
    `trace[name, 0]`; one vector for all positions; or a list with a value for each sentence, such as `trace[name]`.
    """
    values = value if isinstance(value, Sequence) else [value]
    if not all(isinstance(one, Tensor) for one in values):
        raise UserError(f"the value for {name} is no tensor: give one, or a list with one for each sentence")

    def replace_value(old: Tensor, place: Place) -> Tensor:
        if isinstance(value, Tensor):
            return _given(value, place, old)
        if place.sentence >= len(value):
            raise UserError(
                f"{len(value)} values for {name}, but none for sentence {place.sentence}: give one for each"
            )
        return _given(value[place.sentence], place, old)

    return Intervention(name, replace_value, where)


@contextmanager
def intervene(model: Network, *interventions: Intervention) -> Iterator[None]:
    """Runs the model under these interventions inside the block, in this thread only."""
    require_network(model)
    for intervention in interventions:
        if not isinstance(intervention, Intervention):
            what = f"an intervention such as ablate_head(…) is needed, not a {type(intervention).__name__}"
            raise UserError(f"{what}: give several one after the other, not as a list")
        intervention.taps(model.config)
    watched = [_Watched(intervention) for intervention in interventions]
    with attach(model, *watched):
        yield
    for hook in watched:
        hook.require_all()


def active_interventions(model: Network) -> tuple[Intervention, ...]:
    """Returns the interventions that a forward pass would run under in this thread, outermost block first."""
    hooks = [hook.intervention if isinstance(hook, _Watched) else hook for hook in attached_hooks(model)]
    return tuple(hook for hook in hooks if isinstance(hook, Intervention))


class _Watched:
    """An intervention in its block, and what came up: a step of decoding cannot tell which positions are still to come."""

    records = False

    def __init__(self, intervention: Intervention) -> None:
        self.intervention = intervention
        self.rows: set[tuple[int, int]] = set()  # sentence and position

    def on_value(self, point: HookPoint, value: Tensor) -> Tensor:
        where = self.intervention.where
        if matches(point.name, (self.intervention.pattern,)) and (where.sentence, where.positions) != (None, None):
            self.rows |= {(place.sentence, p) for place in _places(point) for p in place.positions}
        return self.intervention.on_value(point, value)

    def require_all(self) -> None:
        where, pattern = self.intervention.where, self.intervention.pattern
        seen = {position for sentence, position in self.rows if where.sentence in (None, sentence)}
        if self.rows and not seen:
            _require_index(pattern, "sentence", where.sentence or 0, max(self.rows)[0] + 1)
        missing = {position for position in where.positions or () if position >= 0} - seen
        if self.rows and missing:
            raise UserError(
                f"{pattern}: position {min(missing)} never came up while decoding: the last was {max(seen)}"
            )


def _places(point: HookPoint, only: int | None = None) -> Iterator[Place]:
    """Yields the sentences of a pass, or one of them."""
    layout = point.layout
    assert layout is not None
    starts, positions = layout.starts.tolist(), layout.positions.tolist()
    keys = layout.lengths.tolist() if point.keys is None else point.keys.lengths.tolist()
    for i, sentence in enumerate(layout.resolved_sequence_ids.tolist()):
        rows = slice(starts[i], starts[i + 1])
        if only in (None, sentence) and rows.start < rows.stop:
            yield Place(point, i, sentence, rows, positions[rows], keys[i])


def _index(where: Selection, place: Place, value: Tensor) -> tuple[slice | list[int], ...] | None:
    """Returns the index of the selected entries of one sentence's value; None if they belong to another step."""
    name, whole = place.point.name, place.point.is_whole
    axes = quantity(name).axes[-value.dim() :]
    index: list[slice | list[int]] = [slice(None)] * value.dim()
    if where.positions is not None:
        rows = _selected_rows(where.positions, place)
        if not rows:
            return None
        index[axes.index("query") if "query" in axes else 0] = rows
    if where.unit is not None:
        if "key" in axes and not whole and ".cross." not in name and where.unit >= place.keys:
            return None  # this key is still to come
        _require_index(name, "unit", where.unit, value.shape[-1])
        index[-1] = slice(where.unit, where.unit + 1)
    if where.head is not None:
        axis = axes.index("head")
        _require_index(name, "head", where.head, value.shape[axis])
        index[axis] = slice(where.head, where.head + 1)
    return tuple(index)


def _selected_rows(wanted: Sequence[int], place: Place) -> list[int]:
    """Returns the rows of a sentence that are at these positions."""
    name, count = place.point.name, len(place.positions)
    if not place.point.is_whole:
        if min(wanted) < 0:
            raise InterventionError(
                f"{name} is computed position by position, and the last position is not known yet: count from 0, or use "
                "explain with a target, or rerun"
            )
        return [row for row, position in enumerate(place.positions) if position in wanted]
    for position in wanted:
        if not -count <= position < count:
            raise InterventionError(
                f"{name} has no position {position} in sentence {place.sentence}: its positions are numbered from 0 to "
                f"{count - 1}, or from the end −1 to −{count}"
            )
    return list(wanted)


def _given(given: Tensor, place: Place, old: Tensor) -> Tensor:
    """Returns given values for a sentence; while decoding, those of the step's position and of the keys so far."""
    name, given = place.point.name, given.to(old)
    table = "key" in quantity(name).axes
    axis = -2 if table else -old.dim()
    if not place.point.is_whole and given.dim() >= -axis and given.shape[axis] > 1:
        count, last = given.shape[axis], max(place.positions)
        if last >= count:
            needed = f"has {count} positions, but position {last} is needed, because the output goes on"
            raise UserError(f"the value for {name} {needed}: use explain with a target, or rerun")
        given = given.index_select(axis, torch.tensor(place.positions, device=given.device).clamp(min=0))
    if table and given.dim() and given.shape[-1] > 1:  # keys that there are not must have no weight
        kept = given[..., place.first_key : place.first_key + place.keys]
        if given.count_nonzero() != kept.count_nonzero():
            raise UserError(f"the value for {name} has {given.shape[-1]} keys, but there are {place.keys}")
        given = kept
    return _expand(name, given, old)


def _expand(name: str, new: Tensor, old: Tensor) -> Tensor:
    try:
        return new.expand_as(old)
    except RuntimeError as error:
        shapes = (" × ".join(map(str, one.shape)) or "a scalar" for one in (new, old))
        raise UserError(
            "the value for {} is {}, but {} is needed, or what broadcasts to it".format(name, *shapes)
        ) from error


def _require_index(name: str, axis: str, index: int, size: int) -> None:
    if not 0 <= index < size:
        raise InterventionError(f"{name} has no {axis} {index}: its {axis}s are numbered from 0 to {size - 1}", axis)
