"""Traces and explanations in the terminal.

Terminals disagree on the width of Devanagari: some give a vowel sign such as ा its own cell, some do not, and a conjunct
such as क्ष takes one cell or two. Such words are therefore put at the end of a line, where they cannot shift anything; as
column headings they are replaced by numbers, with a legend above.
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

if TYPE_CHECKING:  # showing a trace does not need the analyses
    from seq2see.inspect.attention_tables import AttentionTable
    from seq2see.inspect.comparison import TokenChange
    from seq2see.inspect.logit_attribution import LogitAttribution
    from seq2see.inspect.logit_lens import Alternative, LogitLens

SHADES = (
    (0.75, "bold white on #08519c"),
    (0.5, "white on #2171b5"),
    (0.25, "black on #6baed6"),
    (0.1, "black on #c6dbef"),
)
MIN_SHOWN = 0.005  # smaller weights are shown as a dot
TOP_COLUMNS = 5  # columns listed per row if the table is too wide


def summary(trace: Trace, pattern: str, title: str = "") -> Table:
    """Lists the values whose names match a pattern: shape, mean, standard deviation and formula."""
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for heading in ("name", "shape", "mean", "std", "formula"):
        text = heading in ("name", "formula")
        table.add_column(heading, justify="left" if text else "right", no_wrap=heading != "formula")
    prefix = pattern[: pattern.rfind(".*") + 1]  # common to all names
    for name in trace.names(pattern):
        value = trace[name]
        shape = " × ".join(f"{size:,}" for size in value.shape)
        formula = escape(trace.quantity(name).formula)
        table.add_row(name.removeprefix(prefix), f"[cyan]{shape}[/]", *statistics(value), f"[dim]{formula}[/]")
    return table


def statistics(value: Tensor) -> tuple[str, str]:
    """Returns mean and standard deviation of the finite values (masked scores are −∞); empty for token ids."""
    if not value.is_floating_point():
        return "", ""
    finite = value[torch.isfinite(value)]
    return f"{finite.mean():.3f}", f"{finite.std(correction=0):.3f}"


def draw_attention(table: "AttentionTable", width: int) -> RenderableType:
    """Draws weights in percent, darker for larger ones; queries as rows with the word at the end, keys as columns."""
    gap = 1
    named = all(has_fixed_width(column) for column in table.columns)
    widths = [max(3, cell_len(column) if named else 0) + gap for column in table.columns]
    label_width = max(map(_max_cells, table.rows)) + 6
    if sum(widths) + label_width > width and named:
        named, widths = False, [3 + gap] * len(widths)
    if sum(widths) + label_width > width:
        return _top_columns(table)
    rendered = _plain_table(gap)
    if table.probabilities is not None:
        rendered.add_column("P", justify="right", style="dim", no_wrap=True)
    for number, column in enumerate(table.columns):
        rendered.add_column(Text(column if named else str(number)), justify="right", no_wrap=True)
    rendered.add_column("", no_wrap=True)
    for i, word in enumerate(table.rows):
        visible = i + 1 if table.causal else len(table.columns)
        cells = [_shaded(value) if j < visible else Text() for j, value in enumerate(table.weights[i].tolist())]
        rendered.add_row(*_probability(table, i), *cells, Text(word, style="bold"))
    return rendered if named else Group(_legend(table.columns), rendered)


def has_fixed_width(text: str) -> bool:
    """Returns whether all terminals agree on the width of a text."""
    return all(unicodedata.category(c) not in ("Mc", "Cf") and unicodedata.combining(c) != 9 for c in text)  # 9: virama


def _max_cells(text: str) -> int:
    return cell_len(text) + sum(unicodedata.category(character) == "Mc" for character in text)


def _top_columns(table: "AttentionTable") -> Table:
    """For long sentences: lists only the largest weights of each row."""
    rendered = _plain_table(1)
    if table.probabilities is not None:
        rendered.add_column("P", justify="right", style="dim", no_wrap=True)
    rendered.add_column("")
    for i, word in enumerate(table.rows):
        values, columns = table.weights[i].topk(min(TOP_COLUMNS, len(table.columns)))
        line = Text(word, style="bold").append("  ←", style="not bold dim")
        for value, j in zip(values.tolist(), columns.tolist(), strict=True):
            if value >= MIN_SHOWN:
                line.append(" ").append(f" {table.columns[j]} {100 * value:.0f} ", style=_shade(value))
        rendered.add_row(*_probability(table, i), line)
    return rendered


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
    return Text(f"{100 * value:3.0f}", style=_shade(value)) if value >= MIN_SHOWN else Text("·", style="dim")


def _shade(value: float) -> str:
    return next((style for threshold, style in SHADES if value >= threshold), "not bold")


def draw_heads(entropy: Tensor, ablation: Tensor, targets: Sequence[str], heads: slice = slice(None)) -> Table:
    """Lists heads with their entropy and their ablation: the drop in ln P of the output, and the token with the largest."""
    rendered = _plain_table()
    for heading in ("head", "entropy", "ln P drop if ablated", "largest at"):
        rendered.add_column(heading, justify="left" if heading == "largest at" else "right", no_wrap=True)
    for head, nats, drop in list(zip(range(len(ablation)), entropy.tolist(), ablation, strict=True))[heads]:
        row = int(drop.argmax())
        rendered.add_row(str(head), f"{nats:.2f}", f"{drop.sum():+.3f}", Text(f"{drop[row]:+.3f} {targets[row]}"))
    return rendered


def draw_changes(changes: Sequence["TokenChange"]) -> Table:
    """Lists the tokens before and after an intervention."""
    rendered = _plain_table()
    for heading in ("P before", "P after", "shift"):
        rendered.add_column(heading, justify="right", no_wrap=True)
    rendered.add_column("")
    for change in changes:
        same = change.before == change.after
        words = Text(change.before or "∅", style="bold" if same else "bold red")
        if not same:
            words.append(" → ", style="dim").append(change.after or "∅", style="bold green")
        rendered.add_row(_percent(change.p_before), _percent(change.p_same_token), _shift(change.shift), words)
    return rendered


def _percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f}"


def _shift(value: float | None) -> Text:
    if value is None:
        return Text("")
    return Text(f"{100 * value:+.1f}", style="red" if value < -0.05 else "green" if value > 0.05 else "dim")


def draw_alternatives(alternatives: Sequence["Alternative"]) -> Table:
    """Lists the most likely tokens of a row."""
    rendered = _plain_table()
    for heading in ("P", "logit"):
        rendered.add_column(heading, justify="right", no_wrap=True)
    rendered.add_column("token")
    for candidate in alternatives:
        rendered.add_row(f"{100 * candidate.probability:.2f}", f"{candidate.logit:.2f}", Text(candidate.token))
    return rendered


def draw_logit_lens(lens: "LogitLens", row: int) -> Table:
    """Lists what each layer would predict at one row."""
    rendered = _plain_table()
    for heading in ("layer", "P", "rank"):
        rendered.add_column(heading, justify="left" if heading == "layer" else "right", no_wrap=True)
    rendered.add_column("most likely")
    for layer, readings in zip(lens.layers, lens.readings, strict=True):
        reading = readings[row]
        best = ", ".join(f"{token} {100 * p:.1f}" for token, p in reading.top)
        rendered.add_row(layer, f"{100 * reading.probability:.2f}", f"{reading.rank:,}", Text(best))
    return rendered


def draw_logit_attribution(attribution: "LogitAttribution", top: int = 10) -> Table:
    """Lists the largest contributions to a logit, and the sum of the others."""
    rendered = _plain_table()
    for heading in ("component", "logit"):
        rendered.add_column(heading, justify="right" if heading == "logit" else "left", no_wrap=True)
    rendered.add_column("")
    ranked = sorted(attribution.contributions, key=lambda one: -abs(one.logit))
    scale = 20 / max(max(abs(one.logit) for one in ranked), 1e-9)
    rows = [(one.name, one.logit) for one in ranked[:top]]
    if len(ranked) > top:
        rows.append((f"{len(ranked) - top} others", sum(one.logit for one in ranked[top:])))
    for name, logit in rows:
        bar = Text("█" * max(1, round(abs(logit) * scale)), style="blue" if logit >= 0 else "red")
        rendered.add_row(name, f"{logit:+.2f}", bar)
    rendered.add_row("[bold]sum[/]", f"[bold]{attribution.logit:+.2f}[/]", Text(f"logit of {attribution.token}"))
    return rendered
