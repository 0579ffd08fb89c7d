"""One notebook per group of the course, generated from the lessons.

    $ python -m seq2see.course.notebooks docs/notebooks

A notebook computes its lessons when it is run; it is stored without outputs. `figure` shows a lesson's figure in a notebook.
"""

import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from seq2see.course.lessons import GROUPS, LESSONS, Lesson

Cell = dict[str, Any]


class Figure:
    """A figure that a notebook displays."""

    def __init__(self, png: bytes) -> None:
        self._png = png

    def _repr_png_(self) -> bytes:
        return self._png


def figure(name: str, result: Any) -> Figure:
    """Draws the figure of a lesson's result."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "figure.png"
        LESSONS[name].draw(result, path)
        return Figure(path.read_bytes())


def build(group: str) -> str:
    """Returns the notebook of a group as JSON (nbformat 4.5)."""
    lessons = [lesson for lesson in LESSONS.values() if lesson.group == group]
    cells = [
        _text(
            f"# {group}",
            "",
            "Every number below is computed when the cell runs. Change the arguments of `compute` and run it again.",
        ),
        _code(
            "from seq2see.course.lessons import LESSONS",
            "from seq2see.course.lessons.terminal import print_lesson",
            "from seq2see.course.notebooks import figure",
            "from seq2see.errors import terminal",
            "",
            "console = terminal(width=100)",
        ),
        *(cell for lesson in lessons for cell in _lesson_cells(lesson)),
    ]
    for i, cell in enumerate(cells):
        cell["id"] = f"cell-{i}"
    metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    notebook = {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(notebook, ensure_ascii=False, indent=1) + "\n"


def _lesson_cells(lesson: Lesson) -> list[Cell]:
    name = lesson.name
    trains = f" It trains for about {lesson.training_seconds} seconds." if lesson.training_seconds > 2 else ""
    return [
        _text(f"## {lesson.title}", "", f"{lesson.question}{trains}"),
        _code(f'result = LESSONS["{name}"].compute({{}})', f'figure("{name}", result)'),
        _code(f'print_lesson(LESSONS["{name}"], LESSONS["{name}"].describe(result), console, full=True)'),
        _text("**Exercises.** Put your answer between the quotation marks."),
        _code(
            f'exercises = LESSONS["{name}"].exercises()',
            "for number, exercise in enumerate(exercises):",
            '    print(number, exercise.question, *exercise.choices, sep="\\n   ")',
        ),
        _code('exercises[0].grade("")'),
    ]


def _text(*lines: str) -> Cell:
    return {"cell_type": "markdown", "metadata": {}, "source": _source(lines)}


def _code(*lines: str) -> Cell:
    return {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [], "source": _source(lines)}


def _source(lines: tuple[str, ...]) -> list[str]:
    return [f"{line}\n" for line in lines[:-1]] + [lines[-1]]


def file_name(group: str) -> str:
    """Such as 3-the-block.ipynb."""
    return f"{list(GROUPS).index(group) + 1}-{re.sub(r'[^a-z]+', '-', group.lower())}.ipynb"


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for group in GROUPS:
        (folder / file_name(group)).write_text(build(group), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
