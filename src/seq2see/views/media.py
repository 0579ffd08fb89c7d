"""Where a model looked in a picture or sound: for each token that it wrote, in the terminal and as a plot.

The source axis is the picture or the spectrogram itself: each patch, or each 20 ms, has the attention weight that a written
token gives it.

Shapes: R written tokens, U source tokens (patches or pairs of frames).
"""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.table import Table
from rich.text import Text

from seq2see.formats.media.pictures import join_patches
from seq2see.inspect.attention_tables import AttentionTable
from seq2see.inspect.explain import Explanation
from seq2see.views.plots import COLORMAP, new_figure, save

BLOCKS = " ▁▂▃▄▅▆▇█"
MIN_WIDTH = 10  # of a profile in the terminal, in characters


def draw_profiles(e: Explanation, table: AttentionTable, width: int) -> Table:
    """Draws, for each written token, the attention from left to right of a picture, or over the time of a sound."""
    result = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("", "P", f"← {_extent(e)} →", "most at"):
        result.add_column(name, justify="right" if name == "P" else "left", no_wrap=True)
    profiles = _profiles(e, table)
    room = max(MIN_WIDTH, width - 26 - max(map(len, table.rows), default=0))
    for i, (label, profile) in enumerate(zip(table.rows, profiles, strict=True)):
        probability = "" if table.probabilities is None else f"{100 * table.probabilities[i]:.1f}"
        best = int(table.weights[i].argmax())
        result.add_row(Text(label), probability, Text(_blocks(profile, room), style="blue"), e.source_tokens[best])
    return result


def _profiles(e: Explanation, table: AttentionTable) -> NDArray[np.float32]:
    """Returns the weights of each written token summed over the patches of a column, or over time, [R, columns]."""
    rows = e.model.config.model.patch_rows if e.model.config.model.source == "pictures" else 1
    return table.weights.float().unflatten(1, (-1, rows)).sum(2).numpy()


def _blocks(profile: NDArray[np.float32], width: int) -> str:
    """Draws one line of blocks; several columns that share a character show the largest."""
    values = np.array([group.max() for group in np.array_split(profile, min(width, len(profile)))])
    return "".join(BLOCKS[round(8 * float(value))] for value in values / max(values.max(), 1e-9))


def _extent(e: Explanation) -> str:
    model, count = e.model.config.model, len(e.source_tokens)
    if model.source == "pictures":
        return f"{count // model.patch_rows} columns of patches"
    return f"{0.02 * count:.2f} seconds"


def plot_media(e: Explanation, table: AttentionTable, path: Path) -> None:
    """Plots the picture or spectrogram with the attention of each written token."""
    draw = _plot_picture if e.model.config.model.source == "pictures" else _plot_spectrogram
    save(draw(e, table), path)


def _plot_picture(e: Explanation, table: AttentionTable) -> Any:
    model = e.model.config.model
    assert e.source_rows is not None
    picture = join_patches(e.source_rows, model.patch_size, model.patch_rows)  # [height, width, channels]
    height, width, channels = picture.shape
    count, extent = len(table.rows), (0, width, height, 0)
    inches = min(8.0, max(2.0, width / 32))
    size = (inches, (count + 1) * (inches * height / width + 0.12))
    figure = new_figure(size)
    axes = figure.subplots(count + 1, 1, squeeze=False)
    for i, (axis, label) in enumerate(zip(axes[:, 0], (e.output, *table.rows), strict=True)):
        axis.imshow(picture[..., 0] if channels == 1 else picture, cmap="gray", vmin=0, vmax=255, extent=extent)
        if i:
            weights = table.weights[i - 1].float().unflatten(0, (-1, model.patch_rows)).T  # [patch rows, columns]
            axis.imshow(weights.numpy(), cmap="Reds", alpha=0.6, vmin=0, extent=extent, interpolation="nearest")
        axis.set_ylabel(label, rotation=0, ha="right", va="center", fontsize=9 if i else 11)
        axis.set(xticks=[], yticks=[])
    return figure


def _plot_spectrogram(e: Explanation, table: AttentionTable) -> Any:
    assert e.source_rows is not None
    bands = e.model.config.model.mel_bands
    frames = e.source_rows.reshape(-1, bands).T.astype(np.float32)  # [bands, T]
    seconds, count = frames.shape[1] * 0.01, len(table.rows)
    size = min(12.0, max(4.0, 2.5 * seconds)), 1.8 + 0.28 * count
    grid = {"height_ratios": [1.6, 0.28 * count], "hspace": 0.06}
    figure = new_figure(size)
    top, bottom = figure.subplots(2, 1, sharex=True, gridspec_kw=grid)
    top.imshow(frames, origin="lower", aspect="auto", cmap="magma", extent=(0, seconds, 0, bands))
    top.set_ylabel("mel band", fontsize=8)
    top.set_title(e.output, fontsize=9, loc="left")
    extent, weights = (0, seconds, count, 0), table.weights.float().numpy()
    bottom.imshow(weights, aspect="auto", cmap=COLORMAP, vmin=0, extent=extent, interpolation="nearest")
    bottom.set_yticks([i + 0.5 for i in range(count)], table.rows, fontsize=8)
    bottom.set_xlabel("seconds", fontsize=8)
    for axis in (top, bottom):
        axis.tick_params(labelsize=8)
    return figure
