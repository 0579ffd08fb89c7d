"""Endpoints that start and watch a training run."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Annotated

from fastapi import Query, Request

from seq2see.inspect.explain import explain
from seq2see.server.explore import requests, responses, serializers
from seq2see.server.explore.api import Call, Head, ServerState, WorkerRouter
from seq2see.server.explore.model_registry import copy_with_deadline
from seq2see.server.explore.training import TrainingManager
from seq2see.server.http.errors import ApiError
from seq2see.train.saved_weights import load_at_step

DISABLED = "this server does not train: only seq2see explore does, on its own machine"

router = WorkerRouter(tags=["training"])


def _manager(server: ServerState) -> TrainingManager:
    if server.training is None:
        raise ApiError(403, DISABLED, "run seq2see explore on your own machine")
    return server.training


async def _run(request: Request, command: Callable[[TrainingManager], None]) -> responses.Training:
    # Not in the worker pool: what waits for a process or a disk must not keep a translation waiting.
    manager = _manager(request.app.state.api.state)
    await asyncio.to_thread(command, manager)
    return await asyncio.to_thread(manager.status)


@router.get("/api/training")
async def training(request: Request) -> responses.Training:
    """Describes the training run that was started, resumed or followed last."""
    manager = request.app.state.api.state.training
    if manager is None:
        return responses.Training(disabled=DISABLED, runs="", files=[], paused=[], run=None)
    return await asyncio.to_thread(manager.status)


@router.post("/api/training", status_code=201)
async def start(request: Request, body: requests.StartTraining) -> responses.Training:
    """Starts a training in a process of its own; one at a time."""
    return await _run(request, lambda manager: manager.start(body))


@router.post("/api/training/pause")
async def pause(request: Request) -> responses.Training:
    """Makes the training save and end its process; it can be resumed."""
    return await _run(request, lambda manager: manager.pause())


@router.post("/api/training/resume")
async def resume(request: Request, body: requests.ResumeTraining) -> responses.Training:
    """Continues a paused run."""
    return await _run(request, lambda manager: manager.resume(body.name))


@router.post("/api/training/stop")
async def stop(request: Request) -> responses.Training:
    """Ends the training early, and writes the model of the step that it has reached."""
    return await _run(request, lambda manager: manager.stop())


@router.endpoint("GET", "/api/training/report")
def report(
    call: Call,
    step: Annotated[int, Query(ge=0, le=1 << 40)],
    text: Annotated[requests.Text, Query(min_length=1)],
    attention: Annotated[str, Query(max_length=100)] = "",
    head: Head = None,
) -> responses.TrainingReport:
    """Returns the output and the attention of one head at a training step."""
    model = load_at_step(_manager(call.server).run, step)
    call.require_short(model.tokenizers[0], text, "text")
    e = explain(replace(model, network=copy_with_deadline(model.network, call.deadline)), text)
    return serializers.training_report(step, e, attention, head)
