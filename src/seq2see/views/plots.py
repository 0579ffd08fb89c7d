"""Plots as PNG or SVG files, with matplotlib (the `plot` extra).

Text in an SVG is stored as outlines, so that Devanagari renders the same whatever fonts the reader has.
"""

import re
import sys
import warnings
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from torch import Tensor

from seq2see.errors import UserError
from seq2see.tensors.files import atomic_write

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from seq2see.inspect.attention_tables import AttentionTable

Curves = Mapping[str, Sequence[tuple[float, float]]]

# matplotlib falls back to the next font for missing glyphs.
LATIN = "DejaVu Sans"  # bundled with matplotlib
DEVANAGARI_FONTS = ["Noto Sans Devanagari", "Lohit Devanagari", "Nirmala UI", "Kohinoor Devanagari", "Mangal"]
DEVANAGARI = re.compile("[\u0900-\u097f]")
_MISSING_GLYPH = re.compile(r"Glyph (\d+) .* missing from font")
COLORMAP = "Blues"  # light to dark; also readable in greyscale and for colour-blind readers
MASKED = "#e8e8e8"  # background of masked cells
CELL = 0.34  # inches
MIN_LABEL = 0.05  # smaller weights have no number in their cell


def new_figure(size: tuple[float, float], layout: Literal["constrained"] | None = None) -> "Figure":
    """Creates a figure for a file, outside pyplot, whose backend and open figures are the user's."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UserError('plots need matplotlib: pip install "seq2see[plot]"') from error
    return Figure(figsize=size, layout=layout)


@cache
def _devanagari_fonts() -> list[str]:
    """Returns the installed Devanagari fonts."""
    from matplotlib import font_manager

    manager = font_manager.fontManager
    for path in font_manager.findSystemFonts():  # matplotlib's own list is cached and misses newly installed fonts
        if any(name.replace(" ", "").lower() in path.replace("-", "").lower() for name in DEVANAGARI_FONTS):
            manager.addfont(path)
    known = {font.name for font in manager.ttflist}
    return [font for font in DEVANAGARI_FONTS if font in known]


def plot_curves(panels: Mapping[str, Curves], path: Path) -> None:
    """Draws one panel per quantity, with one line per run."""
    nonempty = {title: lines for title, lines in panels.items() if any(lines.values())}
    across = max(len(nonempty), 1)
    figure = new_figure((4.5 * across, 3.4))
    axes = figure.subplots(1, across, squeeze=False)
    for axis, (title, lines) in zip(axes[0], nonempty.items(), strict=False):
        for name, points in lines.items():
            axis.plot(*zip(*points, strict=True), label=name, linewidth=1.2)
        axis.set(title=title, xlabel="step")
        axis.grid(alpha=0.3)
        axis.legend(fontsize=7)
    save(figure, path)


def plot_attention(table: "AttentionTable", path: Path, caption: str = "") -> None:
    """Draws one table, queries as rows and keys as columns, with a frame around each link."""
    rows, columns = len(table.rows), len(table.columns)
    figure = new_figure((CELL * 1.3 * max(columns, 1), CELL * max(rows, 1)))
    from matplotlib.patches import Rectangle  # after the check that matplotlib is there

    axis = figure.subplots()
    _heat_map(axis, table)
    _label_columns(axis, table.columns)
    axis.set_yticks(range(rows), table.rows, fontsize=9)
    axis.set_xlabel(caption, fontsize=8, labelpad=6)
    for i, row in enumerate(table.weights.tolist()):
        for j, value in enumerate(row):
            if value >= MIN_LABEL:
                colour = "white" if value > 0.55 else "black"
                axis.text(j, i, f"{100 * value:.0f}", ha="center", va="center", fontsize=7, color=colour)
    for i, j in table.links:
        frame = Rectangle((i - 0.5, j - 0.5), 1, 1, fill=False, edgecolor="#d55e00", linewidth=1.6, zorder=3)
        axis.add_patch(frame)
    save(figure, path)


def plot_heads(tables: Sequence["AttentionTable"], path: Path, captions: Sequence[str]) -> None:
    """Draws all heads of one attention side by side, each with its caption."""
    across = min(len(tables), 4)
    down = -(-len(tables) // across)
    rows, columns = len(tables[0].rows), len(tables[0].columns)
    size = (across * CELL * 0.75 * columns, down * (CELL * 0.75 * rows + 0.45))
    figure = new_figure(size, "constrained")
    axes = figure.subplots(down, across, squeeze=False)
    for axis in axes.flat[len(tables) :]:
        axis.set_visible(False)
    for i, (axis, table) in enumerate(zip(axes.flat, tables, strict=False)):
        _heat_map(axis, table)
        _label_columns(axis, table.columns if i < across else ())
        axis.set_yticks(range(rows), table.rows if i % across == 0 else [""] * rows, fontsize=8)
        axis.set_xlabel(f"head {table.head}, {captions[i]}", fontsize=7)
    figure.suptitle(tables[0].name, fontsize=9)
    save(figure, path)


def plot_layers(layers: Sequence[Sequence["AttentionTable"]], path: Path) -> None:
    """Draws all heads of all layers of one kind of attention, one row per layer."""
    rows, columns = len(layers[0][0].rows), len(layers[0][0].columns)
    across, down = len(layers[0]), len(layers)
    cell = 0.16
    size = (across * max(cell * columns, 0.8), down * (max(cell * rows, 0.8) + 0.2))
    figure = new_figure(size, "constrained")
    axes = figure.subplots(down, across, squeeze=False)
    for axis, table in zip(axes.flat, [table for tables in layers for table in tables], strict=True):
        _heat_map(axis, table)
        axis.set(xticks=[], yticks=[])
    for axis, table in zip(axes[0], layers[0], strict=True):
        axis.set_title(f"head {table.head}", fontsize=8)
    for layer, axis in enumerate(axes[:, 0]):
        axis.set_yticks(range(rows), layers[0][0].rows, fontsize=6)
        axis.set_ylabel(f"layer {layer}", fontsize=8)
    for axis in axes[-1]:
        axis.set_xticks(range(columns), layers[0][0].columns, fontsize=6, rotation=90)
    figure.suptitle(layers[0][0].name.replace(".0.", ".*."), fontsize=9)
    save(figure, path)


def ablation_caption(drop: Tensor) -> str:
    """Formats the change in ln P of the output without a head, from `head_ablation`."""
    return f"ablated: ln P {-float(drop.sum()):+.2f}".replace("-", "−")


def _heat_map(axis: Any, table: "AttentionTable") -> None:
    values = table.weights.float().cpu().numpy()
    if table.causal:
        import numpy as np

        values = np.ma.masked_array(values, np.triu(np.ones(values.shape, dtype=bool), 1))
        axis.set_facecolor(MASKED)
    axis.imshow(values, cmap=COLORMAP, vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    axis.set_xticks([x - 0.5 for x in range(1, values.shape[1])], minor=True)
    axis.set_yticks([y - 0.5 for y in range(1, values.shape[0])], minor=True)
    axis.grid(which="minor", color="white", linewidth=0.6)
    axis.tick_params(which="both", length=0)
    for spine in axis.spines.values():
        spine.set(linewidth=0.5, color="#888888")


def _label_columns(axis: Any, columns: Sequence[str]) -> None:
    axis.xaxis.tick_top()
    axis.set_xticks(range(len(columns)), columns, rotation=45, ha="left", rotation_mode="anchor", fontsize=9)
    axis.tick_params(which="both", length=0)


def plot_points(
    points: Mapping[str, tuple[float, float]], path: Path, axes: tuple[str, str], arrows: Sequence[tuple[str, str]] = ()
) -> None:
    """Draws words as points on two axes, with arrows between some of them."""
    figure = new_figure((8, 6.5))
    axis = figure.subplots()
    x, y = zip(*points.values(), strict=True)
    axis.scatter(x, y, s=14, color="#1f5fa8", zorder=3)
    for start, end in arrows:
        style = {"arrowstyle": "->", "color": "#c2571a", "alpha": 0.7, "shrinkA": 4, "shrinkB": 4}
        axis.annotate("", points[end], points[start], arrowprops=style)
    for word, point in points.items():
        axis.annotate(word, point, xytext=(4, 3), textcoords="offset points", fontsize=9 if len(points) < 60 else 7)
    axis.set(xlabel=axes[0], ylabel=axes[1])
    axis.margins(0.12)
    axis.grid(alpha=0.25)
    save(figure, path)


def save(figure: "Figure", path: Path) -> None:
    """Writes a figure to a file, without margins."""
    write_figure(figure, path, dpi=200, bbox_inches="tight")


def write_figure(figure: "Figure", path: Path, dpi: int, bbox_inches: str | None = None) -> None:
    """Writes a figure in the format that the suffix names, with fonts for its script; names characters that none has."""
    from matplotlib import rc_context, rcParams
    from matplotlib.text import Text

    texts: list[Any] = figure.findobj(Text)
    fonts = _devanagari_fonts() if any(DEVANAGARI.search(text.get_text()) for text in texts) else []
    families = [LATIN, *fonts, *rcParams["font.family"]]
    for text in texts:
        text.set_fontfamily(families)
    try:
        with (
            warnings.catch_warnings(record=True) as caught,
            rc_context({"font.family": families, "svg.fonttype": "path"}),
            atomic_write(path) as part,
        ):
            warnings.simplefilter("always")
            figure.savefig(part, format=path.suffix[1:].lower(), dpi=dpi, bbox_inches=bbox_inches, pad_inches=0.03)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from error
    except ValueError as error:  # an unknown format
        raise UserError(f"cannot write {path}: {error}") from error
    missing = set()
    for each in caught:
        if glyph := _MISSING_GLYPH.match(str(each.message)):
            missing.add(chr(int(glyph[1])))
        else:
            warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
    _warn_missing_glyphs("".join(sorted(missing)), path)


def _warn_missing_glyphs(missing: str, path: Path) -> None:
    if DEVANAGARI.search(missing):
        _warn_no_devanagari()
    if others := DEVANAGARI.sub("", missing):
        print(
            f'{path}: no font has "{others}": install one, and add its name to font.family in matplotlibrc',
            file=sys.stderr,
        )


@cache
def _warn_no_devanagari() -> None:
    print('no Devanagari font found: install one, for example Debian\'s "fonts-lohit-deva"', file=sys.stderr)
