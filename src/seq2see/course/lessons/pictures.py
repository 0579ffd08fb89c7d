"""What the lessons' pictures have in common. Words in them are English unless a font is asked for: matplotlib brings no
Devanagari letters.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from seq2see.errors import UserError
from seq2see.inspect.plots import pyplot, tell_of_boxes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Told apart by any eye, and in grey: what the paper does, and what happens without it.
WITH, WITHOUT = "#0072b2", "#d55e00"


def panels(columns: int, rows: int = 1, any_script: bool = False) -> tuple["Figure", list["Axes"]]:
    """An empty picture of so many panels; words in any script need a font for it."""
    if any_script:
        pyplot()
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UserError('no picture, for matplotlib is missing: pip install "seq2see[plot]"') from error
    figure = Figure(figsize=(4.2 * columns, 3.6 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    return figure, list(axes.flat)


def label(axes: "Axes", title: str, x: str, y: str, legend: bool = True) -> None:
    axes.set_title(title, fontsize=10, loc="left")
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    if legend:
        axes.legend(frameon=False, fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)


def level(axes: "Axes", height: float, name: str) -> None:
    """A line across a curve of losses: what cannot be learned."""
    axes.set_yscale("log")
    axes.axhline(height, color="grey", linewidth=0.8)
    axes.text(0.01, height * 0.96, name, transform=axes.get_yaxis_transform(), fontsize=8, color="grey", va="top")


def save(figure: "Figure", path: Path | str) -> None:
    try:
        figure.savefig(path, dpi=130)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from error
    tell_of_boxes(figure)


def heat(
    axes: "Axes", numbers: Sequence[Sequence[float]], rows: Sequence[str], columns: Sequence[str], title: str,
    signed: bool = False,
) -> None:  # fmt: skip
    """A table as colours: from white to blue or, where numbers have a sign, from orange over white to blue."""
    most = max(abs(number) for row in numbers for number in row) or 1.0
    axes.imshow(numbers, cmap="PuOr" if signed else "Blues", vmin=-most if signed else 0, vmax=most, aspect="auto")
    axes.set_xticks(range(len(columns)), columns, rotation=40, ha="right", rotation_mode="anchor", fontsize=8)
    axes.set_yticks(range(len(rows)), rows, fontsize=8)
    axes.set_title(title, fontsize=10, loc="left")
    if len(columns) > 8:
        return
    for i, row in enumerate(numbers):
        for j, number in enumerate(row):
            dark = abs(number) > 0.6 * most
            text = f"{number:.2f}" if abs(number) < 10 else f"{number:.1f}"
            axes.text(j, i, text, ha="center", va="center", fontsize=7, color="white" if dark else "black")
