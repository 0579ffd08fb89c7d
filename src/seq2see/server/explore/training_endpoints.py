"""Endpoints that start and watch a training run."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Annotated

import torch
from fastapi import Query, Request
from pydantic import Field

from seq2see.inspect.attention_flow import attention_names, attention_weights
from seq2see.inspect.explain import Explanation, explain
from seq2see.server.explore import requests
from seq2see.server.explore.api import Call, Head, ServerState, WorkerRouter
from seq2see.server.explore.model_registry import copy_with_deadline
from seq2see.server.explore.responses import ResponseModel
from seq2see.server.explore.training import Training, TrainingManager
from seq2see.server.http.errors import ApiError
from seq2see.train.checkpoint import load_at_step


class TrainingReport(ResponseModel):
    """What the model of one training step makes of a text."""

    step: int
    output: str
    probability: float = Field(description="Geometric mean of the probabilities of the output's tokens.")
    attentions: list[str]
    heads: int
    attention: str | None = Field(description="Null if the model has none.")
    head: int | None = Field(description="Null: the mean over the heads.")
    queries: list[str]
    written: list[str] = Field(description="What the decoder writes after it read each query; empty for the encoder.")
    keys: list[str]
    weights: list[list[float]] = Field(description="[queries, keys]")


DISABLED = "this server does not train: only seq2see explore does, on its own machine"

router = WorkerRouter(tags=["training"])


def _manager(server: ServerState) -> TrainingManager:
    if server.training is None:
        raise ApiError(403, DISABLED, "run seq2see explore on your own machine")
    return server.training


async def _run(request: Request, command: Callable[[TrainingManager], None]) -> Training:
    # Not in the worker pool: what waits for a process or a disk must not keep a translation waiting.
    manager = _manager(request.app.state.api.state)
    await asyncio.to_thread(command, manager)
    return await asyncio.to_thread(manager.status)


@router.get("/api/training")
async def training(request: Request) -> Training:
    """Describes the training run that was started, resumed or followed last."""
    manager = request.app.state.api.state.training
    if manager is None:
        return Training(disabled=DISABLED, runs="", files=[], paused=[], run=None)
    return await asyncio.to_thread(manager.status)


@router.post("/api/training", status_code=201)
async def start(request: Request, body: requests.StartTraining) -> Training:
    """Starts a training in a process of its own; one at a time."""
    return await _run(request, lambda manager: manager.start(body))


@router.post("/api/training/pause")
async def pause(request: Request) -> Training:
    """Makes the training save and end its process; it can be resumed."""
    return await _run(request, lambda manager: manager.pause())


@router.post("/api/training/resume")
async def resume(request: Request, body: requests.ResumeTraining) -> Training:
    """Continues a paused run."""
    return await _run(request, lambda manager: manager.resume(body.name))


@router.post("/api/training/stop")
async def stop(request: Request) -> Training:
    """Ends the training early, and writes the model of the step that it has reached."""
    return await _run(request, lambda manager: manager.stop())


@router.endpoint("GET", "/api/training/report")
def report(
    call: Call,
    step: Annotated[int, Query(ge=0, le=1 << 40)],
    text: Annotated[requests.Text, Query(min_length=1)],
    attention: Annotated[str, Query(max_length=100)] = "",
    head: Head = None,
) -> TrainingReport:
    """Returns the output and the attention of one head at a training step."""
    model = load_at_step(_manager(call.server).run, step)
    call.require_short(model.tokenizers[0], text, "text")
    e = explain(replace(model, network=copy_with_deadline(model.network, call.deadline)), text)
    return _report(step, e, attention, head)


def _report(step: int, e: Explanation, attention: str, head: int | None) -> TrainingReport:
    """Describes an output and one attention: the named one, or the last; of one head, or the mean."""
    known = attention_names(e)
    name = attention if attention in known else known[-1] if known else None
    weights = attention_weights(e, name) if name else torch.zeros(1, 0, 0)  # [heads, queries, keys]
    chosen = head if head is not None and head < len(weights) else None
    of_encoder = name is not None and name.startswith("encoder")
    logprobs = e.target_logprobs[e.output_start :]
    return TrainingReport(
        step=step,
        output=e.output,
        probability=float(logprobs.mean().exp()) if len(logprobs) else 1.0,
        attentions=known,
        heads=len(weights),
        attention=name,
        head=chosen,
        queries=list(e.source_tokens if of_encoder else e.decoder_input_tokens),
        written=[] if of_encoder else list(e.target_tokens),
        keys=list(e.source_tokens if of_encoder or (name or "").endswith("cross") else e.decoder_input_tokens),
        weights=(weights.mean(0) if chosen is None else weights[chosen]).tolist(),
    )
