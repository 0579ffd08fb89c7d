"""What the lessons that look into a model have in common: which model, one sentence through it, and who moved."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from torch import Tensor

from seq2see.api import Model, load
from seq2see.course.lessons.render import Grid
from seq2see.errors import UserError, nearest
from seq2see.inspect.explain import Explanation, explain
from seq2see.inspect.interventions import Intervention

SMALL = (".mean", ".variance", ".mean_square", "norm.input", ".scaled", ".concatenated")  # steps within a step


def bundled(model: Model | None) -> Model:
    """The model that somebody brought, or the one that comes with seq2see."""
    if model is not None and model.config.model.kind != "transformer":
        raise UserError(
            f'the lessons look into Transformers, and this model is of the kind "{model.config.model.kind}": choose another'
        )
    return model or _bundled()


@cache
def _bundled() -> Model:
    return load()


def translator(model: Model | None) -> Model:
    chosen = bundled(model)
    if chosen.config.model.shape != "encoder-decoder":
        raise UserError(
            f"this lesson needs an encoder-decoder, and this model is a {chosen.config.model.shape}: choose another"
        )
    return chosen


def read(
    model: Model, sentence: str, target: str | None = None, interventions: Sequence[Intervention] = ()
) -> Explanation:
    """One open pass over a sentence and its translation; a language model reads the sentence and writes nothing more."""
    if not sentence.strip():
        raise UserError("a sentence without words: give at least one")
    if model.config.model.shape == "decoder" and target is None:
        target = ""
    return explain(model, sentence, target=target, interventions=interventions)


@dataclass(frozen=True)
class Reader:
    """The stack that reads the sentence: the encoder or, of a language model, the decoder."""

    stack: str
    attention: str
    words: tuple[str, ...]  # <end> among them, or <start>
    layers: int

    @property
    def places(self) -> tuple[str, ...]:
        return tuple(f"{self.stack}.{layer}.{self.attention}" for layer in range(self.layers))


def reader(e: Explanation) -> Reader:
    config = e.model.config.model
    if config.has_encoder:
        return Reader("encoder", "self", e.sources, config.encoder_layers)
    return Reader("decoder", "masked", e.reads, config.decoder_layers)


def steps_of(e: Explanation, block: str) -> Grid:
    """The steps of a block such as `encoder.0`, in the order of the computation: the shape of each, and what it is."""
    rows = []
    for name in e.trace.names(f"{block}.*"):
        if name.endswith(SMALL) or (name.endswith(".masked") and ".masked." not in name):
            continue
        value = e.trace[name]
        shape = " × ".join(f"{size:,}" for size in value.shape)
        rows.append((name.removeprefix(f"{block}."), shape, e.trace.quantity(name).formula))
    return Grid(("step", "shape", "what it is"), tuple(rows), f"The steps of {block}:")


def place_of(word: str, words: Sequence[str]) -> int:
    """Where a word stands; its last place if it comes twice."""
    if word not in words:
        raise UserError(f'"{word}" is not in "{" ".join(words)}": {nearest(word, words)}')
    return len(words) - 1 - list(words)[::-1].index(word)


def moved(before: Tensor, after: Tensor) -> tuple[float, ...]:
    """How far each row is from where it was, in parts of its length."""
    before, after = before.flatten(1), after.flatten(1)
    return tuple(((after - before).norm(dim=-1) / before.norm(dim=-1).clamp_min(1e-12)).tolist())
