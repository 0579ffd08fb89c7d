"""Traces and explanations made visible, in the terminal.

No two terminals agree how wide a Devanagari word is: some give a vowel sign such as ा a cell of its own, some do not, and a
conjunct such as क्ष takes one cell or two. So such words stand at the end of a line, where nothing can be pushed aside; where
they would head columns, the columns are numbered and the words listed above them.
"""

import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text
from torch import Tensor

from seq2see.inspect.trace import Trace

if TYPE_CHECKING:  # a trace can be drawn without all the rest
    from seq2see.inspect.attention_tables import AttentionTable
    from seq2see.inspect.comparison import Change
    from seq2see.inspect.logit_attribution import Contributions
    from seq2see.inspect.logit_lens import Alternative, Lens

SHADES = (
    (0.75, "bold white on #08519c"),
    (0.5, "white on #2171b5"),
    (0.25, "black on #6baed6"),
    (0.1, "black on #c6dbef"),
)
SEEN = 0.005  # less than this is not written
STRONGEST = 5  # columns that a row lists where the table is too wide


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
        table.add_row(name.removeprefix(prefix), f"[cyan]{shape}[/]", *statistics(value), f"[dim]{formula}[/]")
    return table


def statistics(value: Tensor) -> tuple[str, str]:
    """Mean and spread of the numbers that are there: token ids have none, and masked scores are −∞."""
    if not value.is_floating_point():
        return "", ""
    finite = value[torch.isfinite(value)]
    return f"{finite.mean():.3f}", f"{finite.std(correction=0):.3f}"


def draw_attention(table: "AttentionTable", width: int) -> RenderableType:
    """Weights in percent, the stronger the darker; each row ends with the word that looked, each column is looked at."""
    gap = 1
    named = all(steady(column) for column in table.columns)
    widths = [max(3, cell_len(column) if named else 0) + gap for column in table.columns]
    words = max(map(_most_cells, table.rows)) + 6
    if sum(widths) + words > width and named:
        named, widths = False, [3 + gap] * len(widths)
    if sum(widths) + words > width:
        return _strongest(table)
    drawn = _plain_table(gap)
    if table.probabilities is not None:
        drawn.add_column("P", justify="right", style="dim", no_wrap=True)
    for number, column in enumerate(table.columns):
        drawn.add_column(Text(column if named else str(number)), justify="right", no_wrap=True)
    drawn.add_column("", no_wrap=True)
    for i, word in enumerate(table.rows):
        seen = i + 1 if table.causal else len(table.columns)
        cells = [_shaded(value) if j < seen else Text() for j, value in enumerate(table.weights[i].tolist())]
        drawn.add_row(*_probability(table, i), *cells, Text(word, style="bold"))
    return drawn if named else Group(_legend(table.columns), drawn)


def steady(text: str) -> bool:
    """Whether all terminals agree how wide this is."""
    return all(unicodedata.category(c) not in ("Mc", "Cf") and unicodedata.combining(c) != 9 for c in text)  # 9: virama


def _most_cells(text: str) -> int:
    return cell_len(text) + sum(unicodedata.category(character) == "Mc" for character in text)


def _strongest(table: "AttentionTable") -> Table:
    """For long sentences: of each row only what it looked at most."""
    drawn = _plain_table(1)
    if table.probabilities is not None:
        drawn.add_column("P", justify="right", style="dim", no_wrap=True)
    drawn.add_column("")
    for i, word in enumerate(table.rows):
        best, where = table.weights[i].topk(min(STRONGEST, len(table.columns)))
        looked = Text(word, style="bold").append("  ←", style="not bold dim")
        for value, j in zip(best.tolist(), where.tolist(), strict=True):
            if value >= SEEN:
                looked.append(" ").append(f" {table.columns[j]} {100 * value:.0f} ", style=_shade(value))
        drawn.add_row(*_probability(table, i), looked)
    return drawn


def _legend(columns: Sequence[str]) -> Text:
    text = Text()
    for number, column in enumerate(columns):
        text.append(f"{number} ", style="dim").append(f"{column}   ")
    return text


def _probability(table: "AttentionTable", row: int) -> tuple[str, ...]:
    return () if table.probabilities is None else (f"{100 * table.probabilities[row]:.0f}",)


def _plain_table(gap: int = 2) -> Table:
    return Table(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="not bold")


def _shaded(value: float) -> Text:
    return Text(f"{100 * value:3.0f}", style=_shade(value)) if value >= SEEN else Text("·", style="dim")


def _shade(value: float) -> str:
    return next((style for least, style in SHADES if value >= least), "not bold")


def draw_heads(entropy: Tensor, worth: Tensor, writes: Sequence[str], which: slice = slice(None)) -> Table:
    """Of each head how widely it looks, and what is lost without it: ln P of the whole output, and of the token hit most."""
    drawn = _plain_table()
    for heading in ("head", "entropy", "ln P lost without it", "most at"):
        drawn.add_column(heading, justify="left" if heading == "most at" else "right", no_wrap=True)
    for head, nats, rows in list(zip(range(len(worth)), entropy.tolist(), worth, strict=True))[which]:
        row = int(rows.argmax())
        drawn.add_row(str(head), f"{nats:.2f}", f"{rows.sum():+.3f}", Text(f"{rows[row]:+.3f} {writes[row]}"))
    return drawn


def draw_changes(found: Sequence["Change"]) -> Table:
    """Each token of the output before, and what it became."""
    drawn = _plain_table()
    for heading in ("P before", "P now", "shift"):
        drawn.add_column(heading, justify="right", no_wrap=True)
    drawn.add_column("")
    for change in found:
        same = change.before == change.after
        words = Text(change.before or "∅", style="bold" if same else "bold red")
        if not same:
            words.append(" → ", style="dim").append(change.after or "∅", style="bold green")
        drawn.add_row(_percent(change.p_before), _percent(change.p_kept), _shift(change.shift), words)
    return drawn


def _percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f}"


def _shift(value: float | None) -> Text:
    if value is None:
        return Text("")
    return Text(f"{100 * value:+.1f}", style="red" if value < -0.05 else "green" if value > 0.05 else "dim")


def draw_alternatives(found: Sequence["Alternative"]) -> Table:
    drawn = _plain_table()
    for heading in ("P", "logit"):
        drawn.add_column(heading, justify="right", no_wrap=True)
    drawn.add_column("instead")
    for one in found:
        drawn.add_row(f"{100 * one.probability:.2f}", f"{one.logit:.2f}", Text(one.token))
    return drawn


def draw_lens(found: "Lens", row: int) -> Table:
    """What each layer would have written at one row."""
    drawn = _plain_table()
    for heading in ("read out at", "P", "rank"):
        drawn.add_column(heading, justify="left" if heading == "read out at" else "right", no_wrap=True)
    drawn.add_column("likeliest there")
    for place, readings in zip(found.places, found.readings, strict=True):
        one = readings[row]
        best = ", ".join(f"{token} {100 * p:.1f}" for token, p in one.top)
        drawn.add_row(place, f"{100 * one.probability:.2f}", f"{one.rank:,}", Text(best))
    return drawn


def draw_contributions(found: "Contributions", most: int = 10) -> Table:
    """The parts of a logit that count most, and the sum of the others."""
    drawn = _plain_table()
    for heading in ("part", "adds"):
        drawn.add_column(heading, justify="right" if heading == "adds" else "left", no_wrap=True)
    drawn.add_column("")
    ranked = sorted(found.parts, key=lambda part: -abs(part.logit))
    scale = 20 / max(max(abs(part.logit) for part in ranked), 1e-9)
    shown = [(part.name, part.logit) for part in ranked[:most]]
    if len(ranked) > most:
        shown.append((f"{len(ranked) - most} others", sum(part.logit for part in ranked[most:])))
    for name, logit in shown:
        bar = Text("█" * max(1, round(abs(logit) * scale)), style="blue" if logit >= 0 else "red")
        drawn.add_row(name, f"{logit:+.2f}", bar)
    drawn.add_row("[bold]logit[/]", f"[bold]{found.logit:+.2f}[/]", Text(f"of {found.token}"))
    return drawn
