"""A trace: every number of one forward pass, by name.

    with trace(model) as t:
        model(source, target)
    t["decoder.3.cross.weights", 0]         # of the first sentence, [heads, target tokens, source tokens]
    t["decoder.3.cross.weights"]            # of every sentence: a sequence of such tensors, without padding

A trace stores what cannot be recomputed (queries, keys, values, sums …) and derives the rest on access (scores, weights,
each head's output …), so that a thousand tokens fit in memory. Deriving needs no model, even after saving and loading.
Where an intervention has changed a value that would be derived, the changed value is stored.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, Self, overload

import numpy as np
import torch
from torch import Tensor

from seq2see.config import ModelConfig, build
from seq2see.config.extensions import load_extension
from seq2see.data.layout import Layout, Packed
from seq2see.errors import UserError, did_you_mean
from seq2see.model.attention import PackedKeys, Scoring, attention_reference
from seq2see.model.layers import ACTIVATIONS
from seq2see.model.network import Network, model_class
from seq2see.model.taps import COMPILED_REMEDY, ActiveTaps, HookPoint, Quantity, attach, quantity, require_network
from seq2see.tensors.tensor_file import read_tensors, write_tensors

FORMAT = "seq2see trace 3"
ATTENTION = ("scores", "scaled", "capped", "biased", "masked", "weights", "heads", "concatenated")

_FIRST_TAPS = (".tokens", ".patches", ".mel_frames")  # of a stack


class Padded(NamedTuple):
    """The values of several sentences in one tensor."""

    values: Tensor  # [sentences, …], 0 outside a sentence
    mask: Tensor  # of the same shape, true inside a sentence: values[mask].mean() is a mean over no padding


class SentenceValues(Sequence[Tensor]):
    """One value of every sentence in a batch: a tensor for each, of its own length. It is no tensor itself, because a
    calculation over one with padding would be wrong without a mask.
    """

    def __init__(self, name: str, sentences: int, select: Callable[[int], Tensor]) -> None:
        self.name, self._sentences, self._select = name, sentences, select

    def __len__(self) -> int:
        return self._sentences

    @overload
    def __getitem__(self, index: int) -> Tensor: ...
    @overload
    def __getitem__(self, index: slice) -> list[Tensor]: ...
    def __getitem__(self, index: int | slice) -> Tensor | list[Tensor]:
        if isinstance(index, slice):
            return [self[i] for i in range(len(self))[index]]
        if not hasattr(index, "__index__"):
            raise TypeError(_NO_TENSOR)
        if not -len(self) <= index < len(self):
            raise IndexError(f"sentence {index} is out of range: the trace has {len(self)}, numbered from 0")
        return self._select(index % len(self))

    def __getattr__(self, attribute: str) -> NoReturn:
        raise AttributeError(f'no attribute "{attribute}": {_NO_TENSOR}')

    @classmethod
    def __torch_function__(cls, *_: Any) -> NoReturn:
        raise TypeError(_NO_TENSOR)

    def __repr__(self) -> str:
        return f"{self.name}, {self.sizes} in {len(self)} sentence{'s' * (len(self) != 1)}: {_NO_TENSOR}"

    @property
    def sizes(self) -> str:
        """The shape, such as "8 × 4–6 × 7" for 8 heads, sentences of 4 to 6 rows, and 7 keys."""
        axes = zip(*(value.shape for value in self), strict=True)
        return " × ".join("–".join(f"{size:,}" for size in sorted({min(axis), max(axis)})) for axis in axes)

    def padded(self) -> Padded:
        """Returns all sentences in one tensor, and the mask of what is not padding."""
        shape = [max(sizes) for sizes in zip(*(value.shape for value in self), strict=True)]
        values = self[0].new_zeros(len(self), *shape)
        mask = torch.zeros_like(values, dtype=torch.bool)
        for sentence, value in enumerate(self):
            inside = tuple(map(slice, value.shape))
            values[sentence][inside], mask[sentence][inside] = value, True
        return Padded(values, mask)


_NO_TENSOR = (
    "a trace has one tensor for every sentence: use trace[name, 0] for the first, or trace[name].padded() for a tensor "
    "with padding and its mask"
)


class Trace:
    """The values recorded by the taps in the last forward pass."""

    records = True

    def __init__(self, config: ModelConfig, only: Sequence[str] = ()) -> None:
        self.config = config
        self.only = tuple(only)
        self.layouts: dict[str, Layout] = {}  # of the encoder and of the decoder tokens
        self._names: list[str] = []  # everything available, in order of computation
        self._values: dict[str, Tensor] = {}
        # The last attention that was derived: callers usually read several of its values.
        self._last_attention: tuple[str, dict[str, Tensor]] = ("", {})

    def on_value(self, point: HookPoint, value: Tensor) -> Tensor:
        if point.rows is not None and point.rows.sequence_ids is not None:
            return value  # decoding makes a pass for every token; none of them is the whole
        if point.name.endswith(_FIRST_TAPS):
            self._start_stack(point)
        if not self.only or matches(point.name, self.only):
            if point.name not in self._names:
                self._names.append(point.name)
            if self.only or point.modified or not quantity(point.name).derived:
                self._values[point.name] = value.detach()
        return value

    def _start_stack(self, point: HookPoint) -> None:
        """Handles the first tap of a stack. A stack seen before means that a new pass has started."""
        stack = point.name.rpartition(".")[0]
        if stack in self.layouts:
            self.layouts, self._names, self._values = {}, [], {}
        assert point.rows is not None
        self.layouts[stack] = point.rows
        self._last_attention = ("", {})

    def names(self, pattern: str = "*") -> list[str]:
        """Returns the names of all available values, in order of computation."""
        names = [*self._names, *(["probabilities"] if "logits" in self._values else [])]
        return names if pattern == "*" else [name for name in names if matches(name, (pattern,))]

    @property
    def stored_bytes(self) -> int:
        return sum(value.nbytes for value in self._values.values())

    def quantity(self, name: str) -> Quantity:
        """Describes a value by name: its formula and its axes."""
        found = quantity(name)
        if name == "encoder.embedded" and self.config.source != "tokens":
            pictures = self.config.source == "pictures"
            return replace(found, formula="patches · W + b" if pictures else "GELU(convolution of convolved, stride 2)")
        if name.endswith(".post_activation") and self.config.gated:
            activation = {"swiglu": "silu", "geglu": "gelu"}[self.config.activation]
            return replace(found, formula=f"{activation}(gate) · pre_activation")
        if name.endswith(".scaled") and self.config.attention_scale:
            return replace(found, formula=f"scores · {self.config.attention_scale:g}")
        if name.endswith(".values") and name.replace(".values", ".energies") in self:  # additive attention
            return replace(found, formula="x itself: what a token contributes")
        return found

    def __contains__(self, name: str) -> bool:
        return name in self.names()

    @overload
    def __getitem__(self, key: str) -> SentenceValues: ...
    @overload
    def __getitem__(self, key: tuple[str, int]) -> Tensor: ...
    def __getitem__(self, key: str | tuple[str, int]) -> SentenceValues | Tensor:
        """Returns a value of every sentence, or of one."""
        name, *sentence = (key,) if isinstance(key, str) else key
        value, rows, keys = self._batch_value(name), self._rows(name), self._keys(name)
        values = SentenceValues(name, len(rows), lambda i: _select_sentence(name, value, rows, keys, i))
        return values[sentence[0]] if sentence else values

    def _batch_value(self, name: str) -> Tensor:
        """Returns the value as the model computes it: sentences end to end, or tables with padding."""
        if name in self._values:
            return self._values[name]
        if name not in self.names():
            raise KeyError(f'"{name}" is not in this trace: {did_you_mean(name, self.names())}')
        return self._derive(name)

    def _derive(self, name: str) -> Tensor:
        component, _, value = name.rpartition(".")
        if value in ATTENTION:
            if self._last_attention[0] != component:
                self._last_attention = (component, self._recompute_attention(component))
            return self._last_attention[1][name]
        if value == "post_activation":
            x = self._values[f"{component}.pre_activation"]
            if f"{component}.gate" in self._values:
                return ACTIVATIONS[self.config.activation](self._values[f"{component}.gate"]) * x
            return ACTIVATIONS[self.config.activation](x)
        if value == "probabilities":
            return self._values["logits"].softmax(-1)
        x = self._values[f"{component}.input"]
        if value == "mean":
            return x.mean(-1, keepdim=True)
        if value == "variance":
            return x.var(-1, correction=0, keepdim=True)
        return x.square().mean(-1, keepdim=True)  # mean_square

    def _recompute_attention(self, component: str) -> dict[str, Tensor]:
        q, k = (self._last_of(component, name) for name in ("queries", "keys"))
        rows, keys = self._rows(component), self._keys(component)
        recorder = Trace(self.config, only=[f"{component}.*"])
        taps = ActiveTaps(recorder, prefix=component, rows=rows, keys=keys)
        stack, layer, sublayer = component.split(".")
        causal, v = sublayer == "masked", self._values[f"{component}.values"]
        scoring = Scoring.of(self.config, local=causal and self.config.is_local(int(layer)))
        bias = self._values.get(f"{stack}.relative_bias") if sublayer != "cross" else None
        heads = attention_reference(q, rows, PackedKeys(k, v, keys, causal, bias), scoring, taps=taps)
        return {**recorder._values, f"{component}.concatenated": heads.flatten(1)}

    def _last_of(self, component: str, name: str) -> Tensor:
        """Returns the queries or keys that the scores are computed from: rotated, or normed, or as projected."""
        names = (f"{component}.{form}{name}" for form in ("rotated_", "normed_", ""))
        return self._values[next(name for name in names if name in self._values)]

    def _rows(self, name: str) -> Layout:
        layout = self.layouts.get(name.partition(".")[0]) or list(self.layouts.values())[-1]
        single = name == "pooled" or (self.config.classifier and "." not in name)  # one row for each sentence
        return layout.first_tokens() if single else layout

    def _keys(self, name: str) -> Layout:
        return self.layouts["encoder"] if ".cross" in name else self._rows(name)

    def _repr_html_(self) -> str:
        html: str = load_extension("notebook", "trace")(self)
        return html

    def save(self, path: Path | str) -> None:
        """Writes a safetensors file. A tensor with two names (a sum and the input of the next norm) is stored once."""
        first: dict[object, str] = {}
        memory = {name: (value.data_ptr(), value.shape, value.stride()) for name, value in self._values.items()}
        aliases = {name: first.setdefault(memory[name], name) for name in self._values}
        layouts = {stack: [*layout.lengths.tolist(), layout.max_length] for stack, layout in self.layouts.items()}
        metadata = {"config": asdict(self.config), "only": self.only, "names": self._names, "layouts": layouts}
        metadata["aliases"] = {name: other for name, other in aliases.items() if name != other}
        # Queries, keys and values are views of one stacked tensor; safetensors needs each in its own memory.
        tensors = {name: self._values[name].clone(memory_format=torch.contiguous_format) for name in first.values()}
        write_tensors(Path(path), tensors, {"format": FORMAT, **{k: json.dumps(v) for k, v in metadata.items()}})

    @classmethod
    def load(cls, path: Path | str) -> Self:
        tensors, metadata = read_tensors(Path(path), FORMAT, "trace")
        values = {key: json.loads(value) for key, value in metadata.items() if key != "format"}
        trace = cls(build(ModelConfig, values["config"]), values["only"])
        trace._names, aliases = values["names"], values["aliases"]
        trace._values = {name: tensors[aliases.get(name, name)] for name in (*tensors, *aliases)}
        for stack, (*lengths, max_length) in values["layouts"].items():
            trace.layouts[stack] = Layout.from_lengths(lengths, max_length)
        return trace


def _select_sentence(name: str, value: Tensor, rows: Layout, keys: Layout, sentence: int) -> Tensor:
    axis = quantity(name).axes[0]
    if axis == "sentence":
        return value[sentence, :, : int(rows.lengths[sentence]), : int(keys.lengths[sentence])]
    return value[(keys if axis == "key token" else rows).slice(sentence)]


@contextmanager
def trace(model: Network, only: str | Sequence[str] = ()) -> Iterator[Trace]:
    """Records the forward passes in the block: everything, or only the names that match a pattern.

    A block without a forward pass of the model in this thread is an error.
    """
    require_network(model)
    dropout = model.config.dropout or model.config.attention_dropout or model.config.activation_dropout
    if model.training and dropout:
        raise UserError(
            "the model is in training mode, where dropout makes every pass different: call model.eval() first"
        )
    only = [only] if isinstance(only, str) else only
    for pattern in only:
        matching_taps(pattern, model.config)
    t = Trace(model.config, only)
    with attach(model, t):
        yield t
    if not t.layouts:
        raise UserError(
            "no forward pass to trace: in this block and thread the model did not run; or it only decoded, token by token: "
            f"use model.explain(text); or it was compiled: {COMPILED_REMEDY}"
        )


def matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def matching_taps(pattern: str, config: ModelConfig) -> list[str]:
    """Returns the taps of a model that a pattern matches; none is an error, since it would silently do nothing."""
    names = tap_names(config)
    found = [name for name in names if matches(name, (pattern,))]
    if not found:
        similar = [name for name in names if pattern.strip("*.") in name][:5]
        raise UserError(f'no tap of this model matches "{pattern}": {did_you_mean(pattern, similar or names)}')
    return found


def block_outputs(config: ModelConfig, stack: str) -> list[str]:
    """Names the output of each block of a stack, or of each layer of a recurrent model."""
    last = "feed_forward.sum" if config.norm_first else "feed_forward.norm.output"
    last = last if config.kind == "transformer" else "states"
    layers = config.encoder_layers if stack == "encoder" else config.decoder_layers
    return [f"{stack}.{layer}.{last}" for layer in range(layers)]


def tap_names(config: ModelConfig) -> list[str]:
    """Returns the full name of every tap of a model, in order of computation."""
    return list(_tap_names(config))


@cache
def _tap_names(config: ModelConfig) -> tuple[str, ...]:
    """Runs one token through a narrow model of the same layers, and records the names."""
    config = replace(
        config,
        width=8,
        heads=1,
        key_value_heads=0,
        head_width=0,
        feed_forward=min(config.feed_forward, 2048),  # recurrent models accept only this default
        vocab_size=8,
        source_vocab_size=0,
        rotary_factors=(),
        picture_height=1,
        patch_size=1,
        mel_bands=8,
    )
    empty = model_class(config).on_meta_device(config)
    model = empty.with_weights({name: torch.zeros(weight.shape) for name, weight in empty.state_dict().items()}).eval()
    token = Packed.from_sequences([[0]])
    source = token if config.source == "tokens" else Packed.from_sequences([np.zeros((1, config.row_size), np.float32)])
    recorder = Trace(config)
    with torch.no_grad(), attach(model, recorder):
        model(*[source] * config.has_encoder, *[token] * config.has_decoder)
    return tuple(recorder._names)
