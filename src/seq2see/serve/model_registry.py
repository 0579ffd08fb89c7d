"""The models that the server was started with, loaded when they are first needed.

A request gets a copy of the module that shares the weights and nothing else: what listens to one copy, or reaches into it,
no other request can notice. The copy looks at the request's clock before every step.
"""

import json
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from types import MethodType
from typing import Any, Literal

from torch import Tensor

from seq2see.api import Model, load
from seq2see.config import Config
from seq2see.directory import BUNDLED, load_tokenizers, snapshots
from seq2see.errors import UserError
from seq2see.model.network import Network
from seq2see.model.summary import structure
from seq2see.serve.responses import ModelCard, Vocabulary
from seq2see.serve.workers import Clock, Refusal, near

KINDS: dict[str, Literal["translator", "language model", "encoder"]] = {
    "encoder-decoder": "translator", "decoder": "language model", "encoder": "encoder",
}  # fmt: skip


class Shelf:
    def __init__(self, folders: dict[str, Path | None], most_snapshots: int) -> None:
        self.folders, self.most_snapshots = folders, most_snapshots
        self._loaded: dict[str, Model] = {}
        self._earlier: OrderedDict[tuple[str, int], Model] = OrderedDict()
        self._loading = threading.RLock()
        self.card = cache(self._card)

    def named(self, name: str | None) -> str:
        if name is None:
            return next(iter(self.folders))
        if name not in self.folders:
            raise Refusal(404, f'no model is called "{name}"', near(name, self.folders, "/api/models"), "model")
        return name

    def model(self, name: str, step: int | None = None) -> Model:
        if step is None and name in self._loaded:
            return self._loaded[name]
        with self._loading:  # two requests do not load the same model twice
            if step is None:
                if name not in self._loaded:
                    with _its_own_fault():
                        self._loaded[name] = load(self.folders[name])
                return self._loaded[name]
            if step not in snapshots(self.folders[name]):
                known = ", ".join(map(str, snapshots(self.folders[name]))) or "none"
                raise Refusal(404, f'"{name}" has no snapshot of step {step}', f"it has: {known}", "step")
            if (name, step) not in self._earlier:
                with _its_own_fault():
                    self._earlier[name, step] = load(self.folders[name], step=step)
            self._earlier.move_to_end((name, step))
            while len(self._earlier) > self.most_snapshots:
                self._earlier.popitem(last=False)
            return self._earlier[name, step]

    def own(self, name: str, step: int | None, clock: Clock) -> Model:
        """A model for one request alone."""
        model = self.model(name, step)
        return replace(model, network=_timed(model.network, clock))

    def cards(self) -> Iterable[ModelCard]:
        return [self.card(name) for name in self.folders]

    def _card(self, name: str) -> ModelCard:
        """Read from the directory, without the weights."""
        folder = self.folders[name] or BUNDLED
        with _its_own_fault():
            config = Config.load(folder / "config.toml")
            source, target = load_tokenizers(folder)
        scores = folder / "scores.json"
        return ModelCard(
            name=name, kind=KINDS[config.model.shape], parameters=structure(config.model, name).parameters,
            vocabulary=Vocabulary(source=len(source), target=len(target), shared=source is target, kind=target.kind),
            snapshots=snapshots(folder), config=asdict(config),
            scores=json.loads(scores.read_text(encoding="utf-8")) if scores.is_file() else {},
        )  # fmt: skip


@contextmanager
def _its_own_fault() -> Iterator[None]:
    """What is wrong with a model's files is no fault of the request's."""
    try:
        yield
    except UserError as error:
        raise Refusal(500, str(error), "put the model right and start the server again", "model") from error


def _timed(transformer: Network, clock: Clock) -> Network:
    own = copy(transformer)

    def decode(self: Network, *inputs: Any, **options: Any) -> Tensor:
        clock.check()
        return type(self).decode(self, *inputs, **options)

    own.decode = MethodType(decode, own)  # type: ignore[method-assign]  # of a copy's copy, bound to that one
    return own
