"""Traces made visible."""

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
