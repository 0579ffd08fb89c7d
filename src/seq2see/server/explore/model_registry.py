"""The models that the server offers, loaded on first use.

Each request gets a copy of the module that shares the weights and nothing else, so that hooks and interventions of one
request never affect another. The copy checks the request's deadline before every decoding step.
"""

import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import MethodType
from typing import Any

from torch import Tensor

from seq2see.api import Model, load
from seq2see.config import InferencePrecision
from seq2see.errors import UserError
from seq2see.model.network import Network
from seq2see.server.explore import responses
from seq2see.server.explore.options import unused_name
from seq2see.server.explore.responses import ModelInfo
from seq2see.server.http.errors import ApiError, suggest
from seq2see.server.http.workers import Deadline
from seq2see.storage.bundled import About
from seq2see.storage.directory import load_files, snapshots


class ModelRegistry:
    def __init__(
        self, directories: dict[str, Path], max_snapshots: int, device: str, precision: InferencePrecision
    ) -> None:
        self._device, self._precision = device, precision
        self._directories = directories
        self._max_snapshots = max_snapshots
        self._models: OrderedDict[tuple[str, int | None], Model] = OrderedDict()  # by name and step of a snapshot
        self._lock = threading.RLock()
        self.info = cache(self._info)

    @property
    def names(self) -> list[str]:
        return list(self._directories)

    def add(self, directory: Path) -> str:
        """Adds a model, or replaces one of the same directory that has been trained further; returns its name."""
        with self._lock:
            known = {path.resolve(): name for name, path in self._directories.items()}
            name = known.get(directory.resolve()) or unused_name(directory.resolve().name, self._directories)
            self._directories[name] = directory
            self._models = OrderedDict((key, model) for key, model in self._models.items() if key[0] != name)
            self.info = cache(self._info)
            return name

    def resolve(self, name: str | None) -> str:
        """Returns the name of a known model; None is the first."""
        if name is None:
            return self.names[0]
        if name not in self._directories:
            raise ApiError(404, f'unknown model "{name}"', suggest(name, self.names, "/api/models"), "model")
        return name

    def directory(self, name: str) -> Path:
        return self._directories[self.resolve(name)]

    def load(self, name: str, step: int | None = None) -> Model:
        """Returns a model, or its snapshot from an earlier training step; shared by all requests."""
        key = self.resolve(name), step
        if step is None and key in self._models:
            return self._models[key]
        directory = self._directories[key[0]]
        with self._lock:  # two requests must not load the same model twice
            if step is not None and step not in snapshots(directory):
                known = ", ".join(map(str, snapshots(directory))) or "none"
                raise ApiError(404, f'"{key[0]}" has no snapshot at step {step}', f"snapshots: {known}", "step")
            if key not in self._models:
                with _model_errors():
                    self._models[key] = load(directory, self._device, step=step, precision=self._precision)
            self._models.move_to_end(key)
            loaded = [each for each in self._models if each[1] is not None]
            for oldest in loaded[: max(len(loaded) - self._max_snapshots, 0)]:
                del self._models[oldest]
            return self._models[key]

    def load_copy(self, name: str, step: int | None, deadline: Deadline) -> Model:
        """Returns a copy of a model for one request."""
        model = self.load(name, step)
        return replace(model, network=copy_with_deadline(model.network, deadline))

    def _info(self, name: str) -> ModelInfo:
        """Reads the model's directory without loading its weights."""
        directory = self._directories[name]
        with _model_errors():
            files, about = load_files(directory), About.load(directory)
        return responses.model_info(name, files.config, files.tokenizers, files.scores, snapshots(directory), about)


@contextmanager
def _model_errors() -> Iterator[None]:
    """Reports a broken model directory as an error of the server, not of the request."""
    try:
        yield
    except UserError as error:
        raise ApiError(500, str(error), "repair the model directory and restart the server", "model") from error


def copy_with_deadline(network: Network, deadline: Deadline) -> Network:
    result = copy(network)
    result.use_engine = False  # it would run to the end without a check

    def decode(self: Network, *inputs: Any, **options: Any) -> Tensor:
        deadline.check()
        return type(self).decode(self, *inputs, **options)

    result.decode = MethodType(decode, result)  # type: ignore[method-assign]  # bound to the copy
    return result
