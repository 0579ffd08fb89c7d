"""Notebook display of models, traces and explanations: plain HTML without scripts or external resources."""

from collections.abc import Iterable, Mapping
from html import escape

from seq2see.inspect.attention_flow import attention_names
from seq2see.inspect.attention_tables import AttentionTable, attention_table
from seq2see.inspect.explain import Explanation, escape_control
from seq2see.inspect.logit_lens import alternatives
from seq2see.inspect.trace import Trace
from seq2see.views.terminal import TRACE_HEADINGS, trace_rows

STYLE = """<style>
.seq2see td, .seq2see th {padding: 2px 6px; text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap}
.seq2see .word {text-align: left}
.seq2see caption {text-align: left; caption-side: top}
</style>"""


WORD_CLASS = ' class="word"'


def explanation_html(e: Explanation, top: int = 3) -> str:
    """Shows the output with its last attention; folded, the alternatives at each row and all other attentions."""
    names = attention_names(e)
    cross = [name for name in names if name.endswith(".cross")] or names
    rows = [
        _cell("th", target, WORD_CLASS)
        + _cell(
            "td",
            ", ".join(f"{one.token} {100 * one.probability:.1f}%" for one in alternatives(e, row, top)),
            WORD_CLASS,
        )
        for row, target in enumerate(e.target_tokens)
    ]
    parts = [
        f"<p>{escape(escape_control(e.source))} → <b>{escape(escape_control(e.output))}</b></p>",
        *([f"<p>⚠ {escape(escape_control(e.assessment.note))}</p>"] if e.assessment.note else []),
        *([_attention(attention_table(e, cross[-1]))] if cross else []),
        _folded("alternatives at each row", _table(rows)),
        *(_folded(name, _attention(attention_table(e, name))) for name in names),
    ]
    return f'{STYLE}<div class="seq2see" style="overflow-x:auto">{"".join(parts)}</div>'


def trace_html(trace: Trace) -> str:
    """Lists every value with its shape, mean, standard deviation and formula."""
    rows = ["".join(_cell("th", heading) for heading in TRACE_HEADINGS)]
    for name, *numbers, formula in trace_rows(trace):
        cells = "".join(_cell("td", number) for number in numbers)
        rows.append(_cell("td", name, WORD_CLASS) + cells + _cell("td", formula, WORD_CLASS))
    return f'{STYLE}<div class="seq2see">{_table(rows)}</div>'


def table_html(rows: Mapping[str, str]) -> str:
    """Shows names and values in two columns."""
    lines = [_cell("th", name, WORD_CLASS) + _cell("td", value, WORD_CLASS) for name, value in rows.items()]
    return f'{STYLE}<div class="seq2see">{_table(lines)}</div>'


def _attention(table: AttentionTable) -> str:
    rows = ["<th></th>" + "".join(_cell("th", column) for column in table.columns)]
    for i, word in enumerate(table.rows):
        cells = (
            "<td></td>" if table.causal and j > i else _shaded(value)
            for j, value in enumerate(table.weights[i].tolist())
        )
        rows.append(_cell("th", word, WORD_CLASS) + "".join(cells))
    return _table(rows, f"<caption>{escape(table.title)}, %</caption>")


def _shaded(value: float) -> str:
    """Shades a cell by its value; the text stays readable in light and dark notebooks."""
    colour = "white" if value > 0.5 else "black"
    shade = f"rgb({247 - 239 * value:.0f},{251 - 170 * value:.0f},{255 - 99 * value:.0f})"
    return _cell("td", f"{100 * value:.0f}", f' style="background:{shade};color:{colour}"')


def _cell(tag: str, text: str, attributes: str = "") -> str:
    return f"<{tag}{attributes}>{escape(text)}</{tag}>"


def _table(rows: Iterable[str], caption: str = "") -> str:
    return f"<table>{caption}{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"


def _folded(title: str, content: str) -> str:
    return f"<details><summary>{escape(title)}</summary>{content}</details>"
