"""Helpers for the figures of the lessons."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from seq2see.errors import UserError
from seq2see.inspect.plots import pyplot, write_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Distinguishable by colour-blind readers and in greyscale. Blue is usually the paper's method, orange the ablation.
BLUE, ORANGE = "#0072b2", "#d55e00"


def subplots(columns: int, rows: int = 1, any_script: bool = False) -> tuple["Figure", list["Axes"]]:
    """Creates a figure. `any_script` sets up fonts for labels beyond Latin: matplotlib ships none for Devanagari."""
    if any_script:
        pyplot()
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UserError('cannot draw, matplotlib is not installed: pip install "seq2see[plot]"') from error
    figure = Figure(figsize=(4.2 * columns, 3.6 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    return figure, list(axes.flat)


def label_axes(axes: "Axes", title: str, x: str, y: str, legend: bool = True) -> None:
    axes.set_title(title, fontsize=10, loc="left")
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    if legend:
        axes.legend(frameon=False, fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)


def reference_line(axes: "Axes", height: float, name: str) -> None:
    """Draws a horizontal line across a loss curve, such as the lowest loss that can be reached."""
    axes.set_yscale("log")
    axes.axhline(height, color="grey", linewidth=0.8)
    axes.text(0.01, height * 0.96, name, transform=axes.get_yaxis_transform(), fontsize=8, color="grey", va="top")


def save_figure(figure: "Figure", path: Path | str) -> None:
    write_figure(figure, Path(path), dpi=130)


def heatmap(
    axes: "Axes", values: Sequence[Sequence[float]], rows: Sequence[str], columns: Sequence[str], title: str,
    signed: bool = False,
) -> None:  # fmt: skip
    """Draws a matrix in colours, white to blue, or orange to purple for signed values; prints the values of small ones."""
    largest = max(abs(value) for row in values for value in row) or 1.0
    axes.imshow(values, cmap="PuOr" if signed else "Blues", vmin=-largest if signed else 0, vmax=largest, aspect="auto")
    axes.set_xticks(range(len(columns)), columns, rotation=40, ha="right", rotation_mode="anchor", fontsize=8)
    axes.set_yticks(range(len(rows)), rows, fontsize=8)
    axes.set_title(title, fontsize=10, loc="left")
    if len(columns) > 8:
        return
    for i, row in enumerate(values):
        for j, value in enumerate(row):
            is_dark = abs(value) > 0.6 * largest
            text = f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}"
            axes.text(j, i, text, ha="center", va="center", fontsize=7, color="white" if is_dark else "black")
