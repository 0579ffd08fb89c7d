"""The course: lessons whose every figure is computed by the library when a lesson runs.

    from seq2see.course.lessons import context
    context.compute(sentences=["apple and an orange"])    # the numbers, in a frozen dataclass

    $ seq2see lesson context                              # the same in a terminal

A lesson is a folder of two files. `lesson.md` is what it says: its title, its question, and Markdown with named values, which
`template` explains. `__init__.py` is what it computes:

- `compute(...)` returns the lesson's `Result`. Its defaults are the examples of five lecture notes on the Transformer.
- `values(result)`, if present, returns what lesson.md names besides the fields of the result and the module's constants.
- `answers()` returns what the exercises name; they do not depend on settings.
- `draw(result, path)`, if present, draws the figure where panels of lines, bars and heat maps do not suffice.

`LESSONS` lists the lessons in the order of the course without importing them, so listing them is fast. Computing uses `kit`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seq2see.course.lessons.template import fill_in, front_matter, read_exercises
from seq2see.errors import UsageError, did_you_mean
from seq2see.storage.bundled import GRAMMAR

if TYPE_CHECKING:
    from seq2see.course.lessons.document import LessonText
    from seq2see.course.lessons.exercises import Exercise


@dataclass(frozen=True)
class Lesson:
    """An entry of `LESSONS`. Imports the lesson's module on first use."""

    name: str
    group: str
    title: str  # what one learns
    question: str  # a sentence or two, available before anything is computed
    training_seconds: int  # approximate time it trains on one core; 0: it trains nothing

    def defaults(self) -> dict[str, Any]:
        """Returns the parameters of `compute` with their default values."""
        return {each.name: each.default for each in signature(self.module.compute).parameters.values()}

    @property
    def model(self) -> str:
        """The bundled model that it inspects unless another is given."""
        return str(getattr(self.module, "MODEL", GRAMMAR))

    def compute(self, arguments: Mapping[str, Any]) -> Any:
        """Computes the lesson's `Result`. Accepts a single string where a list of strings is expected."""
        known = self.defaults()
        for name in arguments:
            if name not in known:
                raise UsageError(f'the lesson "{self.name}" has no parameter "{name}": {did_you_mean(name, known)}')
        return self.module.compute(
            **{
                name: (value,) if isinstance(known[name], tuple) and isinstance(value, str) else value
                for name, value in arguments.items()
            }
        )

    def describe(self, result: Any) -> "LessonText":
        """Fills in lesson.md."""
        numbers = {each.name: getattr(result, each.name) for each in fields(result)}
        return fill_in(self.name, {**self._constants(), **numbers, **self._computed("values", result)})

    def exercises(self) -> "tuple[Exercise, ...]":
        """Returns the exercises, with their answers computed now."""
        return read_exercises(self.name, {**self._constants(), **self._computed("answers")})

    def draw(self, result: Any, path: Path) -> None:
        if hasattr(self.module, "draw"):
            self.module.draw(result, path)
        else:
            from seq2see.course.lessons.figures import draw_panels

            draw_panels(self.describe(result).panels, path)

    @property
    def module(self) -> Any:
        return import_module(f"{__name__}.{self.name}")

    def _constants(self) -> dict[str, object]:
        return {name: value for name, value in vars(self.module).items() if name.isupper()}

    def _computed(self, function: str, *arguments: object) -> dict[str, object]:
        return dict(getattr(self.module, function)(*arguments)) if hasattr(self.module, function) else {}


GROUPS: Mapping[str, tuple[str, ...]] = {
    "Words": ("words", "similarity", "directions"),
    "Attention": ("context", "lookup", "qkv", "scaling", "saturation", "heads"),
    "The block": ("positions", "order", "norms", "encoder"),
    "The model": ("mask", "cross", "decoder", "recurrent", "patches"),
    "Training and decoding": ("learning", "leak"),
    "Language models": ("next", "temperature", "window"),
    "Inside": ("layers", "senses"),
}


def _lesson(name: str, group: str) -> Lesson:
    matter = front_matter(name)
    return Lesson(name, group, matter["title"], matter["question"], matter.get("training_seconds", 0))


LESSONS: dict[str, Lesson] = {name: _lesson(name, group) for group, names in GROUPS.items() for name in names}
__all__ = ["GROUPS", "LESSONS", "Lesson"]
