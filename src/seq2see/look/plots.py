"""Pictures as files, by matplotlib: the `plot` extra."""

import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from seq2see.errors import UserError

Curves = Mapping[str, Sequence[tuple[float, float]]]

# matplotlib takes the next font for what the first has not.
LATIN = "DejaVu Sans"  # comes with matplotlib
DEVANAGARI = ["Noto Sans Devanagari", "Lohit Devanagari", "Nirmala UI", "Kohinoor Devanagari", "Mangal"]


def pyplot() -> Any:
    """matplotlib, set up for files and for text in any script."""
    try:
        import matplotlib
    except ImportError as error:
        raise UserError('pictures need matplotlib: pip install "seq2see[plot]"') from error
    matplotlib.use("Agg")
    from matplotlib import font_manager, pyplot

    manager = font_manager.fontManager
    for path in font_manager.findSystemFonts():  # its own list is cached, and does not know a font installed since
        if any(name.replace(" ", "").lower() in path.replace("-", "").lower() for name in DEVANAGARI):
            manager.addfont(path)
    known = {font.name for font in manager.ttflist}
    found = [font for font in DEVANAGARI if font in known]
    pyplot.rcParams["font.family"] = [LATIN, *found]
    if not found:
        print('no font for Devanagari was found: install one, such as Debian\'s "fonts-lohit-deva"', file=sys.stderr)
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
    return pyplot


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


def attention(weights: Tensor, rows: Sequence[str], columns: Sequence[str], path: Path, title: str = "") -> None:
    """One table of weights, each row a token that looks, each column one that is looked at."""
    plt = pyplot()
    figure, axis = plt.subplots(figsize=(1.5 + 0.55 * len(columns), 1.2 + 0.45 * len(rows)))
    axis.imshow(weights.float().cpu(), cmap="Blues", vmin=0, vmax=1, aspect="auto")
    axis.set_xticks(range(len(columns)), columns, rotation=40, ha="left", rotation_mode="anchor")
    axis.xaxis.tick_top()
    axis.set_yticks(range(len(rows)), rows)
    for i, row in enumerate(weights.tolist()):
        for j, value in enumerate(row):
            if value >= 0.05:
                axis.text(
                    j,
                    i,
                    f"{value:.2f}",
                    ha="center",
                    va="center",
                    fontsize=8,
                    color="white" if value > 0.5 else "black",
                )
    if title:
        axis.set_title(title, fontsize=10, pad=24)
    save(figure, path)


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
        figure.savefig(path, dpi=160, bbox_inches="tight")
    except (OSError, ValueError) as error:
        raise UserError(f"cannot draw {path}: {error}") from error
    finally:
        figure.clear()
