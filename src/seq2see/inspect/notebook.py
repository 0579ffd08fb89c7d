"""Notebook display of models, traces and explanations: plain HTML without scripts or external resources."""

from collections.abc import Mapping
from html import escape

from seq2see.inspect.attention_flow import attention_names
from seq2see.inspect.attention_tables import AttentionTable, attention_table
from seq2see.inspect.explain import Explanation, escape_control
from seq2see.inspect.logit_lens import alternatives
from seq2see.inspect.terminal import statistics
from seq2see.inspect.trace import Trace

STYLE = """<style>
.seq2see td, .seq2see th {padding: 2px 6px; text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap}
.seq2see .word {text-align: left}
.seq2see caption {text-align: left; caption-side: top}
</style>"""


def explanation_html(e: Explanation, top: int = 3) -> str:
    """Shows the output with its last attention; folded, the alternatives at each row and all other attentions."""
    names = attention_names(e)
    cross = [name for name in names if name.endswith(".cross")] or names
    parts = [
        f"<p>{escape(escape_control(e.source))} → <b>{escape(escape_control(e.output))}</b></p>",
        *([f"<p>⚠ {escape(escape_control(e.assessment.note))}</p>"] if e.assessment.note else []),
        *([_table(attention_table(e, cross[-1]))] if cross else []),
        _folded("alternatives at each row", _alternatives(e, top)),
        *(_folded(name, _table(attention_table(e, name))) for name in names),
    ]
    return f'{STYLE}<div class="seq2see" style="overflow-x:auto">{"".join(parts)}</div>'


def trace_html(trace: Trace) -> str:
    """Lists every value with its shape, mean, standard deviation and formula."""
    rows = []
    for name in trace.names():
        value = trace[name]
        shape = " × ".join(f"{size:,}" for size in value.shape)
        cells = "".join(f"<td>{cell}</td>" for cell in (shape, *statistics(value)))
        formula = escape(trace.quantity(name).formula)
        rows.append(f'<tr><td class="word">{escape(name)}</td>{cells}<td class="word">{formula}</td></tr>')
    headings = "".join(f"<th>{heading}</th>" for heading in ("name", "shape", "mean", "std", "formula"))
    return f'{STYLE}<div class="seq2see"><table><tr>{headings}</tr>{"".join(rows)}</table></div>'


def table_html(rows: Mapping[str, str]) -> str:
    """Shows names and values in two columns."""
    lines = (
        f'<tr><th class="word">{escape(name)}</th><td class="word">{escape(value)}</td></tr>'
        for name, value in rows.items()
    )
    return f'{STYLE}<div class="seq2see"><table>{"".join(lines)}</table></div>'


def _table(table: AttentionTable) -> str:
    headings = "".join(f"<th>{escape(column)}</th>" for column in table.columns)
    rows = []
    for i, word in enumerate(table.rows):
        cells = "".join(
            _cell(value) if not (table.causal and j > i) else "<td></td>"
            for j, value in enumerate(table.weights[i].tolist())
        )
        rows.append(f'<tr><th class="word">{escape(word)}</th>{cells}</tr>')
    return f"<table><caption>{escape(table.title)}, %</caption><tr><th></th>{headings}</tr>{''.join(rows)}</table>"


def _cell(value: float) -> str:
    """Shades a cell by its value; the text stays readable in light and dark notebooks."""
    colour = "white" if value > 0.5 else "black"
    shade = f"rgb({247 - 239 * value:.0f},{251 - 170 * value:.0f},{255 - 99 * value:.0f})"
    return f'<td style="background:{shade};color:{colour}">{100 * value:.0f}</td>'


def _alternatives(e: Explanation, top: int) -> str:
    rows = []
    for row, target in enumerate(e.target_tokens):
        others = ", ".join(f"{escape(one.token)} {100 * one.probability:.1f}%" for one in alternatives(e, row, top))
        rows.append(f'<tr><th class="word">{escape(target)}</th><td class="word">{others}</td></tr>')
    return f"<table>{''.join(rows)}</table>"


def _folded(title: str, content: str) -> str:
    return f"<details><summary>{escape(title)}</summary>{content}</details>"
