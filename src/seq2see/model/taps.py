"""Taps: named points in the forward pass where hooks observe or modify an intermediate value.

Every named quantity passes through a tap as it is computed: `q = taps("queries", q)`. By default a tap does nothing and
compiles to nothing. With hooks, each tap passes its value to them under a full name such as `decoder.3.cross.queries`: a
trace stores it, an intervention may replace it. Observing and intervening are one mechanism. Taps are an argument of the
forward pass and hooks are attached per thread, so concurrent calls never share them.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from seq2see.data.layout import Layout
from seq2see.errors import UserError


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
    "patches": Quantity("pixels of each patch, from −1 (black) to 1", ("token", "pixel")),
    "mel_frames": Quantity("log-mel spectrogram: two frames of 10 ms per token", ("token", "mel band")),
    "convolved": Quantity("GELU(convolution of frames t − 1, t, t + 1)", ("token", "width of two frames")),
    "embedded": Quantity("E[token], × √width if the model scales embeddings", _VECTOR),
    "segments": Quantity("segment embedding of each token", _VECTOR),
    "positions": Quantity("position embedding of each token", _VECTOR),
    "input": Quantity("embedded + positions", _VECTOR),
    "queries": Quantity("x · W_Q: what a token looks for", _QUERY),
    "keys": Quantity("x · W_K: what a token is matched by", _KEY),
    "values": Quantity("x · W_V: what a token contributes", _KEY),
    "normed_queries": Quantity("queries / √(mean of squares + ε) · γ, in each head", _QUERY),
    "normed_keys": Quantity("keys / √(mean of squares + ε) · γ, in each head", _KEY),
    "rotated_queries": Quantity("queries, rotated by an angle proportional to the position", _QUERY),
    "rotated_keys": Quantity("keys, rotated likewise: scores depend on relative positions", _KEY),
    "scores": Quantity("Q · Kᵀ: how well query and key match", _TABLE, derived=True),
    "relative_bias": Quantity("learned bias for each distance between query and key", _TABLE),
    "scaled": Quantity("scores / √head width", _TABLE, derived=True),
    "capped": Quantity("cap · tanh(scaled / cap)", _TABLE, derived=True),
    "biased": Quantity("scaled + relative bias", _TABLE, derived=True),
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
    "gate": Quantity("x · W_gate: the gate of SwiGLU or GeGLU", ("token", "inner width")),
    "post_activation": Quantity("activation(pre_activation)", ("token", "inner width"), derived=True),
    "output": Quantity("post_activation · W₂ + b₂", _VECTOR),
    "states": Quantity("hidden state of a recurrent layer after each token", _VECTOR),
    "vectors": Quantity("final vector of each token", _VECTOR),
    "pooled": Quantity("tanh(first vector · W + b): one vector per sequence", ("sequence", "width")),
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
    rows: Layout | None  # of the rows; in attention, of the queries
    keys: Layout | None  # of the keys, in attention
    modified: bool  # whether an intervention has changed a value in this part of the model
    window: int = 0  # latest keys that a query sees, in the attention of a local layer; 0: all

    @property
    def layout(self) -> Layout | None:
        """The layout of the first axis, if that axis is tokens."""
        return self.keys if quantity(self.name).axes[0] == "key token" else self.rows

    @property
    def is_whole(self) -> bool:
        """Whether the rows are whole sentences: the source always, the output unless it is computed token by token."""
        of_source = self.name.startswith("encoder.") or self.name.endswith((".cross.keys", ".cross.values"))
        return of_source or self.rows is None or self.rows.sequence_ids is None


class Hook(Protocol):
    """Receives every value of a forward pass: a recorder (`Trace`) or an intervention."""

    @property
    def records(self) -> bool:
        """Whether it only records. Recorders run after interventions, so that they see the values the model used."""

    def on_value(self, point: HookPoint, value: Tensor) -> Tensor: ...


class Taps:
    """The default: no hooks; returns every value unchanged."""

    active = False

    def at(self, name: str, rows: Layout | None = None, keys: Layout | None = None, window: int = 0) -> "Taps":
        """Returns the taps of a submodule."""
        return self

    def at_stack(self, rows: Layout, keys: Layout) -> "Taps":
        """Returns the taps of the encoder or decoder around this submodule."""
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
    """Passes every value to the hooks, under its full name."""

    active = True

    def __init__(
        self, *hooks: Hook, prefix: str = "", rows: Layout | None = None, keys: Layout | None = None, window: int = 0
    ) -> None:
        self.hooks = sorted(hooks, key=lambda hook: hook.records)
        self.prefix, self.rows, self.keys, self.window = prefix, rows, keys, window
        self.modified = False

    def at(self, name: str, rows: Layout | None = None, keys: Layout | None = None, window: int = 0) -> "ActiveTaps":
        prefix = f"{self.prefix}.{name}" if self.prefix and name else self.prefix or name
        return ActiveTaps(*self.hooks, prefix=prefix, rows=rows or self.rows, keys=keys or self.keys, window=window)

    def at_stack(self, rows: Layout, keys: Layout) -> "ActiveTaps":
        return ActiveTaps(*self.hooks, prefix=self.prefix.partition(".")[0], rows=rows, keys=keys)

    def interventions_only(self) -> "ActiveTaps":
        return self._with([hook for hook in self.hooks if not hook.records])

    def recorders_only(self) -> "ActiveTaps":
        taps = self._with([hook for hook in self.hooks if hook.records])
        taps.modified = True  # possibly, so nothing may be derived
        return taps

    def _with(self, hooks: list[Hook]) -> "ActiveTaps":
        return ActiveTaps(*hooks, prefix=self.prefix, rows=self.rows, keys=self.keys, window=self.window)

    def __call__(self, name: str, value: Tensor) -> Tensor:
        full_name = f"{self.prefix}.{name}" if self.prefix else name
        for hook in self.hooks:
            result = hook.on_value(HookPoint(full_name, self.rows, self.keys, self.modified, self.window), value)
            self.modified |= result is not value
            value = result
        return value


COMPILED_REMEDY = "use the model as it was before torch.compile, or load it again"
_ATTACHED: ContextVar[tuple[tuple[nn.Module, Hook], ...]] = ContextVar("attached hooks", default=())


def require_network(model: nn.Module) -> None:
    """Says so if hooks are attached to a loaded model instead of to its network."""
    if not isinstance(model, nn.Module):
        raise UserError(f"a trace and interventions take a network, not a {type(model).__name__}: use model.network")


@contextmanager
def attach(model: nn.Module, *hooks: Hook) -> Iterator[None]:
    """Attaches hooks to every forward pass of the model inside the block, in this thread (or asyncio task) only.

    This includes decoding. The model itself is unchanged, so other threads may use it at the same time. Blocks can be
    nested; leaving one, also by an exception, detaches its hooks. A compiled model is refused: it would not call them.
    """
    if hooks and _is_compiled(model):
        raise UserError(f"cannot trace or change the values of a compiled model: {COMPILED_REMEDY}")
    entries = tuple((model, hook) for hook in hooks)
    _ATTACHED.set(_ATTACHED.get() + entries)
    try:
        yield
    finally:  # not `reset`: a generator that holds the block open may be closed by another thread
        _ATTACHED.set(tuple(entry for entry in _ATTACHED.get() if not any(entry is added for added in entries)))


def _is_compiled(model: nn.Module) -> bool:
    """Whether torch.compile(module) or module.compile() was called on the model or a part of it."""
    return any("_orig_mod" in part._modules or part._compiled_call_impl is not None for part in model.modules())


def attached_hooks(model: nn.Module) -> list[Hook]:
    """Returns the hooks attached to the model in this thread, outermost block first."""
    return [hook for owner, hook in _ATTACHED.get() if owner is model]


def with_attached(model: nn.Module, taps: Taps = NO_TAPS) -> Taps:
    """Returns the taps with the hooks attached to the model in this thread."""
    # The first is a constant for the compiler, which cannot read a context variable.
    if torch.compiler.is_compiling() or not _ATTACHED.get():
        return taps
    attached = attached_hooks(model)
    if not attached:
        return taps
    return ActiveTaps(*attached, *(taps.hooks if isinstance(taps, ActiveTaps) else []))
