"""Taps: where one can look into the model, and reach in.

Every quantity that the lecture notes name passes through a tap on its way: `q = taps("queries", q)`. By default a tap
does nothing and compiles to nothing. With listeners, each tap hands its value on under a full name such as
`decoder.3.cross.queries`; a trace keeps it, an intervention may give another one back. Intervening is thus the same
mechanism as looking, and since taps are an argument of the forward pass, two requests never share one.
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
    """What a tap shows: its formula in words, its axes, and whether a trace can work it out from others."""

    formula: str
    axes: tuple[str, ...]
    derived: bool = False


_QUERY = ("token", "head", "head width")
_KEY = ("key token", "head", "head width")
_TABLE = ("sentence", "head", "query", "key")
_VECTOR = ("token", "width")

QUANTITIES: dict[str, Quantity] = {
    "tokens": Quantity("the token ids that enter", ("token",)),
    "embedded": Quantity("E[token], × √width where the model scales", _VECTOR),
    "segments": Quantity("the vector of each token's segment", _VECTOR),
    "positions": Quantity("the vector of each token's place", _VECTOR),
    "input": Quantity("embedded + positions", _VECTOR),
    "queries": Quantity("x · W_Q: what a token looks for", _QUERY),
    "keys": Quantity("x · W_K: what it can be found by", _KEY),
    "values": Quantity("x · W_V: what it gives when found", _KEY),
    "rotated_queries": Quantity("queries, turned by an angle that grows with the position", _QUERY),
    "rotated_keys": Quantity("keys, turned likewise: scores then depend on distances", _KEY),
    "scores": Quantity("Q · Kᵀ: how well query and key fit", _TABLE, derived=True),
    "scaled": Quantity("scores / √head width", _TABLE, derived=True),
    "masked": Quantity("scaled, −∞ where none may look", _TABLE, derived=True),
    "energies": Quantity("vᵀ tanh(query + key): how well state and word fit (2015)", _TABLE),
    "weights": Quantity("softmax over the keys: rows add to 1", _TABLE, derived=True),
    "heads": Quantity("weights · V: each head's finding", _QUERY, derived=True),
    "concatenated": Quantity("the heads side by side", ("token", "heads × head width"), derived=True),
    "projected": Quantity("concatenated · W_O", _VECTOR),
    "sum": Quantity("x + what the sub-layer made of it", _VECTOR),
    "norm.input": Quantity("what is to be normed", _VECTOR),
    "norm.mean": Quantity("mean over the width", ("token", "1"), derived=True),
    "norm.variance": Quantity("variance over the width", ("token", "1"), derived=True),
    "norm.mean_square": Quantity("mean of the squares over the width", ("token", "1"), derived=True),
    "norm.output": Quantity("(x − mean) / √(variance + ε) · γ + β", _VECTOR),
    "before": Quantity("x · W₁ + b₁", ("token", "inner width")),
    "gate": Quantity("x · W_gate: SwiGLU's second half", ("token", "inner width")),
    "after": Quantity("activation(before)", ("token", "inner width"), derived=True),
    "output": Quantity("after · W₂ + b₂", _VECTOR),
    "states": Quantity("what a recurrent layer has made of the tokens read so far", _VECTOR),
    "vectors": Quantity("the final vector of each token", _VECTOR),
    "logits": Quantity("vectors · Eᵀ: what fits next, and how well", ("token", "vocabulary")),
    "probabilities": Quantity("softmax of logits over the vocabulary", ("token", "vocabulary"), derived=True),
}


def quantity(name: str) -> Quantity:
    """What a full name such as `decoder.3.cross.weights` or `decoder.final_norm.mean` stands for."""
    place, _, what = name.rpartition(".")
    return QUANTITIES[f"norm.{what}" if place.endswith("norm") else what]


@dataclass(frozen=True)
class Site:
    """The place of one value in the model and in the batch."""

    name: str
    rows: Layout | None  # whose tokens the rows are
    keys: Layout | None  # whose tokens the keys are, in an attention
    touched: bool  # an intervention has already changed something in this part of the model

    @property
    def layout(self) -> Layout | None:
        """The layout of the first axis where that axis is tokens."""
        return self.keys if quantity(self.name).axes[0] == "key token" else self.rows


class Listener(Protocol):
    @property
    def records(self) -> bool:
        """Listeners that record come after those that intervene, so that they see what the model used."""

    def hear(self, site: Site, value: Tensor) -> Tensor: ...


class Taps:
    """The default: hands every value on untouched, and knows that nobody listens."""

    listening = False

    def at(self, place: str, rows: Layout | None = None, keys: Layout | None = None) -> "Taps":
        """The taps of a part of the model."""
        return self

    def reaching(self) -> "Taps":
        """Only those that intervene: for one step of many, whose results are told to the others when all are there."""
        return self

    def recording(self) -> "Taps":
        """Only those that record, for what was made under `reaching`."""
        return self

    def __call__(self, name: str, value: Tensor) -> Tensor:
        return value


NO_TAPS = Taps()


class OpenTaps(Taps):
    """Taps with listeners: knows the full name of each place."""

    listening = True

    def __init__(
        self, *listeners: Listener, place: str = "", rows: Layout | None = None, keys: Layout | None = None
    ) -> None:
        self.listeners = sorted(listeners, key=lambda listener: listener.records)
        self.place, self.rows, self.keys = place, rows, keys
        self.touched = False

    def at(self, place: str, rows: Layout | None = None, keys: Layout | None = None) -> "OpenTaps":
        place = f"{self.place}.{place}" if self.place and place else self.place or place
        return OpenTaps(*self.listeners, place=place, rows=rows or self.rows, keys=keys or self.keys)

    def reaching(self) -> "OpenTaps":
        return self._only([listener for listener in self.listeners if not listener.records])

    def recording(self) -> "OpenTaps":
        only = self._only([listener for listener in self.listeners if listener.records])
        only.touched = True  # perhaps, and then nothing may be derived
        return only

    def _only(self, listeners: list[Listener]) -> "OpenTaps":
        return OpenTaps(*listeners, place=self.place, rows=self.rows, keys=self.keys)

    def __call__(self, name: str, value: Tensor) -> Tensor:
        full = f"{self.place}.{name}" if self.place else name
        for listener in self.listeners:
            heard = listener.hear(Site(full, self.rows, self.keys, self.touched), value)
            self.touched |= heard is not value
            value = heard
        return value


@contextmanager
def listening(model: nn.Module, *listeners: Listener) -> Iterator[None]:
    """Inside the block, and in this thread only, every forward pass of the model goes through these listeners.

    So does decoding, which asks for `model.taps()`. Both are shadowed rather than switched, so that outside a block there
    is nothing to check and nothing to compile. Blocks nest; leaving one, also by an exception, restores what was there.
    """
    outer, owner = model.forward, threading.get_ident()
    outer_taps: Callable[[], Taps] = getattr(model, "taps", lambda: NO_TAPS)

    def forward(*inputs: Any, taps: Taps = NO_TAPS) -> Any:
        if threading.get_ident() != owner:
            return outer(*inputs, taps=taps)
        inner = taps.listeners if isinstance(taps, OpenTaps) else []
        return outer(*inputs, taps=OpenTaps(*listeners, *inner))

    def taps() -> Taps:
        others = outer_taps()
        if threading.get_ident() != owner:
            return others
        return OpenTaps(*(others.listeners if isinstance(others, OpenTaps) else []), *listeners)

    own = model.__dict__
    shadowed: dict[str, Any] = {name: own[name] for name in ("forward", "taps") if name in own}
    own.update(forward=forward, taps=taps)
    try:
        yield
    finally:
        del own["forward"], own["taps"]
        own.update(shadowed)
