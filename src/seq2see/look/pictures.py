"""Traces made visible, in the terminal."""

from collections.abc import Sequence

import torch
from rich.markup import escape
from rich.table import Table
from torch import Tensor

from seq2see.look.trace import Trace


def summary(trace: Trace, pattern: str, title: str = "") -> Table:
    """What happened at each step whose name matches: shape, mean, spread, and the formula in words."""
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for heading in ("step", "shape", "mean", "spread", "what it is"):
        text = heading in ("step", "what it is")
        table.add_column(heading, justify="left" if text else "right", no_wrap=heading != "what it is")
    prefix = pattern[: pattern.rfind(".*") + 1]  # what all names have in common, and the title can say
    for name in trace.names(pattern):
        value = trace[name]
        shape = " × ".join(f"{size:,}" for size in value.shape)
        formula = escape(trace.quantity(name).formula)
        table.add_row(name.removeprefix(prefix), f"[cyan]{shape}[/]", *_statistics(value), f"[dim]{formula}[/]")
    return table


def _statistics(value: Tensor) -> tuple[str, str]:
    """Mean and spread of the numbers that are there: token ids have none, and masked scores are −∞."""
    if not value.is_floating_point():
        return "", ""
    finite = value[torch.isfinite(value)]
    return f"{finite.mean():.3f}", f"{finite.std(correction=0):.3f}"


def attention_table(weights: Tensor, rows: Sequence[str], columns: Sequence[str]) -> Table:
    """Attention weights as percent, the stronger the brighter; a row looks, a column is looked at."""
    table = Table(box=None, pad_edge=False, padding=(0, 1))
    table.add_column("")
    for column in columns:
        table.add_column(escape(column), justify="right", no_wrap=True)
    for word, row in zip(rows, weights.tolist(), strict=True):
        table.add_row(f"[bold]{escape(word)}[/]", *(_shaded(value) for value in row))
    return table


def _shaded(value: float) -> str:
    style = "bold white on blue" if value >= 0.5 else "cyan" if value >= 0.15 else "dim"
    return f"[{style}]{value:4.0%}[/]"
