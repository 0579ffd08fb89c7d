"""Finds the foreign family that can hold a model of ours.

Each family's writer is tried, and what it writes is read back by our own reader: the family can hold the model if the
configuration is the same again. Where none can, the model may be rewritten as an equivalent one, for example with biases that
are zero. What no family can hold is refused with the options of the nearest one.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from seq2see.config import ModelConfig
from seq2see.errors import UserError
from seq2see.model.network import model_class

_TRAINING = ("dropout", "attention_dropout", "activation_dropout")  # the same model, whatever they are


@dataclass(frozen=True)
class Rewriting:
    """The same function under another configuration; tensors that it adds are zero."""

    summary: str
    options: Callable[[ModelConfig], dict[str, Any]]  # that change; none where it does not apply
    convert: Callable[[str, Tensor], Tensor] = lambda name, tensor: tensor


def _half_positions(config: ModelConfig) -> dict[str, Any]:
    return {"positions": "sinusoidal-halves"} if config.positions == "sinusoidal" else {}


# The tensors that add to the residual stream, by rows, and those that read it, by columns.
_WRITES = re.compile(r"(^|\.)(project|down|norm|final_norm|embedding_norm|output_norm|dense|pooler)\.(weight|bias)$")
_READS = re.compile(
    r"(^|\.)(embedding|source_embedding|unembedding|segments|positions|queries_keys_values|queries|keys_values|up|gate|dense"
    r"|pooler)\.weight$"
)


def _sines_first(name: str, tensor: Tensor) -> Tensor:
    """Reorders the residual stream: 0, 2, 4, …, 1, 3, 5, …"""
    for pattern, axis in ((_WRITES, 0), (_READS, 1)):
        if pattern.search(name):
            size = tensor.shape[axis]
            order = torch.cat([torch.arange(0, size, 2), torch.arange(1, size, 2)])
            tensor = tensor.index_select(axis, order)
    return tensor


REWRITINGS = (
    Rewriting("output bias of zero", lambda config: {} if config.output_bias else {"output_bias": True}),
    Rewriting("biases of zero", lambda config: {} if config.bias == "everywhere" else {"bias": "everywhere"}),
    Rewriting("segment embeddings of zero", lambda config: {} if config.segments else {"segments": 1}),
    Rewriting("width reordered: all sines before all cosines", _half_positions, _sines_first),
)


@dataclass(frozen=True)
class Nearest:
    """The family that can hold a model, and the equivalent model that it holds."""

    name: str
    config: ModelConfig
    rewritings: tuple[Rewriting, ...]

    def weights(self, weights: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
        """Yields the weights of the equivalent model."""
        shapes = model_class(self.config).on_meta_device(self.config).state_dict()
        for name, shape in shapes.items():
            tensor = weights[name] if name in weights else torch.zeros(shape.shape)
            for rewriting in self.rewritings:
                tensor = rewriting.convert(name, tensor)
            yield name, tensor


def find_nearest(
    config: ModelConfig, format: str, titles: Mapping[str, str], hold: Callable[[str, ModelConfig], ModelConfig]
) -> Nearest:
    """Returns the first family that can hold the model, with as few rewritings as possible.

    `titles` are the families by name; `hold` writes a configuration in a family's format and reads it back.
    """
    if config.kind != "transformer":
        raise UserError(f'{format} has no class for model.kind = "{config.kind}": only Transformers can be exported')
    nearest: tuple[str, dict[str, tuple[Any, Any]]] | None = None
    for rewritings in _combinations(config):
        rewritten = replace(config, **{key: value for r in rewritings for key, value in r.options(config).items()})
        for name in titles:
            try:
                held = hold(name, rewritten)
            except UserError:
                continue
            different = differences(rewritten, held)
            if not different:
                return Nearest(name, rewritten, rewritings)
            if held.shape == config.shape and (nearest is None or len(different) < len(nearest[1])):
                nearest = name, different
    assert nearest is not None
    name, different = nearest
    needs = ", ".join(f"model.{o} = {_toml(theirs)} (not {_toml(ours)})" for o, (ours, theirs) in different.items())
    settings = " ".join(f"--set model.{option}={_plain(theirs)}" for option, (_, theirs) in different.items())
    family = f"has no class with this model's options: the nearest, {titles[name]}," * (name != format)
    raise UserError(f"{format} {family or 'cannot hold this model: it'} needs {needs}; train a model with {settings}")


def _combinations(config: ModelConfig) -> Iterator[tuple[Rewriting, ...]]:
    possible = [rewriting for rewriting in REWRITINGS if rewriting.options(config)]
    for count in range(len(possible) + 1):
        yield from combinations(possible, count)


def differences(ours: ModelConfig, theirs: ModelConfig) -> dict[str, tuple[Any, Any]]:
    """Returns the options in which two models differ, each with both values; options without effect do not count."""
    first, second = canonical(ours), canonical(theirs)
    pairs = {f.name: (getattr(first, f.name), getattr(second, f.name)) for f in fields(ours)}
    different = {name: pair for name, pair in pairs.items() if not _equal(*pair)}
    hidden = {name for option in different for name in _DETAILS.get(option, ())}
    return {name: pair for name, pair in different.items() if name not in hidden}


# Options that mean nothing where these differ.
_DETAILS = {
    "positions": (
        "max_positions",
        "rotary_base",
        "rotary_factors",
        "rotary_magnitude",
        "relative_buckets",
        "relative_distance",
        "local_rotary_base",
    ),
    "attention_window": ("local_layers", "local_rotary_base"),
}


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(_equal, a, b))
    # A number that is computed from another of theirs may differ in its last digits.
    return math.isclose(a, b, rel_tol=1e-6) if isinstance(a, float) and isinstance(b, float) else a == b


def canonical(config: ModelConfig) -> ModelConfig:
    """Returns the same model with every default written out, and every option without effect at its default."""
    default = ModelConfig()
    local = config.has_decoder and any(map(config.is_local, range(config.decoder_layers)))
    translator = config.shape == "encoder-decoder"
    separate = translator and config.tie_embeddings != "all"
    tie = config.tie_embeddings if translator or config.tie_embeddings == "none" else "all"
    changes: dict[str, Any] = {
        "head_width": config.actual_head_width,
        "key_value_heads": config.actual_key_value_heads,
        "attention_scale": config.attention_scale or config.actual_head_width**-0.5,
        "attention_window": config.attention_window if local else 0,
        "local_layers": tuple(filter(config.is_local, range(config.decoder_layers))) if local else (),
        "source_vocab_size": config.source_vocab_size or config.vocab_size if separate else 0,
        "tie_embeddings": tie if config.predicts_tokens else "all",
        "output_bias": config.output_bias and config.predicts_tokens,
    }
    own_base = local and config.positions == "rotary"
    factors_differ = config.local_rotary_base == 0 and config.rotary_factors  # of local layers with a base of their own
    changes["local_rotary_base"] = (
        0.0 if not own_base or factors_differ else config.local_rotary_base or config.rotary_base
    )
    unused = [*_TRAINING]
    unused += [] if config.positions == "rotary" else ["rotary_base", "rotary_factors", "rotary_magnitude"]
    unused += ["max_positions"] if config.positions == "relative" else ["relative_buckets", "relative_distance"]
    unused += [] if config.has_encoder else ["encoder_layers"]
    unused += [] if config.has_decoder else ["decoder_layers"]
    return replace(config, **changes, **{name: getattr(default, name) for name in unused})


def _toml(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value).lower()


def _plain(value: Any) -> str:
    return str(list(value) if isinstance(value, tuple) else value).lower().replace(" ", "")
