"""Pictures as files, by matplotlib: the `plot` extra."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from seq2see.errors import UserError

Curves = Mapping[str, Sequence[tuple[float, float]]]

# A font for each script that we meet; matplotlib takes the next one for what the first has not.
FONTS = ["DejaVu Sans", "Noto Sans Devanagari", "Lohit Devanagari", "Nirmala UI", "Kohinoor Devanagari", "Mangal"]


def pyplot() -> Any:
    """matplotlib, set up for files and for text in any script."""
    try:
        import matplotlib
    except ImportError as error:
        raise UserError('pictures need matplotlib: pip install "seq2see[plot]"') from error
    matplotlib.use("Agg")
    from matplotlib import font_manager, pyplot

    known = {font.name for font in font_manager.fontManager.ttflist}
    pyplot.rcParams["font.family"] = [font for font in FONTS if font in known] or ["sans-serif"]
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
    _save(figure, path)


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
    _save(figure, path)


def _save(figure: Any, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        figure.savefig(path, dpi=160, bbox_inches="tight")
    except (OSError, ValueError) as error:
        raise UserError(f"cannot draw {path}: {error}") from error
    finally:
        pyplot().close(figure)
