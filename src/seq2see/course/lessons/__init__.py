"""Lessons that follow five lecture notes on the Transformer. Every figure is computed by the library when a lesson runs.

    from seq2see.course.lessons import context
    context.compute(sentences=["apple and an orange"])    # the numbers, in a frozen dataclass

    $ seq2see lesson context                              # the same in a terminal

A lesson is a module named after its command (`next` lives in `next_token`):

- `compute(...)` returns the lesson's `Result`. Its defaults are the examples of the notes.
- `describe(result)` returns a `render.LessonText`: paragraphs and tables.
- `draw(result, path)` writes a figure to a file.
- `INTRODUCTION`, in lessons that train a model, is the first paragraph, available before the training.

`LESSONS` lists the lessons in the order of the notes without importing them, so listing them is fast. The other modules are
shared by several lessons: `attention`, `figures`, `models`, `render`, `toy_language`, `training`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seq2see.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from seq2see.course.lessons.render import LessonText


@dataclass(frozen=True)
class Lesson:
    """An entry of `LESSONS`. Imports the lesson's module on first use."""

    name: str
    title: str  # one sentence
    training_seconds: int = 0  # approximate time it trains on one core; 0: it trains nothing
    module: str = ""  # where it differs from the name

    def defaults(self) -> dict[str, Any]:
        """Returns the parameters of `compute` with their default values."""
        return {each.name: each.default for each in signature(self._module.compute).parameters.values()}

    def compute(self, arguments: Mapping[str, Any]) -> Any:
        """Computes the lesson's `Result`. Accepts a single string where a list of strings is expected."""
        known = self.defaults()
        for name in arguments:
            if name not in known:
                raise UsageError(f'the lesson "{self.name}" has no parameter "{name}": {did_you_mean(name, known)}')
        return self._module.compute(
            **{
                name: (value,) if isinstance(known[name], tuple) and isinstance(value, str) else value
                for name, value in arguments.items()
            }
        )

    @property
    def introduction(self) -> str:
        """The first paragraph of a lesson that trains a model; empty for the others."""
        introduction: str = getattr(self._module, "INTRODUCTION", "")
        return introduction

    def describe(self, result: Any) -> "LessonText":
        text: LessonText = self._module.describe(result)
        return text

    def draw(self, result: Any, path: Path) -> None:
        self._module.draw(result, path)

    @property
    def _module(self) -> Any:
        return import_module(f"seq2see.course.lessons.{self.module or self.name}")


LESSONS: dict[str, Lesson] = {
    lesson.name: lesson
    for lesson in (
        Lesson("words", "Word vectors: one-hot, TF-IDF and Word2Vec."),
        Lesson("similarity", "Similarity of words: dot product, cosine, scaled dot product."),
        Lesson("context", "Self-attention without parameters: a word as a mixture of words."),
        Lesson("lookup", "Query, key and value: attention as a soft dictionary."),
        Lesson("qkv", "Learned self-attention, in row form and in column form."),
        Lesson("scaling", "Why √d: the variance of a dot product grows with the dimension."),
        Lesson("saturation", "Training without √d: unscaled scores saturate the softmax.", training_seconds=24),
        Lesson("heads", "Multi-head attention: several views of one sentence."),
        Lesson("positions", "Sinusoidal positional encoding, and why a plain count fails."),
        Lesson("order", "Training without positions: a sentence becomes a bag of words.", training_seconds=12),
        Lesson("norms", "Layer norm and batch norm, and how padding affects them."),
        Lesson("encoder", "An encoder block: global attention, local feed-forward."),
        Lesson("mask", "Masked attention: no position sees a later one."),
        Lesson("leak", "Training without the mask: the answer leaks.", training_seconds=12),
        Lesson("decoder", "The decoder: trained in parallel, used one token at a time."),
        Lesson("cross", "Cross-attention: output words attend to input words.", training_seconds=2),
        Lesson("next", "Next-token prediction: unembedding, logit lens, temperature.", module="next_token"),
        Lesson("directions", "Meaningful directions: king − man + woman, plurals.", training_seconds=6),
        Lesson("senses", "One word in several sentences: static and contextual vectors."),
    )
}
__all__ = ["LESSONS", "Lesson"]
