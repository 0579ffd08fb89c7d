"""The course: lessons whose every figure is computed by the library when a lesson runs.

    from seq2see.course.lessons import context
    context.compute(sentences=["apple and an orange"])    # the numbers, in a frozen dataclass

    $ seq2see lesson context                              # the same in a terminal

A lesson is a module named after its command (`next` lives in `next_token`):

- `compute(...)` returns the lesson's `Result`. Its defaults are the examples of five lecture notes on the Transformer.
- `describe(result)` returns a `render.LessonText`: what to look at, a picture, a few numbers, and more that is folded away.
- `exercises()` returns questions with computed answers.
- `draw(result, path)` writes a figure to a file.

`LESSONS` lists the lessons in the order of the course without importing them, so listing them is fast. The other modules are
shared by several lessons: `attention`, `exercises`, `figures`, `models`, `render`, `settings`, `toy_language`, `training`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seq2see.errors import UsageError, did_you_mean
from seq2see.storage.bundled import GRAMMAR

if TYPE_CHECKING:
    from seq2see.course.lessons.exercises import Exercise
    from seq2see.course.lessons.render import LessonText


@dataclass(frozen=True)
class Lesson:
    """An entry of `LESSONS`. Imports the lesson's module on first use."""

    name: str
    group: str
    title: str  # what one learns
    question: str  # a sentence or two, available before anything is computed
    training_seconds: int = 0  # approximate time it trains on one core; 0: it trains nothing
    module: str = ""  # where it differs from the name

    def defaults(self) -> dict[str, Any]:
        """Returns the parameters of `compute` with their default values."""
        return {each.name: each.default for each in signature(self._module.compute).parameters.values()}

    @property
    def model(self) -> str:
        """The bundled model that it inspects unless another is given."""
        return str(getattr(self._module, "MODEL", GRAMMAR))

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

    def describe(self, result: Any) -> "LessonText":
        text: LessonText = self._module.describe(result)
        return text

    def exercises(self) -> "tuple[Exercise, ...]":
        """Returns the exercises, with their answers computed now."""
        exercises: tuple[Exercise, ...] = self._module.exercises()
        return exercises

    def draw(self, result: Any, path: Path) -> None:
        self._module.draw(result, path)

    @property
    def _module(self) -> Any:
        return import_module(f"seq2see.course.lessons.{self.module or self.name}")


WORDS, ATTENTION, BLOCK, MODEL = "Words", "Attention", "The block", "The model"
TRAINING, LANGUAGE_MODELS, INSIDE = "Training and decoding", "Language models", "Inside"
GROUPS = (WORDS, ATTENTION, BLOCK, MODEL, TRAINING, LANGUAGE_MODELS, INSIDE)

LESSONS: dict[str, Lesson] = {
    lesson.name: lesson
    for lesson in (
        Lesson(
            "words", WORDS, "Words as vectors",
            "A network computes with numbers. How does a word become numbers, and why is one vector per word not enough?",
        ),
        Lesson(
            "similarity", WORDS, "Similarity: dot product and cosine",
            "If words are vectors, how similar are two words?",
        ),
        Lesson(
            "directions", WORDS, "Directions that carry meaning",
            "Does the step from man to woman lead from king to queen?", training_seconds=6,
        ),
        Lesson(
            "context", ATTENTION, "A word as a mixture of its neighbours",
            "How can the vector of a word come to depend on the sentence, before anything is learned?",
        ),
        Lesson(
            "lookup", ATTENTION, "Attention as a soft lookup",
            "A dictionary finds a key or nothing. What does a lookup return that compares the query with every key?",
        ),
        Lesson(
            "qkv", ATTENTION, "Queries, keys and values",
            "How does a word ask for what it needs, answer what it is asked for, and pass on what it holds?",
        ),
        Lesson(
            "scaling", ATTENTION, "Why scores are divided by √d",
            "Dot products of long vectors are large. What does that do to the softmax, and why does √d repair it?",
        ),
        Lesson(
            "saturation", ATTENTION, "Training without √d",
            "Does it matter in practice? Two translators are trained that differ only in the division of q · k by √d.",
            training_seconds=24,
        ),
        Lesson(
            "heads", ATTENTION, "Several heads, several views",
            "One attention gives one summary of the sentence. What do several in parallel give, and what do they cost?",
        ),
        Lesson(
            "positions", BLOCK, "Positions as waves",
            "Attention does not see the order of the words. How can a vector say where a word stands?",
        ),
        Lesson(
            "order", BLOCK, "Training without positions",
            "What does a translator lose without positions? Two are trained that differ only in them.", training_seconds=12,
        ),
        Lesson(
            "norms", BLOCK, "Layer norm and batch norm",
            "Both bring numbers to mean 0 and deviation 1. Why does the Transformer normalise each word by itself?",
        ),
        Lesson(
            "encoder", BLOCK, "The encoder block",
            "What happens to three words on their way through one block, and which steps let words influence each other?",
        ),
        Lesson(
            "mask", MODEL, "The mask: no looking ahead",
            "When a decoder is trained, the answer lies before it. How is it kept from reading ahead?",
        ),
        Lesson(
            "cross", MODEL, "Cross-attention: from one sentence to another",
            "How does a translation with other words, in another order, of another length, stay true to its source?",
            training_seconds=2,
        ),
        Lesson(
            "decoder", MODEL, "The decoder: trained at once, used step by step",
            "Training sees all words at once, use produces one at a time. Why are the probabilities the same?",
        ),
        Lesson(
            "recurrent", MODEL, "Before the Transformer: one word after another",
            "What did the recurrent models of 2014 and 2015 do, what did they need less of, and what held them back?",
        ),
        Lesson(
            "patches", MODEL, "Pictures and sound as tokens",
            "Can the same model describe a picture or write down a melody? One is trained on both.", training_seconds=12,
        ),
        Lesson(
            "learning", TRAINING, "Learning what to attend to",
            "Nobody tells a model that “it” is the pizza. What do many examples change?", training_seconds=10,
        ),
        Lesson(
            "leak", TRAINING, "Training without the mask",
            "What does a decoder learn if it may read ahead? Two translators are trained that differ only in the mask.",
            training_seconds=12,
        ),
        Lesson(
            "next", LANGUAGE_MODELS, "From the last vector to the next word",
            "How does a vector become a word, and why is the last vector enough?", module="next_token",
        ),
        Lesson(
            "temperature", LANGUAGE_MODELS, "Softmax and temperature",
            "How do scores become probabilities, and how daring should the choice be?",
        ),
        Lesson(
            "window", LANGUAGE_MODELS, "The context window and chat",
            "How much of the text does a model see, what happens beyond that, and what makes it answer?",
        ),
        Lesson(
            "layers", INSIDE, "When does the model know?",
            "If the model had to answer after every layer, and at every position, what would it say?",
        ),
        Lesson(
            "senses", INSIDE, "One word, several meanings",
            "A bank holds money or a river. Does the model's vector of the word tell them apart?",
        ),
    )
}  # fmt: skip
__all__ = ["GROUPS", "LESSONS", "Lesson"]
