"""What an export is: the record of a format that we write, and how an export is checked.

It is checked with a few texts: what our own model makes of them, and how far another runtime is from it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from warnings import catch_warnings, simplefilter

import numpy as np
import torch
from torch import Tensor

from seq2see.config import ExportPrecision
from seq2see.config.model import Shape
from seq2see.data.framing import Framing
from seq2see.data.layout import Packed
from seq2see.decode.generate import generate_tokens, translate_tokens
from seq2see.decode.search import Search
from seq2see.errors import UserError
from seq2see.storage.pipeline import Pipeline

LENGTHS = (3, 6, 9, 12)  # of the texts, in tokens
NEW_TOKENS = 16
BEAM = 4
MAX_DIFFERENCE = 1e-3  # of float32, relative to the largest value: more is another model, not rounding


@dataclass(frozen=True)
class Check:
    """How the output of another runtime compares with ours."""

    runtime: str
    quantity: str  # that is compared: "logits"
    difference: float  # the largest
    largest: float  # of the quantity itself
    equal: dict[str, tuple[int, int]] = field(default_factory=dict)  # "greedy outputs": (equal ones, all)
    tolerance: float = MAX_DIFFERENCE  # of float32

    def require_close(self) -> None:
        if not self.difference <= self.tolerance * max(self.largest, 1.0):
            raise UserError(
                f"the export failed its check: in {self.runtime}, {self.quantity} of up to {self.largest:.1f} differ by "
                f"{self.difference:.1e}, more than rounding explains; nothing was written"
            )

    def __str__(self) -> str:
        counts = "".join(f"; {equal} of {total} {what} are equal" for what, (equal, total) in self.equal.items())
        return f"{self.runtime}: {self.quantity} of up to {self.largest:.1f} differ by at most {self.difference:.1e}{counts}"


@dataclass(frozen=True, kw_only=True)
class Exporter:
    """A format that models are written in."""

    precisions: tuple[ExportPrecision, ...]
    runtime: str  # the module that runs an export
    package: str  # that installs it
    # Takes a model, a new directory, the precision, and where the model comes from. Returns what was done, in a few words each.
    write: Callable[[Pipeline, Path, ExportPrecision, Path], list[str]]
    check: Callable[["Samples", Path], Check]
    usage: Mapping[Shape, str]  # Python code that runs an export, of a model at PATH
    has_tokenizers: bool = False  # whether the writer itself writes them

    @property
    def not_checked(self) -> str:
        return f"not checked: {self.package} is not installed"


@dataclass(frozen=True)
class Samples:
    """Texts of ordinary tokens, in no language in particular, and our own model's results for them."""

    pipeline: Pipeline

    @cached_property
    def texts(self) -> list[str]:
        tokenizer = self.pipeline.tokenizers[0]
        random = np.random.default_rng(0)
        texts = []
        for length in (min(length, self.pipeline.config.model.max_positions // 2) for length in LENGTHS):
            ids: list[int] = []
            while len(ids) < length:
                id = int(random.integers(len(tokenizer)))
                text = tokenizer.decode([id], continues=True)
                if text.strip() and text.isprintable() and "\ufffd" not in text and id != tokenizer.unknown:
                    ids.append(id)
            texts.append(tokenizer.decode(ids).strip())
        return texts

    @cached_property
    def inputs(self) -> list[list[int]]:
        """The ids of each text as the model reads them: the source, or the prompt of a decoder."""
        tokenizer = self.pipeline.tokenizers[0]
        frame = tokenizer.frame_source if self.pipeline.config.model.has_encoder else tokenizer.frame_prompt
        return [frame(tokenizer.encode(text)) for text in self.texts]

    @property
    def special_tokens(self) -> Framing:
        return self.pipeline.tokenizers[1].framing

    @property
    def new_tokens(self) -> int:
        """The number of tokens to generate, within the context of a language model."""
        room = self.pipeline.config.model.max_positions - max(map(len, self.inputs))
        return NEW_TOKENS if self.translates else max(1, min(NEW_TOKENS, room))

    @property
    def translates(self) -> bool:
        return self.pipeline.config.model.shape == "encoder-decoder"

    def outputs(self, beam: int = 1, early_stopping: bool = False) -> list[list[int]]:
        """The tokens that our model generates, without the prompt and the end."""
        search = Search(beam=beam, early_stopping=early_stopping, max_new_tokens=self.new_tokens)
        network = self.pipeline.network
        if self.translates:
            found = translate_tokens(network, self.inputs, self.special_tokens, search)
        else:
            found = generate_tokens(network, self.inputs, replace(self.special_tokens, prompt=()), search)
        return [list(best.tokens) for best, *_ in found]

    @cached_property
    def targets(self) -> list[list[int]]:
        """What the decoder of a translator reads: its prompt and our greedy output; of other models, the text."""
        if not self.translates:
            return self.inputs
        return [self.special_tokens.prompt_with(output) for output in self.outputs()]

    @torch.inference_mode()
    def results(self) -> list[Tensor]:
        """Our logits, or the vectors of an encoder without a head, for each text: [tokens, …]."""
        network = self.pipeline.network
        rows = zip(self.inputs, self.targets, strict=True) if self.translates else zip(self.inputs, strict=True)
        return [network(*(Packed.from_sequences([ids]) for ids in row)).float() for row in rows]


def compare(
    runtime: str, quantity: str, ours: Sequence[Tensor], theirs: Sequence[Tensor], equal: dict[str, tuple[int, int]]
) -> Check:
    difference = max(float((a - b).abs().max()) for a, b in zip(ours, theirs, strict=True))
    return Check(runtime, quantity, difference, max(float(a.abs().max()) for a in ours), equal)


def count_equal(ours: Sequence[object], theirs: Sequence[object]) -> tuple[int, int]:
    return sum(a == b for a, b in zip(ours, theirs, strict=True)), len(ours)


@contextmanager
def quiet() -> Iterator[None]:
    """Hides the warnings of another library while it checks an export."""
    with catch_warnings():
        simplefilter("ignore")
        yield
