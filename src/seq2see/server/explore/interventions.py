"""Turns the interventions of a request into the library's, and says which part of the request one has no place for."""

from collections.abc import Sequence

import torch
from torch import Tensor

from seq2see.errors import UserError
from seq2see.inspect.explain import Explanation
from seq2see.inspect.interventions import (
    EVERYWHERE,
    Intervention,
    InterventionError,
    Place,
    Selection,
    ablate_head,
    force_attention,
    patch,
    scale,
    uniform_attention,
)
from seq2see.model.taps import quantity
from seq2see.server.explore import requests
from seq2see.server.explore.stores import TraceStore
from seq2see.server.http.errors import ApiError, suggest

MAX_KEYS = 1 << 12  # size of a row of forced attention weights; more than any text has


def build_interventions(
    bodies: Sequence[requests.Intervention], before: Explanation, traces: TraceStore
) -> list[Intervention]:
    """Returns interventions for a text whose explanation without interventions is `before`."""
    result = [_build(body, before, traces, f"interventions.{i}") for i, body in enumerate(bodies)]
    output = "logits" if before.model.config.model.predicts_tokens else "encoder.vectors"
    return [*result, Intervention(output, _require_finite, EVERYWHERE)] if result else []


def _require_finite(output: Tensor, place: Place) -> Tensor:
    if not bool(output.isfinite().all()):
        message = f"these interventions make {place.point.name} NaN or infinite"
        raise ApiError(422, message, "use a smaller factor", "interventions")
    return output


def _build(body: requests.Intervention, before: Explanation, traces: TraceStore, location: str) -> Intervention:
    where = Selection(positions=body.positions, head=body.head, unit=getattr(body, "unit", None))
    match body:
        case requests.AblateHead():
            intervention = ablate_head(body.attention, body.head, where)
        case requests.UniformAttention():
            intervention = uniform_attention(body.attention, where)
        case requests.ForceAttention():
            row = torch.zeros(MAX_KEYS)
            row[: len(body.weights)] = torch.tensor(body.weights)
            intervention = force_attention(body.attention, row, where)
        case requests.Scale():
            intervention = scale(body.name, body.factor, where)
        case requests.Patch():
            intervention = patch(body.name, _source_vector(body, before, traces, location), where)
    try:
        names = intervention.taps(before.model.config.model)
    except InterventionError as error:
        raise ApiError(422, str(error), location=".".join(filter(None, (location, error.selection)))) from error
    except UserError as error:  # no tap matches
        raise ApiError(422, str(error), "see the tensors of a trace", location) from error
    if isinstance(body, requests.ForceAttention) and not all(name.endswith(".masked.weights") for name in names):
        keys = len(before.source_tokens)
        if len(body.weights) > keys:
            message = f"{len(body.weights)} attention weights for {keys} keys"
            raise ApiError(422, message, f"give at most {keys} weights", f"{location}.weights")
    return intervention


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
