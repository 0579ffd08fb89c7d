"""Pictures as files, by matplotlib: the `plot` extra. PNG to look at, SVG for a paper.

Letters in an SVG are outlines, so that Devanagari is shaped as it was here whatever fonts the reader has.
"""

import re
import sys
import warnings
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from seq2see.errors import UserError

if TYPE_CHECKING:
    from seq2see.inspect.alignment import Alignment
    from seq2see.inspect.attention_tables import AttentionTable

Curves = Mapping[str, Sequence[tuple[float, float]]]

# matplotlib takes the next font for what the first has not.
LATIN = "DejaVu Sans"  # comes with matplotlib
DEVANAGARI = ["Noto Sans Devanagari", "Lohit Devanagari", "Nirmala UI", "Kohinoor Devanagari", "Mangal"]
LETTER = re.compile("[\u0900-\u097f]")  # of Devanagari
COLOURS = "Blues"  # light to dark, also in grey and to any eye
HIDDEN = "#e8e8e8"  # what the mask hides
CELL = 0.34  # inches
WRITTEN = 0.05  # weights below this are not written out


def pyplot() -> Any:
    """matplotlib, set up for files and for text in any script."""
    try:
        import matplotlib
    except ImportError as error:
        raise UserError('pictures need matplotlib: pip install "seq2see[plot]"') from error
    matplotlib.use("Agg")
    from matplotlib import pyplot

    found = _fonts()
    pyplot.rcParams["font.family"] = [LATIN, *found]
    pyplot.rcParams["svg.fonttype"] = "path"
    if not found:  # `tell_of_boxes` says so, once
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
    return pyplot


@cache
def _fonts() -> list[str]:
    """The fonts for Devanagari that are here."""
    from matplotlib import font_manager

    manager = font_manager.fontManager
    for path in font_manager.findSystemFonts():  # its own list is cached, and does not know a font installed since
        if any(name.replace(" ", "").lower() in path.replace("-", "").lower() for name in DEVANAGARI):
            manager.addfont(path)
    known = {font.name for font in manager.ttflist}
    return [font for font in DEVANAGARI if font in known]


def curves(panels: Mapping[str, Curves], path: Path) -> None:
    """A panel for each quantity, a line for each run."""
    plt = pyplot()
    shown = {title: lines for title, lines in panels.items() if any(lines.values())}
    figure, axes = plt.subplots(1, max(len(shown), 1), figsize=(4.5 * max(len(shown), 1), 3.4), squeeze=False)
    for axis, (title, lines) in zip(axes[0], shown.items(), strict=False):
        for name, points in lines.items():
            axis.plot(*zip(*points, strict=True), label=name, linewidth=1.2)
        axis.set(title=title, xlabel="step")
        axis.grid(alpha=0.3)
        axis.legend(fontsize=7)
    save(figure, path)


def draw_attention(table: "AttentionTable", path: Path, title: str = "", worth: Tensor | None = None) -> None:
    """One table of weights, each row a token that looks, each column one that is looked at; and the head's worth."""
    plt = pyplot()
    figure, axis = plt.subplots(figsize=(CELL * 1.3 * len(table.columns), CELL * len(table.rows)))
    _heat_map(axis, table.weights, table.causal)
    _columns(axis, table.columns)
    axis.set_yticks(range(len(table.rows)), table.rows, fontsize=9)
    _written(axis, table.weights)
    remarks = [title or table.title, *([] if worth is None else [_worth(worth)])]
    axis.set_xlabel("\n".join(remarks), fontsize=8, labelpad=6)
    save(figure, path)


def draw_heads(tables: Sequence["AttentionTable"], path: Path, entropy: Tensor, worth: Tensor) -> None:
    """All heads of one attention side by side, under each what the output loses without it."""
    plt = pyplot()
    across = min(len(tables), 4)
    down = -(-len(tables) // across)
    rows, columns = len(tables[0].rows), len(tables[0].columns)
    size = (across * CELL * 0.75 * columns, down * (CELL * 0.75 * rows + 0.45))
    figure, axes = plt.subplots(down, across, figsize=size, squeeze=False, layout="constrained")
    for axis in axes.flat[len(tables) :]:
        axis.set_visible(False)
    for number, (axis, table) in enumerate(zip(axes.flat, tables, strict=False)):
        _heat_map(axis, table.weights, table.causal)
        _columns(axis, table.columns if number < across else ())
        axis.set_yticks(range(rows), table.rows if number % across == 0 else [""] * rows, fontsize=8)
        axis.set_xlabel(f"head {table.head}, entropy {entropy[number]:.2f}\n{_worth(worth[number])}", fontsize=7)
    figure.suptitle(tables[0].name, fontsize=9)
    save(figure, path)


def draw_layers(layers: Sequence[Sequence["AttentionTable"]], path: Path) -> None:
    """All heads of all layers of one kind of attention, a line a layer."""
    plt = pyplot()
    rows, columns = len(layers[0][0].rows), len(layers[0][0].columns)
    across, down = len(layers[0]), len(layers)
    small = 0.16
    size = (across * max(small * columns, 0.8), down * (max(small * rows, 0.8) + 0.2))
    figure, axes = plt.subplots(down, across, figsize=size, squeeze=False, layout="constrained")
    for number, (line, tables) in enumerate(zip(axes, layers, strict=True)):
        for head, (axis, table) in enumerate(zip(line, tables, strict=True)):
            _heat_map(axis, table.weights, table.causal)
            axis.set_xticks([])
            axis.set_yticks([])
            if number == 0:
                axis.set_title(f"head {table.head}" if table.head is not None else "mean", fontsize=8)
            if head == 0:
                axis.set_yticks(range(rows), table.rows, fontsize=6)
                axis.set_ylabel(f"layer {number}", fontsize=8)
            if number == down - 1:
                axis.set_xticks(range(columns), table.columns, fontsize=6, rotation=90)
    figure.suptitle(layers[0][0].name.replace(".0.", ".*."), fontsize=9)
    save(figure, path)


def draw_alignment(alignment: "Alignment", path: Path) -> None:
    """Words against words, with a frame around each link."""
    plt = pyplot()
    rows, columns = len(alignment.targets), len(alignment.sources)
    figure, axis = plt.subplots(figsize=(CELL * 1.3 * max(columns, 1), CELL * max(rows, 1)))
    _heat_map(axis, alignment.weights, causal=False)
    _columns(axis, alignment.sources)
    axis.set_yticks(range(rows), alignment.targets, fontsize=9)
    _written(axis, alignment.weights)
    for i, j in alignment.links:
        frame = plt.Rectangle((i - 0.5, j - 0.5), 1, 1, fill=False, edgecolor="#d55e00", linewidth=1.6, zorder=3)
        axis.add_patch(frame)
    save(figure, path)


def _worth(rows: Tensor) -> str:
    """What happens to the output's probability without a head, from `ablations`."""
    return f"without it ln P {-float(rows.sum()):+.2f}".replace("-", "−")


def _heat_map(axis: Any, weights: Tensor, causal: bool) -> None:
    values = weights.float().cpu().numpy()
    if causal:
        import numpy as np

        hidden = np.triu(np.ones(values.shape, dtype=bool), 1)
        values = np.ma.masked_array(values, hidden)
        axis.set_facecolor(HIDDEN)
    axis.imshow(values, cmap=COLOURS, vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    axis.set_xticks([x - 0.5 for x in range(1, values.shape[1])], minor=True)
    axis.set_yticks([y - 0.5 for y in range(1, values.shape[0])], minor=True)
    axis.grid(which="minor", color="white", linewidth=0.6)
    axis.tick_params(which="both", length=0)
    for spine in axis.spines.values():
        spine.set_linewidth(0.5)
        spine.set_color("#888888")


def _columns(axis: Any, columns: Sequence[str]) -> None:
    axis.xaxis.tick_top()
    axis.set_xticks(range(len(columns)), columns, rotation=45, ha="left", rotation_mode="anchor", fontsize=9)
    axis.tick_params(which="both", length=0)


def _written(axis: Any, weights: Tensor) -> None:
    for i, row in enumerate(weights.tolist()):
        for j, value in enumerate(row):
            if value >= WRITTEN:
                colour = "white" if value > 0.55 else "black"
                axis.text(j, i, f"{100 * value:.0f}", ha="center", va="center", fontsize=7, color=colour)


def points(
    places: Mapping[str, tuple[float, float]], path: Path, axes: tuple[str, str], arrows: Sequence[tuple[str, str]] = ()
) -> None:
    """Words where they lie on two axes, with arrows from some to others."""
    plt = pyplot()
    figure, axis = plt.subplots(figsize=(8, 6.5))
    axis.scatter(*zip(*places.values(), strict=True), s=14, color="#1f5fa8", zorder=3)
    for start, end in arrows:
        style = {"arrowstyle": "->", "color": "#c2571a", "alpha": 0.7, "shrinkA": 4, "shrinkB": 4}
        axis.annotate("", places[end], places[start], arrowprops=style)
    for word, place in places.items():
        axis.annotate(word, place, xytext=(4, 3), textcoords="offset points", fontsize=9 if len(places) < 60 else 7)
    axis.set(xlabel=axes[0], ylabel=axes[1])
    axis.margins(0.12)
    axis.grid(alpha=0.25)
    save(figure, path)


def save(figure: Any, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        figure.savefig(path, dpi=200, bbox_inches="tight", pad_inches=0.03)
    except (OSError, ValueError) as error:
        raise UserError(f"cannot draw {path}: {error}") from error
    finally:
        pyplot().close(figure)
    tell_of_boxes(figure)


def tell_of_boxes(figure: Any) -> None:
    """Says, once, that a picture has boxes where Devanagari should be: for who saves one."""
    from matplotlib.text import Text

    if any(LETTER.search(text.get_text()) for text in figure.findobj(Text)) and not _fonts():
        _no_font()


@cache
def _no_font() -> None:
    print('no font for Devanagari was found: install one, such as Debian\'s "fonts-lohit-deva"', file=sys.stderr)
