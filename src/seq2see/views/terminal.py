"""Traces and explanations in the terminal.

Terminals disagree on the width of Devanagari: some give a vowel sign such as ा its own cell, some do not, and a conjunct
such as क्ष takes one cell or two. Such words are therefore put at the end of a line, where they cannot shift anything; as
column headings they are replaced by numbers, with a legend above.
"""

import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import torch
from rich.cells import cell_len
from rich.console import Group, RenderableType
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
TRACE_HEADINGS = ("name", "shape", "mean", "std", "formula")
MIN_SHOWN = 0.005  # smaller weights are shown as a dot
TOP_COLUMNS = 5  # columns listed per row if the table is too wide


def draw_trace(trace: Trace, pattern: str, title: str = "") -> Table:
    """Lists the values whose names match a pattern: shape, mean, standard deviation and formula."""
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for heading in TRACE_HEADINGS:
        text = heading in ("name", "formula")
        table.add_column(heading, justify="left" if text else "right", no_wrap=heading != "formula")
    prefix = pattern[: pattern.rfind(".*") + 1]  # common to all names
    for name, shape, mean, std, formula in trace_rows(trace, pattern):
        table.add_row(name.removeprefix(prefix), Text(shape, "cyan"), mean, std, Text(formula, "dim"))
    return table


def trace_rows(trace: Trace, pattern: str = "*") -> Iterator[tuple[str, str, str, str, str]]:
    """Yields name, shape, mean and standard deviation of the finite values (masked scores are −∞), and formula."""
    for name in trace.names(pattern):
        values = trace[name]
        mean = std = ""  # of token ids
        if values[0].is_floating_point():
            finite = torch.cat([value[torch.isfinite(value)] for value in values])
            mean, std = f"{finite.mean():.3f}", f"{finite.std(correction=0):.3f}"
        yield name, values.sizes, mean, std, trace.quantity(name).formula


def draw_attention(table: "AttentionTable", width: int) -> RenderableType:
    """Draws weights in percent, darker for larger ones; queries as rows with the word at the end, keys as columns."""
    named = all(has_fixed_width(column) for column in table.columns)
    widths = [max(3, cell_len(column) if named else 0) + 1 for column in table.columns]
    label_width = max(map(_max_cells, table.rows)) + 6
    if sum(widths) + label_width > width and named:
        named, widths = False, [4] * len(widths)
    if sum(widths) + label_width > width:
        return _top_columns(table)
    rendered = _weights_table(table)
    for number, column in enumerate(table.columns):
        rendered.add_column(Text(column if named else str(number)), justify="right", no_wrap=True)
    rendered.add_column("", no_wrap=True)
    for i, word in enumerate(table.rows):
        visible = i + 1 if table.causal else len(table.columns)
        cells = [_shaded(value) if j < visible else Text() for j, value in enumerate(table.weights[i].tolist())]
        rendered.add_row(*_probability(table, i), *cells, Text(word, style="bold"))
    if named:
        return rendered
    legend = Text()
    for number, column in enumerate(table.columns):
        legend.append(f"{number} ", style="dim").append(f"{column}   ")
    return Group(legend, rendered)


def has_fixed_width(text: str) -> bool:
    """Returns whether all terminals agree on the width of a text."""
    return all(unicodedata.category(c) not in ("Mc", "Cf") and unicodedata.combining(c) != 9 for c in text)  # 9: virama


def _max_cells(text: str) -> int:
    return cell_len(text) + sum(unicodedata.category(character) == "Mc" for character in text)


def _top_columns(table: "AttentionTable") -> Table:
    """For long sentences: lists only the largest weights of each row."""
    rendered = _weights_table(table)
    rendered.add_column("")
    for i, word in enumerate(table.rows):
        values, columns = table.weights[i].topk(min(TOP_COLUMNS, len(table.columns)))
        line = Text(word, style="bold").append("  ←", style="not bold dim")
        for value, j in zip(values.tolist(), columns.tolist(), strict=True):
            if value >= MIN_SHOWN:
                line.append(" ").append(f" {table.columns[j]} {100 * value:.0f} ", style=_shade(value))
        rendered.add_row(*_probability(table, i), line)
    return rendered


def _probability(table: "AttentionTable", row: int) -> tuple[str, ...]:
    return () if table.probabilities is None else (f"{100 * table.probabilities[row]:.0f}",)


def _plain_table(gap: int) -> Table:
    return Table(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="not bold")


def _weights_table(table: "AttentionTable") -> Table:
    rendered = _plain_table(1)
    if table.probabilities is not None:
        rendered.add_column("P", justify="right", style="dim", no_wrap=True)
    return rendered


def _shaded(value: float) -> Text:
    return Text(f"{100 * value:3.0f}", style=_shade(value)) if value >= MIN_SHOWN else Text("·", style="dim")


def _shade(value: float) -> str:
    return next((style for threshold, style in SHADES if value >= threshold), "not bold")


def _list(headings: Sequence[str], rows: Iterable[Sequence[str | Text]]) -> Table:
    """Lists rows under headings: numbers, and last a text; the first column may also be a text."""
    rendered = _plain_table(2)
    for heading in headings:
        is_text = heading in (headings[-1], "layer", "component")
        rendered.add_column(heading, justify="left" if is_text else "right", no_wrap=heading != headings[-1])
    for row in rows:
        rendered.add_row(*row)
    return rendered


def draw_heads(entropy: Tensor, ablation: Tensor, targets: Sequence[str], heads: slice = slice(None)) -> Table:
    """Lists heads with their entropy and their ablation: the drop in ln P of the output, and the token with the largest."""
    found = list(zip(range(len(ablation)), entropy.tolist(), ablation, strict=True))[heads]
    largest = [(head, nats, drop, int(drop.argmax())) for head, nats, drop in found]
    return _list(
        ("head", "entropy", "ln P drop if ablated", "largest at"),
        [
            (str(head), f"{nats:.2f}", f"{drop.sum():+.3f}", Text(f"{drop[row]:+.3f} {targets[row]}"))
            for head, nats, drop, row in largest
        ],
    )


def draw_changes(changes: Sequence["TokenChange"]) -> Table:
    """Lists the tokens before and after an intervention."""
    rows = []
    for change in changes:
        same = change.before == change.after
        words = Text(change.before or "∅", style="bold" if same else "bold red")
        if not same:
            words.append(" → ", style="dim").append(change.after or "∅", style="bold green")
        shift = "" if change.shift is None else Text(f"{100 * change.shift:+.1f}", style=_sign_style(change.shift))
        p_before, p_after = ("" if p is None else f"{100 * p:.1f}" for p in (change.p_before, change.p_same_token))
        rows.append((p_before, p_after, shift, words))
    return _list(("P before", "P after", "shift", ""), rows)


def _sign_style(shift: float) -> str:
    return "red" if shift < -0.05 else "green" if shift > 0.05 else "dim"


def draw_alternatives(alternatives: Sequence["Alternative"]) -> Table:
    """Lists the most likely tokens of a row."""
    rows = [(f"{100 * one.probability:.2f}", f"{one.logit:.2f}", Text(one.token)) for one in alternatives]
    return _list(("P", "logit", "token"), rows)


def draw_logit_lens(lens: "LogitLens", row: int) -> Table:
    """Lists what each layer would predict at one row."""
    rows = []
    for layer, readings in zip(lens.layers, lens.readings, strict=True):
        reading = readings[row]
        best = Text(", ".join(f"{token} {100 * p:.1f}" for token, p in reading.top))
        rows.append((layer, f"{100 * reading.probability:.2f}", f"{reading.rank:,}", best))
    return _list(("layer", "P", "rank", "most likely"), rows)


def draw_logit_attribution(attribution: "LogitAttribution", top: int = 10) -> Table:
    """Lists the largest contributions to a logit, and the sum of the others."""
    ranked = sorted(attribution.contributions, key=lambda one: -abs(one.logit))
    scale = 20 / max(abs(ranked[0].logit), 1e-9)
    found = [(one.name, one.logit) for one in ranked[:top]]
    if len(ranked) > top:
        found.append((f"{len(ranked) - top} others", sum(one.logit for one in ranked[top:])))
    rows: list[tuple[str, str, Text]] = []
    for name, logit in found:
        bar = Text("█" * max(1, round(abs(logit) * scale)), style="blue" if logit >= 0 else "red")
        rows.append((name, f"{logit:+.2f}", bar))
    total = (Text("sum", "bold"), Text(f"{attribution.logit:+.2f}", "bold"), Text(f"logit of {attribution.token}"))
    return _list(("component", "logit", ""), [*rows, total])
