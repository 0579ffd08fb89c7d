"""Converts the interventions of a request into the library's own, rejecting invalid ones before the model runs."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from seq2see.config import ModelConfig
from seq2see.inspect.explain import Explanation
from seq2see.inspect.interventions import (
    EVERYWHERE,
    Intervention,
    Selection,
    ablate_head,
    force_attention,
    patch,
    scale,
    uniform_attention,
)
from seq2see.inspect.trace import matches, tap_names
from seq2see.model.taps import HookPoint, quantity
from seq2see.server.explore import requests
from seq2see.server.explore.trace_store import TraceStore
from seq2see.server.explore.workers import ApiError, suggest

MAX_KEYS = 1 << 12  # size of a row of forced attention weights; more than any text has


def build_interventions(
    bodies: Sequence[requests.Intervention], before: Explanation, traces: TraceStore
) -> list[Intervention]:
    """Returns interventions for a text whose explanation without interventions is `before`."""
    result = [_build(body, before, traces, f"interventions.{i}") for i, body in enumerate(bodies)]
    output = "logits" if before.model.config.model.predicts_tokens else "encoder.vectors"
    return [*result, Intervention(output, _require_finite, EVERYWHERE)] if result else []


def _require_finite(output: Tensor, point: HookPoint) -> Tensor:
    if not bool(output.isfinite().all()):
        raise ApiError(
            422, f"these interventions make {point.name} NaN or infinite", "use a smaller factor", "interventions"
        )
    return output


def _build(body: requests.Intervention, before: Explanation, traces: TraceStore, location: str) -> Intervention:
    config = before.model.config.model
    where = Selection(positions=body.positions, head=body.head)
    if isinstance(body, requests.AblateHead):
        _matching_taps(f"{body.attention}.heads", body.head, config, location)
        return ablate_head(body.attention, body.head, where)
    if isinstance(body, requests.UniformAttention):
        _matching_taps(f"{body.attention}.weights", body.head, config, location)
        return uniform_attention(body.attention, where)
    if isinstance(body, requests.ForceAttention):
        names = _matching_taps(f"{body.attention}.weights", body.head, config, location)
        keys = len(before.source_tokens)
        if len(body.weights) > keys and not all(name.endswith(".masked.weights") for name in names):
            message = f"{len(body.weights)} attention weights for {keys} keys"
            raise ApiError(422, message, f"give at most {keys} weights", f"{location}.weights")
        row = torch.zeros(MAX_KEYS)
        row[: len(body.weights)] = torch.tensor(body.weights)
        return force_attention(body.attention, row, where)
    names = _matching_taps(body.name, body.head, config, location)
    if isinstance(body, requests.Scale):
        for name in names:
            size = before.trace[name, 0].shape[-1]
            if body.unit is not None and body.unit >= size:
                message = f'unit {body.unit} is out of range: "{name}" has {size} units'
                raise ApiError(422, message, "units are numbered from 0", f"{location}.unit")
        return scale(body.name, body.factor, replace(where, unit=body.unit))
    return patch(body.name, _source_vector(body, before, traces, location), where)


def _source_vector(body: requests.Patch, before: Explanation, traces: TraceStore, location: str) -> Tensor:
    """Returns the vector of a token in another trace, or elsewhere in the same text."""
    if body.name not in before.trace or quantity(body.name).axes[0] not in ("token", "key token"):
        known = [name for name in before.trace.names() if quantity(name).axes[0] in ("token", "key token")]
        message = f'"{body.name}" does not have one vector per token'
        raise ApiError(422, message, suggest(body.name, known, "the tensors of a trace"), f"{location}.name")
    own = before.trace[body.name, 0]
    if body.source.trace is None:
        vectors = own
    else:
        stored = traces[body.source.trace]
        with stored.lock:
            other = stored.explanation.trace
            vectors = other[body.name, 0] if body.name in other else own[:0]
    if own.shape[1:] != vectors.shape[1:]:
        message = f"the source vectors have shape {list(vectors.shape[1:])}, but {list(own.shape[1:])} is needed"
        raise ApiError(422, message, "use a trace of the same model", f"{location}.source.trace")
    if body.source.position >= len(vectors):
        message = f"position {body.source.position} is out of range: there are {len(vectors)} tokens"
        raise ApiError(422, message, "positions are numbered from 0", f"{location}.source.position")
    return vectors[body.source.position]


def _matching_taps(pattern: str, head: int | None, config: ModelConfig, location: str) -> list[str]:
    """Returns the taps that match a pattern. Each must hold numbers that can be changed, and have the given head."""
    known = tap_names(config)
    names = [name for name in known if matches(name, (pattern,))]
    if not names:
        message = f'no tensor of this model matches "{pattern}"'
        raise ApiError(422, message, suggest(pattern, known, "the tensors of a trace"), location)
    for name in names:
        axes = quantity(name).axes
        if name.endswith(".tokens"):
            raise ApiError(422, f'"{name}" holds token ids, which cannot be modified', "change the text", location)
        if head is None:
            continue
        if "head" not in axes:
            raise ApiError(422, f'"{name}" has no heads', "leave out head", f"{location}.head")
        heads = config.actual_key_value_heads if axes[0] == "key token" else config.heads
        if head >= heads:
            message = f'head {head} is out of range: "{name}" has {heads} heads'
            raise ApiError(422, message, "heads are numbered from 0", f"{location}.head")
    return names
