"""Endpoints for models, generation, media, traces and lessons."""

import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from dataclasses import replace
from typing import Annotated, Any

from fastapi import Depends, Request
from fastapi.responses import Response, StreamingResponse

from seq2see.config.search import Search
from seq2see.inspect.explain import explain
from seq2see.inspect.interventions import InterventionError
from seq2see.inspect.weights import get_weight, list_weights
from seq2see.server.explore import requests, responses
from seq2see.server.explore.api import (
    Call,
    Index,
    Name,
    ServerState,
    Step,
    TraceId,
    WorkerRouter,
    binary,
    require_text_model,
)
from seq2see.server.explore.app import error_response
from seq2see.server.explore.interventions import build_interventions
from seq2see.server.explore.lessons import LessonList, LessonResult, find_lesson, list_lessons
from seq2see.server.explore.options import UPLOAD_PATH
from seq2see.server.explore.stores import StoredTrace
from seq2see.server.explore.tensors import TensorBytes
from seq2see.server.explore.training import validations
from seq2see.server.http.errors import ApiError, suggest
from seq2see.server.http.workers import WorkerPool, begin
from seq2see.storage.foreign_model import find_reader
from seq2see.train.run_log import RunLog, downsample
from seq2see.translate.translator import Translator
from seq2see.translate.warning_log import WarningLog

router = WorkerRouter()


@router.endpoint("GET", "/api/models", tags=["models"])
def models(call: Call) -> responses.ModelList:
    """Lists the models with their configuration, scores and training snapshots."""
    registry = call.server.registry
    return responses.ModelList(models=[registry.info(name) for name in registry.names])


@router.endpoint("GET", "/api/models/{model}/weights", tags=["models"])
def weights(call: Call, model: Name, step: Step = None) -> responses.WeightList:
    """Lists the weights: shape, component, and which rows are W_Q, W_K and so on."""
    network = call.server.registry.load(model, step).network
    return responses.WeightList(model=model, step=step, weights=list_weights(network))


@router.endpoint("GET", "/api/models/{model}/weights/{weight}", tags=["models"])
def weight(call: Call, model: Name, weight: Name, step: Step = None, index: Index = "") -> TensorBytes:
    """Returns a weight tensor or a slice of it."""
    network = call.server.registry.load(model, step).network
    names = network.weight_names(network.config)
    if weight not in names:
        hint = suggest(weight, names, f"/api/models/{model}/weights")
        raise ApiError(404, f'unknown weight "{weight}"', hint, "weight")
    return call.tensor(get_weight(network, weight), index)


@router.endpoint("GET", "/api/models/{model}/vocabulary", tags=["models"])
def vocabulary(call: Call, model: Name) -> responses.Vocabulary:
    """Returns the text of every token: the columns of the logits."""
    return responses.vocabulary(call.server.registry.load(model))


@router.endpoint("GET", "/api/models/{model}/history", tags=["models"])
def history(call: Call, model: Name) -> responses.History:
    """Returns the training loss and the validations from the training log."""
    directory = call.server.registry.directory(model)
    log = None if find_reader(directory) else RunLog.load(directory)
    steps = [responses.TrainingPoint.model_validate(row) for row in (downsample(log.steps) if log else ())]
    return responses.History(model=model, steps=steps, validations=validations(log))


@router.endpoint("POST", "/api/translate", tags=["generation"])
def translate(call: Call, body: requests.TranslateRequest) -> responses.Translation:
    """Translates a text and returns the best hypotheses of each sentence with the log-probability of every token."""
    name, model = call.load(body)
    require_text_model(name, model)
    call.require_short(model.tokenizers[0], body.text, "text")
    notes: list[str] = []
    with call.interventions(body, model, body.text, body.search):
        (found,) = Translator(model, WarningLog(notes.append), body.search).translate_by_sentence([body.text], ["text"])
    sentences = [
        responses.TranslatedSentence(
            source=sentence.source,
            hypotheses=[responses.hypothesis(model, one) for one in sentence.nbest],
            **sentence.assessment.to_dict(),
        )
        for sentence in found.sentences
    ]
    return responses.Translation(
        model=name,
        step=body.step,
        translation=found.text,
        sentences=sentences,
        notes=notes,
        **found.assessment.to_dict(),
    )


STREAM_RESPONSE: dict[int | str, dict[str, Any]] = {
    200: {
        "description": 'JSON lines: {"text": piece} as it is generated, then {"done": true, "text": all}; or an ErrorResponse.',
        "content": {"application/x-ndjson": {"schema": {"type": "string"}}},
    }
}


@router.post("/api/generate", response_class=Response, responses=STREAM_RESPONSE, tags=["generation"])
async def generate(request: Request, body: requests.GenerateRequest) -> Response:
    """Streams generated text."""
    server: ServerState = request.app.state.api.state
    workers: WorkerPool = request.app.state.workers
    pieces = await begin(workers.stream(lambda deadline: _generate(Call(server, deadline), body)))

    async def lines() -> AsyncGenerator[bytes]:
        async with aclosing(pieces):
            try:
                async for piece in pieces:
                    yield piece
            except ApiError as error:
                yield bytes(error_response(error, "/api/generate").body) + b"\n"

    return StreamingResponse(lines(), media_type="application/x-ndjson")


def _generate(call: Call, body: requests.GenerateRequest) -> Iterator[bytes]:
    """Yields lines of JSON: pieces of the text, then the whole text."""
    _, model = call.load(body)
    prompt = call.source(model, body.prompt, "prompt")
    text = ""
    with call.interventions(body, model, prompt, Search()):
        for piece in model.stream(prompt, **vars(body.search)):
            text += piece
            yield _json_line(text=piece)
    yield _json_line(done=True, text=text, unknown=model.unknown_words(body.prompt))


def _json_line(**fields: object) -> bytes:
    return json.dumps(fields, ensure_ascii=False).encode() + b"\n"


async def _body(request: Request) -> bytes:
    return await request.body()


_FILE = {"application/octet-stream": {"schema": {"type": "string", "format": "binary", "minLength": 1}}}


@router.endpoint(
    "POST", UPLOAD_PATH, 201, tags=["media"], openapi_extra={"requestBody": {"required": True, "content": _FILE}}
)
def add_media(call: Call, data: Annotated[bytes, Depends(_body)]) -> responses.Media:
    """Stores a picture or sound for a while, the content of its file; its id is the text of a trace request."""
    return responses.Media(id=call.server.media.add(data))


@router.endpoint("GET", "/api/media/{id}", tags=["media"], responses=binary(200, "The file as it was sent."))
def media(call: Call, id: TraceId) -> bytes:
    """Returns the content of a stored picture or sound."""
    return call.server.media.path(id, "id").read_bytes()


@router.endpoint("POST", "/api/traces", 201, tags=["traces"])
def create_trace(call: Call, body: requests.TraceRequest) -> responses.Trace:
    """Traces a forward pass over a text and its output, and stores it.

    With interventions, also returns what they changed in the output.
    """
    name, model = call.load(body)
    text = call.source(model, body.text, "text")
    call.require_short(model.tokenizers[1], body.target or "", "target")
    e, before = explain(model, text, target=body.target, search=body.search), None
    if body.interventions:
        before, interventions = e, build_interventions(body.interventions, e, call.server.traces)
        try:
            e = explain(model, text, target=body.target, search=body.search, interventions=interventions)
        except InterventionError as error:
            raise ApiError(422, str(error), location="interventions") from error
    e = replace(e, source=body.text)
    trace = responses.trace(call.server.traces.new_id(), name, body.step, e, before)
    # A stored trace refers to the final model, so that it does not keep a snapshot in memory.
    final = replace(call.server.registry.load(name), tokenizers=model.tokenizers)
    call.server.traces.add(StoredTrace(trace, replace(e, model=final)))
    return trace


@router.endpoint("GET", "/api/traces/{id}", tags=["traces"])
def trace(call: Call, id: TraceId) -> responses.Trace:
    """Returns the tokens of a stored trace and lists its tensors."""
    return call.server.traces[id].info


@router.endpoint("GET", "/api/traces/{id}/tensors/{name}", tags=["traces"])
def tensor(call: Call, id: TraceId, name: Name, index: Index = "") -> TensorBytes:
    """Returns a tensor of a trace, such as `decoder.1.cross.weights`, or a slice of it."""
    stored = call.server.traces[id]
    known = [tensor.name for tensor in stored.info.tensors]
    if name not in known:
        raise ApiError(404, f'unknown tensor "{name}"', suggest(name, known, f"/api/traces/{id}"), "name")
    with stored.lock:
        return call.tensor(stored.explanation.trace[name, 0], index)


@router.endpoint("GET", "/api/lessons", tags=["lessons"])
def lessons(call: Call) -> LessonList:
    """Lists the lessons and their settings, in the order of the course."""
    return list_lessons()


@router.endpoint("POST", "/api/lessons/{lesson}", tags=["lessons"])
def lesson(call: Call, lesson: Name, body: requests.LessonRequest) -> LessonResult:
    """Computes a lesson with the default settings or with others."""
    found, server = find_lesson(lesson), call.server
    if found.training_seconds:
        call.deadline.seconds = server.limits.training_timeout
    if "model" not in found.defaults():
        return server.lesson_runner.run(found, body.settings, None, None, call.deadline)
    name = server.registry.resolve(body.model)
    model = server.registry.load_copy(name, None, call.deadline)
    require_text_model(name, model)
    return server.lesson_runner.run(found, body.settings, name, model, call.deadline)
