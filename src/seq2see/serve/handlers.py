"""Every question of the API, answered by the library. All of it runs in worker threads, and this is where torch comes in."""

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, replace
from pathlib import Path

from torch import Tensor

from seq2see.api import Model
from seq2see.decode.search import Search
from seq2see.directory import BUNDLED
from seq2see.inspect import alignment, attention_flow, logit_attribution, logit_lens, token_similarity
from seq2see.inspect.explain import Explanation, explain
from seq2see.inspect.interventions import intervene
from seq2see.inspect.weights import weights
from seq2see.serve import interventions, requests, responses, serializers
from seq2see.serve.lessons import Learn, named
from seq2see.serve.model_registry import Shelf
from seq2see.serve.tensors import Floats, floats
from seq2see.serve.trace_store import Kept, Traces
from seq2see.serve.workers import Clock, Limits, Refusal, near
from seq2see.similarity import Measure
from seq2see.text.tokenizer import Tokenizer
from seq2see.train.run_log import History, thinned


class Answers:
    def __init__(self, folders: dict[str, Path | None], limits: Limits) -> None:
        self.limits = limits
        self.shelf = Shelf(folders, limits.snapshots)
        self.traces = Traces(limits)
        self.learn = Learn()

    # Models

    def models(self) -> responses.Models:
        return responses.Models(models=list(self.shelf.cards()))

    def weights(self, name: str, step: int | None) -> responses.Weights:
        model = self.shelf.model(self.shelf.named(name), step)
        found = [responses.Weight(**asdict(weight)) for weight in weights(model.network)]
        return responses.Weights(model=name, step=step, weights=found)

    def weight(self, name: str, weight: str, step: int | None, index: str) -> Floats:
        known = self.shelf.model(self.shelf.named(name), step).network.state_dict()
        if weight not in known:
            raise Refusal(
                404, f'no weight is called "{weight}"', near(weight, known, f"/api/models/{name}/weights"), "weight"
            )
        return floats(known[weight], index, self.limits.answer_bytes)

    def tokens(self, name: str) -> responses.Tokens:
        return responses.Tokens(**serializers.tokens(self.shelf.model(self.shelf.named(name))))

    def history(self, name: str) -> responses.History:
        found = History.of(self.shelf.folders[self.shelf.named(name)] or BUNDLED)
        steps = [responses.Logged(step=row["step"], loss=row["loss"]) for row in thinned(found.steps)]
        validations = [
            responses.Validated(step=row["step"], loss=row["loss"], bleu=row.get("bleu")) for row in thinned(found.validations)
        ]  # fmt: skip
        return responses.History(model=name, steps=steps, validations=validations)

    # Writing

    def translate(self, body: requests.Translate, clock: Clock) -> responses.Translation:
        name, model = self._model(body, clock)
        self._measure(model.tokenizers[0], body.text, "text")
        search = Search(beam=body.beam, nbest=body.nbest, length_penalty=body.length_penalty)
        with self._reaching(body, model, body.text, search):
            (found,) = model.hypotheses(
                [body.text], beam=body.beam, nbest=body.nbest, length_penalty=body.length_penalty
            )
        hypotheses = [responses.Hypothesis(**serializers.hypothesis(model, one)) for one in found]
        return responses.Translation(model=name, step=body.step, hypotheses=hypotheses)

    def generate(self, body: requests.Generate, clock: Clock) -> Iterator[bytes]:
        """Lines of JSON: pieces of text, then the whole."""
        _, model = self._model(body, clock)
        self._measure(model.tokenizers[0], body.prompt, "prompt")
        whole = ""
        with self._reaching(body, model, body.prompt, Search()):
            pieces = model.stream(
                body.prompt, tokens=body.tokens, temperature=body.temperature, top_k=body.top_k, top_p=body.top_p,
                seed=body.seed,
            )  # fmt: skip
            for piece in pieces:
                whole += piece
                yield _line(text=piece)
        yield _line(done=True, text=whole)

    # Traces

    def trace(self, body: requests.Explain, clock: Clock) -> responses.Manifest:
        name, model = self._model(body, clock)
        for tokenizer, text, where in zip(
            model.tokenizers, (body.text, body.target or ""), ("text", "target"), strict=True
        ):
            self._measure(tokenizer, text, where)
        search = Search(
            beam=body.beam, longest=body.tokens, temperature=body.temperature, top_k=body.top_k, top_p=body.top_p,
            seed=body.seed,
        )  # fmt: skip
        e, before = explain(model, body.text, target=body.target, search=search), None
        if body.interventions:
            before, made = e, interventions.interventions(body.interventions, e, self.traces)
            e = explain(model, body.text, target=body.target, search=search, interventions=made)
        manifest = responses.Manifest(**serializers.manifest(self.traces.new_id(), name, body.step, e, before))
        # If the model was an earlier one, the trace does not keep it alive.
        self.traces.add(Kept(manifest, replace(e, model=self.shelf.model(name))))
        return manifest

    def manifest(self, id: str) -> responses.Manifest:
        return self.traces[id].manifest

    def tensor(self, id: str, name: str, index: str) -> Floats:
        kept = self.traces[id]
        known = [tensor.name for tensor in kept.manifest.tensors]
        if name not in known:
            raise Refusal(404, f'"{name}" is not in this trace', near(name, known, f"/api/traces/{id}"), "name")
        with kept.lock:
            return floats(kept.explanation.trace[name, 0], index, self.limits.answer_bytes)

    # Readings

    def alignment(self, id: str, layer: int, head: int | None, clock: Clock) -> responses.Alignment:
        with self._explained(id, clock) as e:
            found = alignment.word_alignment(e, (alignment.View(layer, head),))
        return responses.Alignment(
            sources=list(found.sources), targets=list(found.targets), weights=found.weights.tolist(),
            links=[responses.Link(source=source, target=target) for source, target in found.links],
        )  # fmt: skip

    def entropies(self, id: str, clock: Clock) -> responses.Entropies:
        with self._explained(id, clock) as e:
            found = attention_flow.entropies(e)
        return responses.Entropies(entropies={name: heads.tolist() for name, heads in found.items()})

    def rollout(self, id: str, stack: attention_flow.Stack, index: str, clock: Clock) -> Floats:
        with self._explained(id, clock) as e:
            return self._floats(attention_flow.rollout(e, stack), index)

    def ablations(self, id: str, attention: str, index: str, clock: Clock) -> Floats:
        with self._explained(id, clock) as e:
            known = attention_flow.attentions(e)
            if attention not in known:
                raise Refusal(
                    404,
                    f'no attention is called "{attention}"',
                    near(attention, known, f"/api/traces/{id}"),
                    "attention",
                )
            return self._floats(attention_flow.ablations(e, attention), index)

    def similarities(self, id: str, place: str, measure: Measure, index: str, clock: Clock) -> Floats:
        with self._explained(id, clock) as e:
            return self._floats(token_similarity.similarities(e, place, measure), index)

    def lens(self, id: str, top: int, clock: Clock) -> responses.Lens:
        with self._explained(id, clock) as e:
            found = logit_lens.lens(e, top)
        return responses.Lens(
            places=list(found.places), readings=[[_reading(one) for one in row] for row in found.readings]
        )

    def contributions(
        self, id: str, row: int, token: int | None, against: int | None, clock: Clock
    ) -> responses.Contributions:
        with self._explained(id, clock) as e:
            found = logit_attribution.contributions(e, row, token, against)
        return responses.Contributions(
            row=found.row, token=found.token, against=found.against, logit=found.logit,
            parts=[responses.Part(place=part.place, head=part.head, logit=part.logit) for part in found.parts],
        )  # fmt: skip

    def alternatives(self, id: str, row: int, top: int, clock: Clock) -> responses.Alternatives:
        with self._explained(id, clock) as e:
            found = logit_lens.alternatives(e, row, top)
            row = e.row(row)
        return responses.Alternatives(row=row, alternatives=[responses.Alternative(**asdict(one)) for one in found])

    def senses(self, body: requests.Senses, clock: Clock) -> responses.Senses:
        _, model = self._model(body, clock)
        for number, sentence in enumerate(body.sentences):
            self._measure(model.tokenizers[0], sentence, f"sentences.{number}")
        found = token_similarity.senses(model, body.word, body.sentences)
        return responses.Senses(
            word=found.word, sentences=list(found.sentences), places=list(found.places), vectors=found.vectors.tolist(),
            static=found.static.tolist(), cosines=found.cosines.tolist(), to_static=found.to_static.tolist(),
        )  # fmt: skip

    # Lessons

    def lessons(self) -> responses.Lessons:
        return self.learn.all()

    def lesson(self, name: str, body: requests.Lesson, clock: Clock) -> responses.Lesson:
        lesson, looked, model = named(name), None, None
        if "model" in lesson.defaults():
            looked = self.shelf.named(body.model)
            model = self.shelf.own(looked, None, clock)
        told = self.learn.tell(lesson, body.given, model, clock)
        return responses.Lesson(name=name, title=lesson.title, model=looked, **told)

    # What they share

    def _model(self, body: requests.OfModel, clock: Clock) -> tuple[str, Model]:
        name = self.shelf.named(body.model)
        return name, self.shelf.own(name, body.step, clock)

    def _measure(self, tokenizer: Tokenizer, text: str, where: str) -> None:
        tokens = len(tokenizer.encode(text))
        if tokens > self.limits.tokens:
            raise Refusal(
                422, f"{tokens:,} tokens, where {self.limits.tokens:,} are the most", "shorten the text", where
            )

    def _reaching(
        self, body: requests.Reaching, model: Model, text: str, search: Search
    ) -> AbstractContextManager[None]:
        """The model under the request's interventions; untouched, and as fast as ever, where there are none."""
        if not body.interventions:
            return nullcontext()
        before = explain(model, text, search=search)
        return intervene(model.network, *interventions.interventions(body.interventions, before, self.traces))

    @contextmanager
    def _explained(self, id: str, clock: Clock) -> Iterator[Explanation]:
        kept = self.traces[id]
        with kept.lock:
            yield replace(
                kept.explanation, model=self.shelf.own(kept.manifest.model, kept.manifest.step, clock)
            )  # fmt: skip

    def _floats(self, tensor: Tensor, index: str) -> Floats:
        return floats(tensor, index, self.limits.answer_bytes)


def _reading(found: logit_lens.Reading) -> responses.Reading:
    top = [responses.Guess(token=token, probability=probability) for token, probability in found.top]
    return responses.Reading(top=top, probability=found.probability, rank=found.rank)


def _line(**fields: object) -> bytes:
    return json.dumps(fields, ensure_ascii=False).encode() + b"\n"
