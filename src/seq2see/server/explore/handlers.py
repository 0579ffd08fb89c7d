"""The implementation of every endpoint, on top of the library. Runs in worker threads; this is where torch is imported."""

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

from torch import Tensor

from seq2see.api import Model
from seq2see.config import InferencePrecision
from seq2see.data.media.reader import MediaReader
from seq2see.data.tokenizer import Tokenizer
from seq2see.decode.search import Search
from seq2see.errors import UserError
from seq2see.inspect.alignment import LayerHead, word_alignment
from seq2see.inspect.attention_flow import Stack as RolloutStack
from seq2see.inspect.attention_flow import attention_names, attention_rollout, head_ablation
from seq2see.inspect.embedding_space import Stack
from seq2see.inspect.explain import Explanation, explain
from seq2see.inspect.interventions import intervene
from seq2see.inspect.logit_attribution import logit_attribution
from seq2see.inspect.logit_lens import LensReading, alternatives, logit_lens, next_token
from seq2see.inspect.similarity import Measure
from seq2see.inspect.token_similarity import contextual_embeddings, token_similarity
from seq2see.inspect.weights import get_weight
from seq2see.server.explore import requests, responses, serializers
from seq2see.server.explore.interventions import build_interventions
from seq2see.server.explore.lessons import LessonRunner, find_lesson, list_lessons
from seq2see.server.explore.media_store import MediaStore
from seq2see.server.explore.model_registry import ModelRegistry, copy_with_deadline
from seq2see.server.explore.placement import Placement, nearest_by_layer
from seq2see.server.explore.tensors import TensorBytes, tensor_bytes
from seq2see.server.explore.trace_store import StoredTrace, TraceStore
from seq2see.server.explore.workers import ApiError, Deadline, Limits, suggest
from seq2see.storage.assessment import Assessment
from seq2see.storage.foreign_model import find_reader
from seq2see.train.run_log import RunLog, downsample
from seq2see.train.saved_weights import load_at_step
from seq2see.translate.translator import Translator, one_line
from seq2see.translate.warning_log import WarningLog


class Handlers:
    def __init__(
        self, directories: dict[str, Path], limits: Limits, device: str = "cpu",
        precision: InferencePrecision = "float32",
    ) -> None:  # fmt: skip
        self.limits = limits
        self.registry = ModelRegistry(directories, limits.max_snapshots, device, precision)
        self.traces = TraceStore(limits)
        self.media = MediaStore(limits)
        self.lesson_runner = LessonRunner()
        self.placement = Placement()

    # Models

    def models(self) -> responses.ModelList:
        return responses.ModelList(models=[self.registry.info(name) for name in self.registry.names])

    def weights(self, name: str, step: int | None) -> responses.WeightList:
        model = self.registry.load(name, step)
        return responses.WeightList(model=name, step=step, weights=serializers.weight_infos(model.network))

    def weight(self, name: str, weight: str, step: int | None, index: str) -> TensorBytes:
        network = self.registry.load(name, step).network
        names = network.weight_names(network.config)
        if weight not in names:
            hint = suggest(weight, names, f"/api/models/{name}/weights")
            raise ApiError(404, f'unknown weight "{weight}"', hint, "weight")
        return self._tensor_bytes(get_weight(network, weight), index)

    def vocabulary(self, name: str) -> responses.Vocabulary:
        return serializers.vocabulary(self.registry.load(name))

    def history(self, name: str) -> responses.History:
        directory = self.registry.directory(name)
        if find_reader(directory):
            return responses.History(model=name, steps=[], validations=[])
        log = RunLog.load(directory)
        steps = [responses.TrainingPoint(step=row["step"], loss=row["loss"]) for row in downsample(log.steps)]
        validations = [
            responses.ValidationPoint(step=row["step"], loss=row["loss"], bleu=row.get("bleu"))
            for row in downsample(log.validations)
        ]
        return responses.History(model=name, steps=steps, validations=validations)

    # Generation

    def add_media(self, data: bytes) -> responses.Media:
        return responses.Media(id=self.media.add(data))

    def translate(self, body: requests.TranslateRequest, deadline: Deadline) -> responses.Translation:
        name, model = self._load(body, deadline)
        self._require_text_model(name, model)
        self._require_short(model.tokenizers[0], body.text, "text")
        search = Search(beam=body.beam, nbest=body.nbest, length_penalty=body.length_penalty)
        notes: list[str] = []
        with self._interventions(body, model, body.text, search):
            (found,) = Translator(model, WarningLog(notes.append), search).hypotheses([body.text], ["text"])
        text, nbest_lists, assessments = found
        sentences = [
            responses.TranslatedSentence(
                source=source, hypotheses=[serializers.hypothesis(model, one) for one in nbest], **assessment.to_dict()
            )
            for source, nbest, assessment in zip(text.sentences, nbest_lists, assessments, strict=True)
        ]
        translation = text.join([one_line(sentence.hypotheses[0].text) for sentence in sentences])
        return responses.Translation(
            model=name, step=body.step, translation=translation, sentences=sentences, notes=notes,
            **Assessment.of_text(assessments).to_dict(),
        )  # fmt: skip

    def generate(self, body: requests.GenerateRequest, deadline: Deadline) -> Iterator[bytes]:
        """Yields lines of JSON: pieces of the text, then the whole text."""
        _, model = self._load(body, deadline)
        prompt = self._source(model, body.prompt, "prompt")
        text = ""
        with self._interventions(body, model, prompt, Search()):
            pieces = model.stream(
                prompt, max_new_tokens=body.max_new_tokens, temperature=body.temperature, top_k=body.top_k,
                top_p=body.top_p, seed=body.seed,
            )  # fmt: skip
            for piece in pieces:
                text += piece
                yield _json_line(text=piece)
        yield _json_line(done=True, text=text, unknown=model.unknown_words(body.prompt))

    # Traces

    def create_trace(self, body: requests.TraceRequest, deadline: Deadline) -> responses.Trace:
        name, model = self._load(body, deadline)
        text = self._source(model, body.text, "text")
        self._require_short(model.tokenizers[1], body.target or "", "target")
        search = Search(
            beam=body.beam, max_new_tokens=body.max_new_tokens, temperature=body.temperature, top_k=body.top_k,
            top_p=body.top_p, seed=body.seed,
        )  # fmt: skip
        e, before = explain(model, text, target=body.target, search=search), None
        if body.interventions:
            before, interventions = e, build_interventions(body.interventions, e, self.traces)
            e = explain(model, text, target=body.target, search=search, interventions=interventions)
        e = replace(e, source=body.text)
        trace = serializers.trace(self.traces.new_id(), name, body.step, e, before)
        # A stored trace refers to the final model, so that it does not keep a snapshot in memory.
        final = replace(self.registry.load(name), tokenizers=model.tokenizers)
        self.traces.add(StoredTrace(trace, replace(e, model=final)))
        return trace

    def trace(self, id: str) -> responses.Trace:
        return self.traces[id].info

    def tensor(self, id: str, name: str, index: str) -> TensorBytes:
        stored = self.traces[id]
        known = [tensor.name for tensor in stored.info.tensors]
        if name not in known:
            raise ApiError(404, f'unknown tensor "{name}"', suggest(name, known, f"/api/traces/{id}"), "name")
        with stored.lock:
            return self._tensor_bytes(stored.explanation.trace[name, 0], index)

    # Analyses

    def alignment(self, id: str, layer: int, head: int | None, deadline: Deadline) -> responses.Alignment:
        with self._explanation(id, deadline) as e:
            found = word_alignment(e, (LayerHead(layer, head),))
        return responses.Alignment(
            source_words=list(found.source_words), target_words=list(found.target_words), weights=found.weights.tolist(),
            links=[responses.AlignmentLink(source=source, target=target) for source, target in found.links],
        )  # fmt: skip

    def attention_entropy(self, id: str, deadline: Deadline) -> responses.AttentionEntropy:
        with self._explanation(id, deadline) as e:
            return serializers.entropy(e)

    def attention_rollout(self, id: str, stack: RolloutStack, index: str, deadline: Deadline) -> TensorBytes:
        with self._explanation(id, deadline) as e:
            return self._tensor_bytes(attention_rollout(e, stack), index)

    def head_ablation(self, id: str, attention: str, index: str, deadline: Deadline) -> TensorBytes:
        with self._explanation(id, deadline) as e:
            known = attention_names(e)
            if attention not in known:
                hint = suggest(attention, known, f"/api/traces/{id}")
                raise ApiError(404, f'unknown attention layer "{attention}"', hint, "attention")
            return self._tensor_bytes(head_ablation(e, attention), index)

    def token_similarity(self, id: str, name: str, measure: Measure, index: str, deadline: Deadline) -> TensorBytes:
        with self._explanation(id, deadline) as e:
            return self._tensor_bytes(token_similarity(e, name, measure), index)

    def logit_lens(self, id: str, top: int, deadline: Deadline) -> responses.LogitLens:
        with self._explanation(id, deadline) as e:
            found = logit_lens(e, top)
        readings = [[_lens_reading(reading) for reading in rows] for rows in found.readings]
        return responses.LogitLens(layers=list(found.layers), readings=readings)

    def logit_attribution(
        self, id: str, row: int, token: int | None, against: int | None, deadline: Deadline
    ) -> responses.LogitAttribution:
        with self._explanation(id, deadline) as e:
            return responses.LogitAttribution.model_validate(logit_attribution(e, row, token, against))

    def alternatives(self, id: str, row: int, top: int, deadline: Deadline) -> responses.Alternatives:
        with self._explanation(id, deadline) as e:
            found = alternatives(e, row, top)
            row = e.resolve_row(row)
        return responses.Alternatives(
            row=row, alternatives=[responses.Alternative.model_validate(alternative) for alternative in found]
        )

    def next_token(
        self, id: str, row: int, search: Search, top: int, deadline: Deadline
    ) -> responses.NextToken:  # fmt: skip
        with self._explanation(id, deadline) as e:
            return responses.NextToken.model_validate(next_token(e, row, search, top))

    def top_tokens(self, id: str, count: int, deadline: Deadline) -> responses.TopTokens:
        with self._explanation(id, deadline) as e:
            return serializers.top_tokens(e, count)

    def contextual_embeddings(
        self, body: requests.ContextualEmbeddingsRequest, deadline: Deadline
    ) -> responses.ContextualEmbeddings:
        name, model = self._load(body, deadline)
        self._require_text_model(name, model)
        for number, sentence in enumerate(body.sentences):
            self._require_short(model.tokenizers[0], sentence, f"sentences.{number}")
        found = contextual_embeddings(model, body.word, body.sentences)
        return responses.ContextualEmbeddings(
            word=found.word, sentences=list(found.sentences), layers=list(found.layers), vectors=found.vectors.tolist(),
            static_embedding=found.static_embedding.tolist(), cosines=found.cosines.tolist(),
            cosines_to_static=found.cosines_to_static.tolist(),
        )  # fmt: skip

    def space(self, body: requests.SpaceRequest, deadline: Deadline) -> responses.Space:
        name, model = self._load(body, deadline)
        texts = {}
        for id in body.traces:
            info, texts[id] = self.traces[id].info, self.traces[id].explanation
            if (info.model, info.step) != (name, body.step):
                message = f'trace "{id}" is of "{info.model}" at step {info.step}, not of "{name}" at step {body.step}'
                raise ApiError(422, message, "trace the text with the model of this request", "traces")
        return self.placement.place(name, model, body, texts, deadline)

    def nearest_embeddings(
        self, id: str, stack: Stack, position: int, count: int, deadline: Deadline
    ) -> responses.NearestEmbeddings:
        with self._explanation(id, deadline) as e:
            return nearest_by_layer(e, stack, position, count)

    # Training

    def training_report(
        self, run: Path, step: int, text: str, attention: str, head: int | None, deadline: Deadline
    ) -> responses.TrainingReport:
        model = load_at_step(run, step)
        self._require_short(model.tokenizers[0], text, "text")
        e = explain(replace(model, network=copy_with_deadline(model.network, deadline)), text)
        return serializers.training_report(step, e, attention, head)

    # Lessons

    def lessons(self) -> responses.LessonList:
        return list_lessons()

    def lesson(self, name: str, body: requests.LessonRequest, deadline: Deadline) -> responses.LessonResult:
        lesson = find_lesson(name)
        if "model" not in lesson.defaults():
            return self.lesson_runner.run(lesson, body.settings, None, None, deadline)
        model_name = self.registry.resolve(body.model)
        model = self.registry.load_copy(model_name, None, deadline)
        self._require_text_model(model_name, model)
        return self.lesson_runner.run(lesson, body.settings, model_name, model, deadline)

    # Helpers

    def _load(self, body: requests.ModelRequest, deadline: Deadline) -> tuple[str, Model]:
        name = self.registry.resolve(body.model)
        model = self.registry.load_copy(name, body.step, deadline)
        if body.source_language or body.target_language:
            model = model.with_languages(body.source_language, body.target_language)
        return name, model

    def _source(self, model: Model, text: str, location: str) -> str:
        """Returns what the model reads: the text, or the path of the stored picture or sound with this id."""
        config = model.config.model
        if config.source != "tokens":
            path = self.media.path(text, location)
            try:
                rows = len(MediaReader(config).read(path))
            except UserError as error:
                raise ApiError(
                    422, str(error).replace(str(path), "the file"), "choose another file", location
                ) from None
            self._require_few(rows, self.limits.max_media_tokens, f"use shorter {config.source}", location)
            return str(path)
        self._require_short(model.tokenizers[0], text, location)
        return text

    def _require_text_model(self, name: str, model: Model) -> None:
        kind = model.config.model.source
        if kind != "tokens":
            raise ApiError(422, f'"{name}" reads {kind}, not text', "choose a model that reads text", "model")

    def _require_short(self, tokenizer: Tokenizer, text: str, location: str) -> None:
        self._require_few(len(tokenizer.encode(text)), self.limits.max_tokens, "shorten the text", location)

    def _require_few(self, tokens: int, limit: int, hint: str, location: str) -> None:
        if tokens > limit:
            raise ApiError(422, f"{tokens:,} tokens exceed the maximum of {limit:,}", hint, location)

    def _interventions(
        self, body: requests.InterventionRequest, model: Model, text: str, search: Search
    ) -> AbstractContextManager[None]:
        """Applies the request's interventions; without any, the model is unchanged and at full speed."""
        if not body.interventions:
            return nullcontext()
        before = explain(model, text, search=search)
        return intervene(model.network, *build_interventions(body.interventions, before, self.traces))

    @contextmanager
    def _explanation(self, id: str, deadline: Deadline) -> Iterator[Explanation]:
        stored = self.traces[id]
        with stored.lock:
            model = self.registry.load_copy(stored.info.model, stored.info.step, deadline)
            languages = stored.explanation.model.tokenizers
            yield replace(stored.explanation, model=replace(model, tokenizers=languages))

    def _tensor_bytes(self, tensor: Tensor, index: str) -> TensorBytes:
        return tensor_bytes(tensor, index, self.limits.max_response_bytes)


def _lens_reading(reading: LensReading) -> responses.LensReading:
    top = [responses.TokenProbability(token=token, probability=probability) for token, probability in reading.top]
    return responses.LensReading(top=top, probability=reading.probability, rank=reading.rank)


def _json_line(**fields: object) -> bytes:
    return json.dumps(fields, ensure_ascii=False).encode() + b"\n"
