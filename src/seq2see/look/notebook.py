"""How a trace and an explanation show themselves in a notebook: plain HTML, no script, nothing from elsewhere."""

from html import escape

from seq2see.look.explain import Explanation
from seq2see.look.flow import attentions
from seq2see.look.lens import alternatives
from seq2see.look.pictures import statistics
from seq2see.look.tables import AttentionTable, all_heads
from seq2see.look.trace import Trace

CELL = "padding:2px 6px;text-align:right;font-variant-numeric:tabular-nums"
WORD = "padding:2px 6px;text-align:left;white-space:nowrap"


def explanation_html(e: Explanation, top: int = 3) -> str:
    """The output; how sure each token was and what else was near; then every attention, heads and all, to unfold."""
    names = attentions(e)
    last = names[-1]
    parts = [
        f"<p>{escape(e.source)} → <b>{escape(e.output)}</b></p>",
        _table(all_heads(e, last)[-1]),
        _folded("what else each row might have written", _alternatives(e, top)),
    ]
    for name in names:
        tables = "".join(f'<div style="display:inline-block;margin:4px">{_table(t)}</div>' for t in all_heads(e, name))
        parts.append(_folded(name, tables))
    return f'<div style="overflow-x:auto">{"".join(parts)}</div>'


def trace_html(trace: Trace) -> str:
    """Every step by name, with its shape, its mean and spread, and its formula in words."""
    rows = []
    for name in trace.names():
        value = trace[name]
        shape = " × ".join(f"{size:,}" for size in value.shape)
        cells = "".join(f'<td style="{CELL}">{cell}</td>' for cell in (shape, *statistics(value)))
        formula = escape(trace.quantity(name).formula)
        rows.append(f'<tr><td style="{WORD}">{escape(name)}</td>{cells}<td style="{WORD}">{formula}</td></tr>')
    heads = "".join(f"<th>{heading}</th>" for heading in ("step", "shape", "mean", "spread", "what it is"))
    return f"<table><tr>{heads}</tr>{''.join(rows)}</table>"


def _table(table: AttentionTable) -> str:
    heads = "".join(f'<th style="{CELL}">{escape(column)}</th>' for column in table.columns)
    rows = []
    for i, word in enumerate(table.rows):
        cells = "".join(
            _cell(value) if not (table.causal and j > i) else "<td></td>"
            for j, value in enumerate(table.weights[i].tolist())
        )
        rows.append(f'<tr><th style="{WORD}">{escape(word)}</th>{cells}</tr>')
    return f"<table><caption>{escape(table.title)}, %</caption><tr><th></th>{heads}</tr>{''.join(rows)}</table>"


def _cell(value: float) -> str:
    """Darker the more, with letters that can be read on it in a light and in a dark notebook."""
    colour = "white" if value > 0.5 else "black"
    shade = f"rgb({247 - 239 * value:.0f},{251 - 170 * value:.0f},{255 - 99 * value:.0f})"
    return f'<td style="{CELL};background:{shade};color:{colour}">{100 * value:.0f}</td>'


def _alternatives(e: Explanation, top: int) -> str:
    rows = []
    for row, written in enumerate(e.writes):
        others = ", ".join(f"{escape(one.token)} {100 * one.probability:.1f}%" for one in alternatives(e, row, top))
        rows.append(f'<tr><th style="{WORD}">{escape(written)}</th><td style="{WORD}">{others}</td></tr>')
    return f"<table>{''.join(rows)}</table>"


def _folded(title: str, content: str) -> str:
    return f"<details><summary>{escape(title)}</summary>{content}</details>"
