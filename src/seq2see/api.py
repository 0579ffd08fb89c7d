"""The Python API: `load` a model, then translate, generate, explain, intervene and save."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Self, Unpack, overload

from seq2see.config import InferencePrecision
from seq2see.config.extensions import load_extension
from seq2see.config.search import Search, SearchOptions
from seq2see.decode.optimize import block_weights
from seq2see.errors import UserError
from seq2see.model.taps import attach, attached_hooks
from seq2see.storage.directory import load_pipeline, save_pipeline
from seq2see.storage.pipeline import Pipeline
from seq2see.translate.segmentation import SplitText
from seq2see.translate.translator import Translator

if TYPE_CHECKING:
    from seq2see.inspect.explain import Explanation
    from seq2see.inspect.interventions import Intervention


@dataclass(frozen=True, repr=False)
class Model(Pipeline):
    """A pipeline for whole texts that can also explain its output and run under interventions.

    Thread-safe: several threads can use one model at the same time.
    """

    @overload
    def translate(  # type: ignore[overload-overlap]
        self, texts: str, *, glossary: Mapping[str, str] | None = None, **search: Unpack[SearchOptions]
    ) -> str: ...
    @overload
    def translate(
        self, texts: Sequence[str], *, glossary: Mapping[str, str] | None = None, **search: Unpack[SearchOptions]
    ) -> list[str]: ...
    def translate(
        self, texts: str | Sequence[str], *, glossary: Mapping[str, str] | None = None, **search: Unpack[SearchOptions]
    ) -> str | list[str]:
        """Translates a text, or each text of a list, sentence by sentence; the text between sentences is unchanged.

        A glossary has terms of the source and the translations to use for them. A model of pictures or sounds takes paths of
        files, and returns their texts.
        """
        if isinstance(texts, str):
            return self.translate([texts], glossary=glossary, **search)[0]
        if self.config.model.source != "tokens":
            if glossary:
                raise UserError(f"a glossary is for text, but this model reads {self.config.model.source}")
            return self.transcribe(texts, **search)
        translator = Translator(self, search=Search(**search), glossary=glossary or {})
        found = translator.translate_by_sentence(texts, [f"text {number:,}" for number in range(1, len(texts) + 1)])
        translator.warnings.summarize()
        return [text.text for text in found]

    def stream(self, prompt: str, *, stop: Sequence[str] = (), **search: Unpack[SearchOptions]) -> Iterator[str]:
        """Like `generate`, or `translate` for a translator, but yields text as it is generated, whole graphemes only."""
        if self.config.model.shape != "encoder-decoder" or self.config.model.source != "tokens":
            return super().stream(prompt, stop=stop, **search)
        text = SplitText.from_spans(prompt, [each.span for each in Translator(self).sentences(prompt, "the text")])
        # Starts all streams now: they run under the interventions of this call.
        streams = [Pipeline.stream(self, sentence, stop=stop, **search) for sentence in text.sentences]
        gaps = ([gap] if gap else [] for gap in text.gaps)
        return (piece for pair in zip_longest(gaps, streams, fillvalue=()) for pieces in pair for piece in pieces)

    def explain(
        self,
        text: str,
        *,
        target: str | None = None,
        interventions: Sequence["Intervention"] = (),
        **search: Unpack[SearchOptions],
    ) -> "Explanation":
        """Translates a sentence, continues a text, or takes the given target, and traces every number that led to it."""
        from seq2see.inspect.explain import explain

        return explain(self, text, target=target, interventions=interventions, search=Search(**search))

    @contextmanager
    def ablate_head(self, attention: str, head: int) -> Iterator[Self]:
        """Yields a copy of this model without one head of an attention such as `decoder.3.cross`; it shares the weights."""
        from seq2see.inspect.interventions import ablate_head

        ablated, ablation = replace(self, network=copy(self.network)), ablate_head(attention, head)
        ablation.taps(self.config.model)
        with attach(ablated.network, *attached_hooks(self.network), ablation):
            yield ablated

    def for_inference(self) -> Self:
        """Returns a model with its weights in the layout that this processor multiplies fastest; it cannot be saved."""
        return replace(self, network=block_weights(self.network))

    def save(self, path: Path | str) -> None:
        """Writes a model directory that `load` reads; the directory must be new or empty."""
        save_pipeline(self, Path(path))

    def __repr__(self) -> str:
        return "\n".join(f"{name:<11}{value}" for name, value in self._facts().items())

    def _repr_html_(self) -> str:
        html: str = load_extension("notebook", "model")(self._facts())
        return html

    def _facts(self) -> dict[str, str]:
        from seq2see.storage.facts import model_facts

        device = str(self.network.embedding.weight.device)
        return {**model_facts(self.config, self.tokenizers, self.scores), "device": device}


def load(
    path: Path | str | None = None,
    device: str = "cpu",
    *,
    step: int | None = None,
    precision: InferencePrecision = "float32",
) -> Model:
    """Loads the model in a directory, or a bundled one by name; with `step`, the snapshot taken at that training step.

    The default is the bundled translator; `seq2see model` lists the others. The directory may also be Hugging Face's, and the
    path a GGUF file. The network is optimised for decoding in the given precision; int8 is for decoding on a CPU.
    """
    return Model(**vars(load_pipeline(path, device, step=step, precision=precision)))
