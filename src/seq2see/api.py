"""The Python API: `load` a model, then translate, generate, explain and intervene."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self, Unpack

from seq2see.decode.search import Search, SearchOptions
from seq2see.directory import Precision, load_pipeline
from seq2see.inspect.explain import Explanation, explain
from seq2see.inspect.interventions import Intervention, ablate_head, intervene
from seq2see.pipeline import Pipeline


@dataclass(frozen=True)
class Model(Pipeline):
    """A pipeline that can also explain its output and run under interventions."""

    def explain(
        self, text: str, *, target: str | None = None, interventions: Sequence[Intervention] = (),
        **search: Unpack[SearchOptions],
    ) -> Explanation:  # fmt: skip
        """Translates or continues a text, or takes the given target, and traces every number that led to it."""
        return explain(self, text, target=target, interventions=interventions, search=Search(**search))

    @contextmanager
    def ablate_head(self, attention: str, head: int) -> Iterator[Self]:
        """Yields a copy of this model without one head of an attention such as `decoder.3.cross`; it shares the weights."""
        ablated = replace(self, network=copy(self.network))
        with intervene(ablated.network, ablate_head(attention, head)):
            yield ablated


def load(
    path: Path | str | None = None, device: str = "cpu", *, step: int | None = None, precision: Precision = "float32"
) -> Model:
    """Loads the model in a directory, or the bundled one; with `step`, the snapshot taken at that training step.

    The network is optimised for decoding in the given precision; int8 is for decoding on a CPU.
    """
    return Model(**vars(load_pipeline(path, device, step=step, precision=precision)))
