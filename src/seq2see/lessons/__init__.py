"""The notes' lessons: what they claim, computed by the library when asked.

    seq2see.lessons.leak(seed=1)            the numbers of one, in a frozen dataclass
    seq2see lesson leak                     the same told in a terminal, with a picture

Each lesson is a file with three functions: the one that computes and bears the lesson's name, `tell(result, console)` and
`draw(result, path)`. `LESSONS` lists them in the notes' order and imports none, so that listing them costs nothing.
"""

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

    from seq2see.lessons.without_mask import leak as leak
    from seq2see.lessons.without_positions import order as order
    from seq2see.lessons.without_scaling import saturation as saturation


@dataclass(frozen=True)
class Lesson:
    """One lesson, not yet imported."""

    name: str
    title: str  # one sentence
    home: str  # its module in this package; named unlike the lesson, which would hide the function

    def compute(self, seed: int) -> Any:
        """The lesson's numbers, which `tell` and `draw` take."""
        return getattr(self._module, self.name)(seed=seed)

    def tell(self, result: Any, console: "Console") -> None:
        self._module.tell(result, console)

    def draw(self, result: Any, path: Path) -> None:
        self._module.draw(result, path)

    @property
    def _module(self) -> Any:
        return import_module(f"seq2see.lessons.{self.home}")


LESSONS: dict[str, Lesson] = {
    lesson.name: lesson
    for lesson in (
        Lesson("saturation", "Why scores are divided by √d: without it softmax saturates.", "without_scaling"),
        Lesson("order", "Why positions are added: without them a sentence is a bag of words.", "without_positions"),
        Lesson("leak", "Why the decoder is masked: without it training leaks the answer.", "without_mask"),
    )
}
__all__ = ["LESSONS", "Lesson", "leak", "order", "saturation"]


def __getattr__(name: str) -> Any:
    if name not in LESSONS:
        raise AttributeError(f"module 'seq2see.lessons' has no attribute {name!r}")
    return getattr(import_module(f"seq2see.lessons.{LESSONS[name].home}"), name)
