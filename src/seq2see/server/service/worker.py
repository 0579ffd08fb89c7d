"""A worker process: loads the models and answers the front process over a socket, one JSON object per line.

    front → worker   {"id": 1, "operation": "translate", "model": "en-hi", "texts": ["How are you?"], …}
                     {"cancel": 1}, {"ping": true}
    worker → front   {"ready": {…}} once, then {"id": 1, "piece": …} while streaming and {"id": 1, "result" | "error": …};
                     {"id": null} after a ping

Every request has a thread, which waits most of the time: the models' schedulers decode for all of them.
"""

import base64
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from seq2see.api import Model, load
from seq2see.config.search import Search
from seq2see.data.framing import Framing
from seq2see.data.layout import Tokens
from seq2see.decode.constraints import Constraints
from seq2see.decode.generate import build_requests
from seq2see.decode.search import Hypothesis
from seq2see.errors import UserError, no_progress
from seq2see.formats import html
from seq2see.formats.documents import translate_content
from seq2see.formats.parts import Document, TranslationUnit, rebuild
from seq2see.formats.placeholders import PLACEHOLDER
from seq2see.formats.protected import protect
from seq2see.model.network import Network
from seq2see.server.service.completions import Completions, ContextLengthError
from seq2see.server.service.scheduler import DeadlineError, Job, QueueFullError, Scheduler
from seq2see.translate.translator import Translator, one_line
from seq2see.translate.warning_log import WarningLog

MAX_THREADS = 1000
EMBED_TEXTS = 64  # that are embedded before it is checked whether the client still waits
Message = dict[str, Any]


@dataclass(frozen=True)
class Answering:
    """A request while it is answered."""

    id: int
    client: str
    deadline: float  # by time.monotonic()
    jobs: list[Job] = field(default_factory=list)
    cancelled: threading.Event = field(default_factory=threading.Event)

    def schedule(self, scheduler: Scheduler, jobs: list[Job]) -> None:
        for job in jobs:
            job.flow, job.deadline = (self.client, str(self.id)), self.deadline
        self.jobs[:] = jobs
        scheduler.submit(jobs)
        if self.cancelled.is_set():
            self.cancel()

    def check(self) -> None:
        """Raises an error if nobody waits for the answer any longer. For work between the sentences, which the scheduler
        does not see."""
        if self.cancelled.is_set():
            raise CancelledError
        if time.monotonic() > self.deadline:
            raise DeadlineError("not finished in time: shorten the text")

    def cancel(self) -> None:
        self.cancelled.set()
        for job in list(self.jobs):
            job.future.cancel()


@dataclass(frozen=True)
class SharedDecoding:
    """Decodes the sentences of a request together with those of others: a model's `decode`."""

    scheduler: Scheduler
    answering: Answering
    tokens: list[int] = field(default_factory=lambda: [0, 0])  # read and generated

    def __call__(
        self,
        network: Network,
        sources: Sequence[Tokens],
        special_tokens: Framing,
        search: Search,
        prefixes: Sequence[Sequence[int]] = (),
        constraints: Sequence[Constraints | None] = (),
    ) -> list[list[Hypothesis]]:
        jobs: list[Job] = []
        for i, source in enumerate(sources):
            prompt = special_tokens.prompt_with(prefixes[i] if prefixes else ())
            for request in build_requests(network, i, source, prompt, search):
                job = Job.of(request, search, special_tokens)
                job.constraints = constraints[i] if constraints else None
                jobs.append(job)
        self.answering.schedule(self.scheduler, jobs)
        found = [job.future.result() for job in jobs]
        self.tokens[0] += sum(len(job.source) for job in jobs)
        self.tokens[1] += sum(len(best.tokens) for best, *_ in found)
        return found


class Worker:
    def __init__(self, connection: socket.socket, options: Message) -> None:
        self._connection, self._sending = connection, threading.Lock()
        self._answering: dict[int, Answering] = {}
        self._models = {
            name: load(path, options["device"], precision=options["precision"]).for_inference()
            for name, path in options["models"].items()
        }
        for name, model in self._models.items():
            if model.config.model.source != "tokens":
                raise UserError(f'"{name}" reads {model.config.model.source}: the service takes only models of text')
        self._schedulers = {
            name: Scheduler(model.network) for name, model in self._models.items() if model.config.model.has_decoder
        }
        self._embedding = threading.Lock()
        self._operations: dict[str, Callable[[Message, Answering], Iterator[Message]]] = {
            "translate": self._translate,
            "document": self._document,
            "generate": self._generate,
            "embed": self._embed,
            "statistics": self._statistics,
        }

    def run(self) -> None:
        """Answers requests until the front process closes the connection."""
        self._send({"ready": {name: _describe(model) for name, model in self._models.items()}})
        pool = ThreadPoolExecutor(MAX_THREADS)
        for line in self._connection.makefile("rb"):
            message = json.loads(line)
            if "ping" in message:
                self._send({"id": None})
                continue
            if "cancel" in message:
                if answering := self._answering.get(message["cancel"]):
                    answering.cancel()
                continue
            deadline = time.monotonic() + message.get("seconds", float("inf"))
            answering = Answering(message["id"], message.get("client", ""), deadline)
            self._answering[answering.id] = answering
            pool.submit(self._answer, message, answering)

    def _answer(self, message: Message, answering: Answering) -> None:
        reply: Message = {}
        try:
            answering.check()
            for reply in self._operations[message["operation"]](message, answering):
                if "piece" in reply:
                    self._send({"id": answering.id, **reply})
        except BaseException as error:  # also a PanicException of a library in Rust: every request gets an answer
            reply = {"error": str(error), "kind": _kind(error)}
            if reply["kind"] == "internal" and not answering.cancelled.is_set():
                sys.excepthook(type(error), error, error.__traceback__)
        finally:
            del self._answering[answering.id]
        self._send({"id": answering.id, **reply})

    def _send(self, message: Message) -> None:
        with self._sending:
            self._connection.sendall(json.dumps(message, ensure_ascii=False).encode(errors="surrogatepass") + b"\n")

    def _translator(self, message: Message, answering: Answering) -> tuple[Translator, list[int]]:
        """Returns a translator for a request, and the numbers of tokens that it will read and generate."""
        decode = SharedDecoding(self._schedulers[message["model"]], answering)
        model = replace(self._models[message["model"]], decode=decode)
        search = Search(beam=message["beam"], nbest=message.get("nbest", 1))
        return Translator(model, _SILENT, search, glossary=message["glossary"], check=answering.check), decode.tokens

    def _translate(self, message: Message, answering: Answering) -> Iterator[Message]:
        translator, tokens = self._translator(message, answering)
        texts, nbest, text = message["texts"], message["nbest"], translator.model.text
        locations = [""] * len(texts)
        if message["format"] == "html":
            nbest_lists = [[text] for text in _translate_html(protect(translator, PLACEHOLDER), texts)]
        elif nbest == 1:
            nbest_lists = [[text] for text in translator.translate(texts, locations)]
        else:
            nbest_lists = [
                [
                    found.split.join(
                        [one_line(text(each.nbest[min(i, len(each.nbest) - 1)])) for each in found.sentences]
                    )
                    for i in range(nbest)
                ]
                for found in translator.translate_by_sentence(texts, locations)
            ]
        yield {"result": {"translations": nbest_lists, "tokens": tokens}}

    def _document(self, message: Message, answering: Answering) -> Iterator[Message]:
        translator, tokens = self._translator(message, answering)
        content = base64.b64decode(message["content"])
        translated = translate_content(Path(message["name"]), content, translator, False, no_progress)
        yield {"result": {"content": base64.b64encode(translated).decode(), "tokens": tokens}}

    def _embed(self, message: Message, answering: Answering) -> Iterator[Message]:
        model = self._models[message["model"]]
        vectors: list[Tensor] = []
        tokens = 0
        for first in range(0, len(message["texts"]), EMBED_TEXTS):
            texts = message["texts"][first : first + EMBED_TEXTS]
            with self._embedding:
                answering.check()
                vectors += model.embed(texts)
            tokens += sum(len(model.tokenizers[0].encode(text)) for text in texts)
        data = [base64.b64encode(vector.numpy().astype("<f4").tobytes()).decode() for vector in vectors]
        yield {"result": {"vectors": data, "tokens": [tokens, 0]}}

    def _generate(self, message: Message, answering: Answering) -> Iterator[Message]:
        completions = Completions(self._models[message["model"]], message)
        answering.schedule(self._schedulers[message["model"]], completions.jobs)
        return completions.run()

    def _statistics(self, message: Message, answering: Answering) -> Iterator[Message]:
        yield {
            "result": {
                name: {"waiting": s.waiting, "running": s.running, "steps": s.steps, "row_steps": s.row_steps}
                for name, s in self._schedulers.items()
            }
        }


_SILENT = WarningLog(lambda text: None)


def _kind(error: BaseException) -> str:
    kinds: dict[type[BaseException], str] = {
        QueueFullError: "queue",
        DeadlineError: "deadline",
        ContextLengthError: "context",
    }
    return kinds.get(type(error), "user" if isinstance(error, UserError) else "internal")


def _describe(model: Model) -> Message:
    return {"shape": model.config.model.shape, "max_positions": model.config.model.max_positions}


def _translate_html(translator: Translator, texts: Sequence[str]) -> list[str]:
    documents = [html.read(Document(text)) for text in texts]
    units = [part for parts in documents for part in parts if isinstance(part, TranslationUnit)]
    translations = iter(translator.translate([unit.source for unit in units], [""] * len(units)))
    return [rebuild(parts, translations) for parts in documents]


def _end_process(arguments: threading.ExceptHookArgs) -> None:
    """Ends the process when a thread fails: without its decoding thread it would never answer. The front starts another."""
    threading.__excepthook__(arguments)
    os._exit(1)


def main() -> None:
    threading.excepthook = _end_process
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # the front process says when to stop
        signal.signal(number, signal.SIG_IGN)
    connection = socket.socket(fileno=int(sys.argv[1]))
    try:
        worker = Worker(connection, json.loads(sys.argv[2]))
    except UserError as error:
        connection.sendall(json.dumps({"failed": str(error)}).encode() + b"\n")
        os._exit(1)
    worker.run()
    os._exit(0)  # skips torch's slow teardown


if __name__ == "__main__":
    main()
