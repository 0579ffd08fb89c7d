"""Taps: hooks that observe and modify every intermediate value of a forward pass.

Every named quantity passes through a tap as it is computed: `q = taps("queries", q)`. By default a tap does nothing and
compiles to nothing. With listeners, each tap passes its value on under a full name such as `decoder.3.cross.queries`; a
trace stores it, an intervention may replace it. Observing and intervening are thus one mechanism, and since taps are an
argument of the forward pass, concurrent requests never share them.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor, nn

from seq2see.layout import Layout


@dataclass(frozen=True)
class Quantity:
    """Describes a tapped value: its formula, its axes, and whether a trace can derive it from other values."""

    formula: str
    axes: tuple[str, ...]
    derived: bool = False


_QUERY = ("token", "head", "head width")
_KEY = ("key token", "head", "head width")
_TABLE = ("sentence", "head", "query", "key")
_VECTOR = ("token", "width")

QUANTITIES: dict[str, Quantity] = {
    "tokens": Quantity("input token ids", ("token",)),
    "embedded": Quantity("E[token], × √width if the model scales embeddings", _VECTOR),
    "segments": Quantity("segment embedding of each token", _VECTOR),
    "positions": Quantity("position embedding of each token", _VECTOR),
    "input": Quantity("embedded + positions", _VECTOR),
    "queries": Quantity("x · W_Q: what a token looks for", _QUERY),
    "keys": Quantity("x · W_K: what a token is matched by", _KEY),
    "values": Quantity("x · W_V: what a token contributes", _KEY),
    "rotated_queries": Quantity("queries, rotated by an angle proportional to the position", _QUERY),
    "rotated_keys": Quantity("keys, rotated likewise: scores depend on relative positions", _KEY),
    "scores": Quantity("Q · Kᵀ: how well query and key match", _TABLE, derived=True),
    "scaled": Quantity("scores / √head width", _TABLE, derived=True),
    "masked": Quantity("scaled, −∞ where attention is not allowed", _TABLE, derived=True),
    "energies": Quantity("vᵀ tanh(query + key): how well state and token match (2015)", _TABLE),
    "weights": Quantity("softmax over the keys: each row sums to 1", _TABLE, derived=True),
    "heads": Quantity("weights · V: the output of each head", _QUERY, derived=True),
    "concatenated": Quantity("the heads, concatenated", ("token", "heads × head width"), derived=True),
    "projected": Quantity("concatenated · W_O", _VECTOR),
    "sum": Quantity("x + output of the sub-layer", _VECTOR),
    "norm.input": Quantity("input of the norm", _VECTOR),
    "norm.mean": Quantity("mean over the width", ("token", "1"), derived=True),
    "norm.variance": Quantity("variance over the width", ("token", "1"), derived=True),
    "norm.mean_square": Quantity("mean of the squares over the width", ("token", "1"), derived=True),
    "norm.output": Quantity("(x − mean) / √(variance + ε) · γ + β", _VECTOR),
    "pre_activation": Quantity("x · W₁ + b₁", ("token", "inner width")),
    "gate": Quantity("x · W_gate: the gate of SwiGLU", ("token", "inner width")),
    "post_activation": Quantity("activation(pre_activation)", ("token", "inner width"), derived=True),
    "output": Quantity("post_activation · W₂ + b₂", _VECTOR),
    "states": Quantity("hidden state of a recurrent layer after each token", _VECTOR),
    "vectors": Quantity("final vector of each token", _VECTOR),
    "logits": Quantity("vectors · Eᵀ: a score for every next token", ("token", "vocabulary")),
    "probabilities": Quantity("softmax of logits over the vocabulary", ("token", "vocabulary"), derived=True),
}


def quantity(name: str) -> Quantity:
    """Looks up a full name such as `decoder.3.cross.weights` or `decoder.final_norm.mean`."""
    prefix, _, last = name.rpartition(".")
    return QUANTITIES[f"norm.{last}" if prefix.endswith("norm") else last]


@dataclass(frozen=True)
class HookPoint:
    """Where a value was computed: its name in the model and its place in the batch."""

    name: str
    rows: Layout | None  # the tokens of the rows
    keys: Layout | None  # the tokens of the keys, in attention
    modified: bool  # whether an intervention has changed a value in this part of the model

    @property
    def layout(self) -> Layout | None:
        """The layout of the first axis, if that axis is tokens."""
        return self.keys if quantity(self.name).axes[0] == "key token" else self.rows


class Listener(Protocol):
    @property
    def records(self) -> bool:
        """Recorders run after interventions, so that they see the values the model used."""

    def on_value(self, point: HookPoint, value: Tensor) -> Tensor: ...


class Taps:
    """The default: no listeners; returns every value unchanged."""

    active = False

    def at(self, name: str, rows: Layout | None = None, keys: Layout | None = None) -> "Taps":
        """Returns the taps of a submodule."""
        return self

    def interventions_only(self) -> "Taps":
        """Drops recorders: for one step of a loop, whose results are recorded together at the end."""
        return self

    def recorders_only(self) -> "Taps":
        """Drops interventions: for values computed under `interventions_only`."""
        return self

    def __call__(self, name: str, value: Tensor) -> Tensor:
        return value


NO_TAPS = Taps()


class ActiveTaps(Taps):
    """Taps with listeners: each value is passed on under its full name."""

    active = True

    def __init__(
        self, *listeners: Listener, prefix: str = "", rows: Layout | None = None, keys: Layout | None = None
    ) -> None:
        self.listeners = sorted(listeners, key=lambda listener: listener.records)
        self.prefix, self.rows, self.keys = prefix, rows, keys
        self.modified = False

    def at(self, name: str, rows: Layout | None = None, keys: Layout | None = None) -> "ActiveTaps":
        prefix = f"{self.prefix}.{name}" if self.prefix and name else self.prefix or name
        return ActiveTaps(*self.listeners, prefix=prefix, rows=rows or self.rows, keys=keys or self.keys)

    def interventions_only(self) -> "ActiveTaps":
        return self._with([listener for listener in self.listeners if not listener.records])

    def recorders_only(self) -> "ActiveTaps":
        taps = self._with([listener for listener in self.listeners if listener.records])
        taps.modified = True  # possibly, so nothing may be derived
        return taps

    def _with(self, listeners: list[Listener]) -> "ActiveTaps":
        return ActiveTaps(*listeners, prefix=self.prefix, rows=self.rows, keys=self.keys)

    def __call__(self, name: str, value: Tensor) -> Tensor:
        full_name = f"{self.prefix}.{name}" if self.prefix else name
        for listener in self.listeners:
            result = listener.on_value(HookPoint(full_name, self.rows, self.keys, self.modified), value)
            self.modified |= result is not value
            value = result
        return value


@contextmanager
def attach(model: nn.Module, *listeners: Listener) -> Iterator[None]:
    """Attaches listeners to every forward pass of the model inside the block, in this thread only.

    This includes decoding, which calls `model.taps()`. Both methods are shadowed on the instance, so outside a block there
    is nothing to check and nothing to compile. Blocks nest; leaving one, also by an exception, restores the previous state.
    """
    outer_forward, thread = model.forward, threading.get_ident()
    outer_taps: Callable[[], Taps] = getattr(model, "taps", lambda: NO_TAPS)

    def forward(*inputs: Any, taps: Taps = NO_TAPS) -> Any:
        if threading.get_ident() != thread:
            return outer_forward(*inputs, taps=taps)
        inner = taps.listeners if isinstance(taps, ActiveTaps) else []
        return outer_forward(*inputs, taps=ActiveTaps(*listeners, *inner))

    def taps() -> Taps:
        others = outer_taps()
        if threading.get_ident() != thread:
            return others
        return ActiveTaps(*(others.listeners if isinstance(others, ActiveTaps) else []), *listeners)

    own = model.__dict__
    shadowed: dict[str, Any] = {name: own[name] for name in ("forward", "taps") if name in own}
    own.update(forward=forward, taps=taps)
    try:
        yield
    finally:
        del own["forward"], own["taps"]
        own.update(shadowed)
