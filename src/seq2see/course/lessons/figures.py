"""Draws the figure of a lesson into a file: its panels, side by side."""

import math
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING

from seq2see.course.lessons.document import Bars, HeatMap, Lines, Panel
from seq2see.views.plots import MASKED, new_figure, write_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Distinguishable by colour-blind readers and in greyscale. Blue is usually the paper's method, orange the ablation.
BLUE, ORANGE = "#0072b2", "#d55e00"
COLOURS = {"blue": BLUE, "orange": ORANGE, "green": "#009e73", "pink": "#cc79a7", "grey": "#777777"}
DASHES = {"dotted": ":", "dashed": "--"}


def draw_panels(panels: Sequence[Panel], path: Path | str) -> None:
    figure, axes = subplots(len(panels) if len(panels) != 4 else 2, 1 if len(panels) != 4 else 2)
    for ax, panel in zip(axes, panels, strict=True):
        if isinstance(panel, Lines):
            draw_lines(ax, panel)
        elif isinstance(panel, Bars):
            _draw_bars(ax, panel)
        elif isinstance(panel, HeatMap):
            heatmap(ax, panel.values, panel.rows, panel.columns, panel.title, panel.signed)
        else:
            values = [[float(cell) for cell in row[1:] if isinstance(cell, (int, float))] for row in panel.rows]
            heatmap(ax, values, [str(row[0]) for row in panel.rows], panel.columns[1:], panel.caption)
    save_figure(figure, path)


def draw_lines(axes: "Axes", panel: Lines) -> None:
    turns = cycle(COLOURS.values())
    for line in panel.lines:
        words = line.style.split()
        colour = next((COLOURS[word] for word in words if word in COLOURS), None) or next(turns)
        dash = next((DASHES[word] for word in words if word in DASHES), "-")
        marker = "o" if len(line.points) <= 20 else ""
        axes.plot(*zip(*line.points, strict=True), dash + marker, color=colour, markersize=4, label=line.name)
    for axis in panel.log:
        base = 2 if axis == "x" else 10
        (axes.set_xscale if axis == "x" else axes.set_yscale)("log", base=base)
    if panel.ticks:
        axes.set_xticks(range(len(panel.ticks)), panel.ticks, rotation=30, fontsize=7)
    if panel.level:
        height, name = panel.level
        axes.axhline(height, color="grey", linewidth=0.8)
        axes.text(0.01, height * 0.96, name, transform=axes.get_yaxis_transform(), fontsize=8, color="grey", va="top")
    label_axes(axes, panel.title, panel.x, panel.y, legend=any(line.name for line in panel.lines))


def _draw_bars(axes: "Axes", panel: Bars) -> None:
    """Draws one group with the names of its bars at the side; several groups side by side, with a legend."""
    if len(panel.groups) == 1:
        (_, group), *_ = panel.groups
        names, values = [name for name, _ in group][::-1], [value for _, value in group][::-1]
        axes.barh(range(len(names)), values, color=[BLUE if value > 0 else ORANGE for value in values])
        axes.set_yticks(range(len(names)), names, fontsize=8)
    else:
        names = list(dict.fromkeys(name for _, group in panel.groups for name, _ in group))
        width = 0.8 / len(names)
        for i, name in enumerate(names):
            heights = [dict(group).get(name, math.nan) for _, group in panel.groups]
            axes.bar([j + i * width for j in range(len(heights))], heights, width, label=name)
        axes.set_ylim(top=1.3 * axes.get_ylim()[1])  # room for the legend
        ticks = [j + 0.4 - width / 2 for j in range(len(panel.groups))]
        axes.set_xticks(ticks, [name for name, _ in panel.groups], rotation=20, ha="right", fontsize=8)
    label_axes(axes, panel.title, "", "", legend=len(panel.groups) > 1)


def subplots(columns: int, rows: int = 1) -> tuple["Figure", list["Axes"]]:
    figure = new_figure((4.2 * columns, 3.6 * rows), "constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    return figure, list(axes.flat)


def label_axes(axes: "Axes", title: str, x: str, y: str, legend: bool = True) -> None:
    axes.set_title(title, fontsize=10, loc="left")
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    if legend:
        axes.legend(frameon=False, fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)


def save_figure(figure: "Figure", path: Path | str) -> None:
    write_figure(figure, Path(path), dpi=130)


def heatmap(
    axes: "Axes",
    values: Sequence[Sequence[float]],
    rows: Sequence[str],
    columns: Sequence[str],
    title: str,
    signed: bool = False,
) -> None:
    """Draws a matrix in colours, white to blue, or orange to purple for signed values; prints the values of small ones."""
    finite = [abs(value) for row in values for value in row if math.isfinite(value)]
    largest = max(finite, default=0) or 1.0
    axes.set_facecolor(MASKED)  # seen where a value is not finite, which differs from 0
    axes.imshow(values, cmap="PuOr" if signed else "Blues", vmin=-largest if signed else 0, vmax=largest, aspect="auto")
    axes.set_xticks(range(len(columns)), columns, rotation=40, ha="right", rotation_mode="anchor", fontsize=8)
    axes.set_yticks(range(len(rows)), rows, fontsize=8)
    axes.set_title(title, fontsize=10, loc="left")
    if not 0 < len(columns) <= 8:
        return
    for i, row in enumerate(values):
        for j, value in enumerate(row):
            if math.isfinite(value):
                text = f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}"
                colour = "white" if abs(value) > 0.6 * largest else "black"
                axes.text(j, i, text, ha="center", va="center", fontsize=7, color=colour)
