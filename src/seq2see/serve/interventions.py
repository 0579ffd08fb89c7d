"""Interventions as a request words them, turned into the library's own; what cannot be meant is refused beforehand."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from seq2see.config import ModelConfig
from seq2see.inspect.explain import Explanation
from seq2see.inspect.interventions import (
    EVERYWHERE,
    Intervention,
    Where,
    attending,
    attending_uniformly,
    patching,
    scaling,
    without,
)
from seq2see.inspect.trace import matches, tap_names
from seq2see.model.taps import Site, quantity
from seq2see.serve import requests
from seq2see.serve.trace_store import Traces
from seq2see.serve.workers import Refusal, near

LONGEST = 1 << 12  # keys that a forced row of weights covers: more than any text may have


def interventions(
    asked_for: Sequence[requests.Intervention], before: Explanation, traces: Traces
) -> list[Intervention]:
    """For the text that was explained before, without any of them."""
    made = [_intervention(one, before, traces, f"interventions.{i}") for i, one in enumerate(asked_for)]
    return [*made, Intervention("logits", _finite, EVERYWHERE)] if made else []


def _finite(logits: Tensor, site: Site) -> Tensor:
    if not bool(logits.isfinite().all()):
        raise Refusal(
            422, "under these interventions the logits are no numbers", "take a smaller factor", "interventions"
        )
    return logits


def _intervention(one: requests.Intervention, before: Explanation, traces: Traces, at: str) -> Intervention:
    config = before.model.config.model
    where = Where(positions=one.positions, head=one.head)
    if isinstance(one, requests.Without):
        _require(f"{one.attention}.heads", one.head, config, at)
        return without(one.attention, one.head, where)
    if isinstance(one, requests.AttendUniformly):
        _require(f"{one.attention}.weights", one.head, config, at)
        return attending_uniformly(one.attention, where)
    if isinstance(one, requests.Attend):
        found = _require(f"{one.attention}.weights", one.head, config, at)
        keys = len(before.sources)
        if len(one.weights) > keys and not all(name.endswith(".masked.weights") for name in found):
            raise Refusal(
                422, f"weights of {len(one.weights)} keys, of which there are {keys}", "give fewer", f"{at}.weights"
            )
        row = torch.zeros(LONGEST)
        row[: len(one.weights)] = torch.tensor(one.weights)
        return attending(one.attention, row, where)
    found = _require(one.name, one.head, config, at)
    if isinstance(one, requests.Scale):
        for name in found:
            size = before.trace[name, 0].shape[-1]
            if one.unit is not None and one.unit >= size:
                raise Refusal(422, f'unit {one.unit} of "{name}", which has {size}', "count from 0", f"{at}.unit")
        return scaling(one.name, one.factor, replace(where, unit=one.unit))
    return patching(one.name, _vector(one, before, traces, at), where)


def _vector(one: requests.Patch, before: Explanation, traces: Traces, at: str) -> Tensor:
    """A token's vector in another trace, or elsewhere in the same text."""
    if one.name not in before.trace or quantity(one.name).axes[0] not in ("token", "key token"):
        known = [name for name in before.trace.names() if quantity(name).axes[0] in ("token", "key token")]
        raise Refusal(
            422, f'"{one.name}" has no vector a token', near(one.name, known, "the manifest of a trace"), f"{at}.name"
        )
    own = before.trace[one.name, 0]
    if one.source.trace is None:
        vectors = own
    else:
        kept = traces[one.source.trace]
        with kept.lock:
            other = kept.explanation.trace
            vectors = other[one.name, 0] if one.name in other else own[:0]
    if own.shape[1:] != vectors.shape[1:]:
        raise Refusal(
            422, f"vectors of shape {list(vectors.shape[1:])} in place of {list(own.shape[1:])}", 
            "take a trace of the same model", f"{at}.from.trace",
        )  # fmt: skip
    if one.source.position >= len(vectors):
        raise Refusal(
            422, f"token {one.source.position} of {len(vectors)}", "count from 0", f"{at}.from.position"
        )  # fmt: skip
    return vectors[one.source.position]


def _require(pattern: str, head: int | None, config: ModelConfig, at: str) -> list[str]:
    """There is such a quantity, it is made of numbers that can be changed, and it has such a head."""
    known = tap_names(config)
    found = [name for name in known if matches(name, (pattern,))]
    if not found:
        raise Refusal(
            422, f'nothing in this model is called "{pattern}"', near(pattern, known, "the manifest of a trace"), at
        )
    for name in found:
        axes = quantity(name).axes
        if name.endswith(".tokens"):
            raise Refusal(422, f'"{name}" are token ids, which cannot be changed like numbers', "change the text", at)
        if head is None:
            continue
        if "head" not in axes:
            raise Refusal(422, f'"{name}" has no heads', "leave out head", f"{at}.head")
        heads = config.groups if axes[0] == "key token" else config.heads
        if head >= heads:
            raise Refusal(422, f'head {head} of "{name}", which has {heads}', "count from 0", f"{at}.head")
    return found
