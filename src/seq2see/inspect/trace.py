"""A trace: every number of one forward pass, by name.

    with trace(model) as t:
        model(source, target)
    t["decoder.3.cross.weights", 0]         # the first sentence's, [heads, its target tokens, its source tokens]

A trace keeps what cannot be worked out again (queries, keys, values, sums …) and derives the rest when it is asked for
(scores, weights, each head's output …), so that a thousand tokens fit in memory. It needs no model for that, also after
being saved and loaded. Where an intervention has changed a quantity that would be derived, the changed one is kept.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Self

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from seq2see.config import ModelConfig
from seq2see.errors import UserError, nearest
from seq2see.files import written_whole
from seq2see.layout import Layout
from seq2see.model.attention import attend_openly
from seq2see.model.layers import ACTIVATIONS
from seq2see.model.network import Network
from seq2see.model.taps import OpenTaps, Quantity, Site, listening, quantity

FORMAT = "seq2see trace 1"
ATTENTION = ("scores", "scaled", "masked", "weights", "heads", "concatenated")


class Trace:
    """The values that passed through the taps in the last forward pass."""

    records = True

    def __init__(self, activation: str, only: Sequence[str] = ()) -> None:
        self.activation = activation
        self.only = tuple(only)
        self.layouts: dict[str, Layout] = {}  # of the encoder's and of the decoder's tokens
        self._names: list[str] = []  # all that can be asked for, in the order of the computation
        self._kept: dict[str, Tensor] = {}
        self._recent: tuple[str, dict[str, Tensor]] = ("", {})  # the attention derived last, since one asks for several

    def hear(self, site: Site, value: Tensor) -> Tensor:
        if site.name.endswith(".tokens"):
            self._begin(site)
        if matches(site.name, self.only) if self.only else True:
            if site.name not in self._names:
                self._names.append(site.name)
            if self.only or site.touched or not quantity(site.name).derived:
                self._kept[site.name] = value.detach()
        return value

    def _begin(self, site: Site) -> None:
        """The first tap of a stack: a new pass starts with the first stack."""
        stack = site.name.removesuffix(".tokens")
        if stack in self.layouts:
            self.layouts, self._names, self._kept = {}, [], {}
        assert site.rows is not None
        self.layouts[stack] = site.rows
        self._recent = ("", {})

    def names(self, pattern: str = "*") -> list[str]:
        """Everything that can be asked for, in the order in which it was computed."""
        names = [*self._names, *(["probabilities"] if "logits" in self._kept else [])]
        return names if pattern == "*" else [name for name in names if matches(name, (pattern,))]

    def quantity(self, name: str) -> Quantity:
        """What a name stands for: its formula in words and its axes."""
        found = quantity(name)
        if name.endswith(".after") and self.activation == "swiglu":
            return replace(found, formula="silu(gate) · before")
        if name.endswith(".values") and name.replace(".values", ".energies") in self:  # the attention of 2015
            return replace(found, formula="x itself: what it gives when found")
        return found

    def __contains__(self, name: str) -> bool:
        return name in self.names()

    def __getitem__(self, key: str | tuple[str, int]) -> Tensor:
        """A quantity of the whole batch, or of one sentence alone."""
        if isinstance(key, tuple):
            name, sentence = key
            return self._of_sentence(name, self[name], sentence)
        if key in self._kept:
            return self._kept[key]
        if key not in self.names():
            raise KeyError(f'"{key}" is not in this trace: {nearest(key, self.names())}')
        return self._derive(key)

    def _derive(self, name: str) -> Tensor:
        place, _, what = name.rpartition(".")
        if what in ATTENTION:
            if self._recent[0] != place:
                self._recent = (place, self._attend_again(place))
            return self._recent[1][name]
        if what == "after":
            before = self._kept[f"{place}.before"]
            if f"{place}.gate" in self._kept:
                return ACTIVATIONS[self.activation](self._kept[f"{place}.gate"]) * before
            return ACTIVATIONS[self.activation](before)
        if what == "probabilities":
            return self._kept["logits"].softmax(-1)
        x = self._kept[f"{place}.input"]
        if what == "mean":
            return x.mean(-1, keepdim=True)
        if what == "variance":
            return x.var(-1, correction=0, keepdim=True)
        return x.square().mean(-1, keepdim=True)  # mean_square

    def _attend_again(self, place: str) -> dict[str, Tensor]:
        q, k = (
            self._kept.get(f"{place}.rotated_{name}", self._kept[f"{place}.{name}"]) for name in ("queries", "keys")
        )
        rows, keys = self._rows(place), self._keys(place)
        again = Trace(self.activation, only=[f"{place}.*"])
        taps = OpenTaps(again, place=place, rows=rows, keys=keys)
        causal = place.endswith(".masked")
        heads = attend_openly(q, k, self._kept[f"{place}.values"], rows, keys, causal, taps=taps)
        return {**again._kept, f"{place}.concatenated": heads.flatten(1)}

    def _rows(self, name: str) -> Layout:
        return self.layouts.get(name.partition(".")[0]) or list(self.layouts.values())[-1]

    def _keys(self, name: str) -> Layout:
        return self.layouts["encoder"] if ".cross" in name else self._rows(name)

    def _of_sentence(self, name: str, value: Tensor, sentence: int) -> Tensor:
        rows, keys = self._rows(name), self._keys(name)
        if not 0 <= sentence < len(rows):
            raise IndexError(f"sentence {sentence} of a trace of {len(rows)} (from 0)")
        axes = quantity(name).axes
        if axes[0] == "sentence":
            return value[sentence, :, : int(rows.lengths[sentence]), : int(keys.lengths[sentence])]
        return value[(keys if axes[0] == "key token" else rows).slice(sentence)]

    def _repr_html_(self) -> str:
        from seq2see.inspect.notebook import trace_html

        return trace_html(self)

    def save(self, path: Path | str) -> None:
        """One safetensors file. Equal tensors under two names (a sum, and the input of the norm after it) are stored once."""
        first: dict[object, str] = {}
        memory = {name: (value.data_ptr(), value.shape, value.stride()) for name, value in self._kept.items()}
        aliases = {name: first.setdefault(memory[name], name) for name in self._kept}
        about = {
            "format": FORMAT,
            "activation": self.activation,
            "only": json.dumps(self.only),
            "names": json.dumps(self._names),
            "aliases": json.dumps({name: other for name, other in aliases.items() if name != other}),
            "layouts": json.dumps(
                {s: [*layout.lengths.tolist(), layout.longest] for s, layout in self.layouts.items()}
            ),
        }
        # Queries, keys and values are views of one stacked tensor; a file wants each by itself.
        tensors = {name: self._kept[name].clone(memory_format=torch.contiguous_format) for name in first.values()}
        with written_whole(path) as temporary:
            save_file(tensors, temporary, metadata=about)

    @classmethod
    def load(cls, path: Path | str) -> Self:
        try:
            with safe_open(path, framework="pt") as file:
                about: dict[str, Any] = file.metadata() or {}
                if about.get("format") != FORMAT:
                    raise UserError(f"{path} is no trace (its format is {about.get('format')}, not {FORMAT})")
                kept = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it is no dictionary)
        except (OSError, SafetensorError) as error:
            raise UserError(f"cannot read the trace {path}: {error}") from error
        trace = cls(about["activation"], json.loads(about["only"]))
        trace._names = json.loads(about["names"])
        aliases = json.loads(about["aliases"])
        trace._kept = {name: kept[aliases.get(name, name)] for name in (*kept, *aliases)}
        for stack, (*lengths, longest) in json.loads(about["layouts"]).items():
            trace.layouts[stack] = Layout.of(lengths, longest)
        return trace


@contextmanager
def trace(model: Network, only: str | Sequence[str] = ()) -> Iterator[Trace]:
    """Records the forward passes in the block: all that there is, or only the names that match a pattern."""
    only = [only] if isinstance(only, str) else only
    for pattern in only:
        require_match(pattern, model.config)
    t = Trace(model.config.activation, only)
    with listening(model, t):
        yield t


def matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def require_match(pattern: str, config: ModelConfig) -> None:
    """A pattern that fits no tap is a mistake, and would otherwise do nothing in silence."""
    names = tap_names(config)
    if not any(matches(name, (pattern,)) for name in names):
        raise UserError(f'no tap of this model matches "{pattern}": {nearest(pattern, names)}')


def tap_names(config: ModelConfig) -> list[str]:
    """The full name of every tap of a model, in the order of the computation."""
    names = []
    if config.kind != "transformer":
        return [*_recurrent_names(config), "logits"]
    for stack in ("encoder",) * config.has_encoder + ("decoder",) * config.has_decoder:
        names += [f"{stack}.{name}" for name in _stack_names(config, stack)]
    return names + ["logits"] * config.has_decoder


def _recurrent_names(config: ModelConfig) -> list[str]:
    looks = config.kind == "rnn-attention"
    names = ["encoder.tokens", "encoder.embedded"]
    names += [f"encoder.{layer}.states" for layer in range(config.encoder_layers)] + ["encoder.vectors"] * looks
    names += ["decoder.tokens"]
    names += [f"decoder.0.cross.{name}" for name in ("keys", "values")] * looks + ["decoder.embedded"]
    names += [f"decoder.0.cross.{name}" for name in ("queries", "energies", "weights", "heads")] * looks
    return [*names, *(f"decoder.{layer}.states" for layer in range(config.decoder_layers)), "decoder.vectors"]


def _stack_names(config: ModelConfig, stack: str) -> list[str]:
    norm = ["input", *(["mean_square"] if config.norm == "rms" else ["mean", "variance"]), "output"]
    norm = [f"norm.{name}" for name in norm]
    rotated = ["rotated_queries", "rotated_keys"] * (config.positions == "rotary")
    attention = ["queries", "keys", "values", *rotated, *ATTENTION, "projected"]
    feed_forward = ["before", *["gate"] * (config.activation == "swiglu"), "after", "output"]

    sublayers = {"self" if stack == "encoder" else "masked": attention}
    if stack == "decoder" and config.has_encoder:
        sublayers["cross"] = [name for name in attention if name not in rotated]
    sublayers["feed_forward"] = feed_forward

    names = ["tokens", "embedded", *["segments"] * bool(config.segments)]
    names += ["positions"] * (config.positions not in ("rotary", "none"))
    names += ["input", *(norm if config.embedding_norm else [])]
    for layer in range(config.encoder_layers if stack == "encoder" else config.decoder_layers):
        for sublayer, own in sublayers.items():
            order = [*norm, *own, "sum"] if config.norm_first else [*own, "sum", *norm]
            names += [f"{layer}.{sublayer}.{name}" for name in order]
    if config.norm_first:
        names += [name.replace("norm.", "final_norm.") for name in norm]
    return [*names, "vectors"]
