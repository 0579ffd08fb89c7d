"""Attention as a table with words on both sides: what the terminal, the pictures and the notebook show.

A token may hold half a letter: such tokens are joined to their neighbours first, so that every label can be read. The
weights of joined keys add up, the rows of joined queries are averaged.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from seq2see.errors import UsageError, nearest
from seq2see.inspect.attention_flow import attentions, weights
from seq2see.inspect.explain import Explanation, shown
from seq2see.text.token_spans import Piece
from seq2see.text.tokenizer import END, START


@dataclass(frozen=True, eq=False)
class AttentionTable:
    """Row i looks at column j with weights[i, j]."""

    name: str  # decoder.1.cross
    head: int | None  # None: the mean over several heads
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    weights: Tensor
    causal: bool  # columns after the row's own are hidden from it, not just unnoticed
    probabilities: tuple[float, ...] | None  # of what each row of the decoder wrote

    @property
    def title(self) -> str:
        return f"{self.name}, {'mean of its heads' if self.head is None else f'head {self.head}'}"


def attention_table(e: Explanation, attention: str, head: int | None = None) -> AttentionTable:
    """One head, or the mean of all. Rows of the decoder are labelled by what they were about to write."""
    return all_heads(e, attention)[-1 if head is None else _checked_head(e, head)]


def all_heads(e: Explanation, attention: str) -> list[AttentionTable]:
    """A table of every head, and the mean as the last; of one head that is the head itself."""
    known = attentions(e)
    if attention not in known:
        raise UsageError(f'no attention "{attention}": {nearest(attention, known)}')
    stack, _, kind = attention.split(".")
    written, looked_at = _written(e), _read(e) if kind == "masked" else _source(e)
    rows, probabilities = looked_at, None
    if stack == "decoder":
        before = (START, *written.labels)
        labels = tuple(f"{old} → {new}" for old, new in zip(before, written.labels, strict=False))
        rows = replace(written, labels=labels) if kind == "masked" else written
        probabilities = tuple(float(e.chosen[group].sum().exp()) for group in rows.groups)
    table = weights(e, attention)  # [heads, queries, keys]
    table = torch.stack([table[..., group].sum(-1) for group in looked_at.groups], dim=-1)
    table = torch.stack([table[:, group].mean(1) for group in rows.groups], dim=1)
    mean = AttentionTable(
        attention, None if len(table) > 1 else 0, rows.labels, looked_at.labels, table.mean(0), kind == "masked",
        probabilities,
    )  # fmt: skip
    return [*(replace(mean, head=head, weights=own) for head, own in enumerate(table)), mean]


def sureness(e: Explanation) -> list[tuple[str, float]]:
    """What was written, and the probability that each piece of it had."""
    axis = _written(e)
    return [(label, float(e.chosen[own].sum().exp())) for label, own in zip(axis.labels, axis.groups, strict=True)]


def attention_name(e: Explanation, kind: str, layer: int) -> str:
    """`decoder.1.cross` from its kind and its layer, which may be counted from the end."""
    names = [name for name in attentions(e) if name.endswith(f".{kind}")]
    if not attentions(e):
        raise UsageError("this model has no attention: its encoder's last state is all that its decoder gets")
    if not names:
        kinds = sorted({name.rpartition(".")[2] for name in attentions(e)})
        raise UsageError(f'this model has no "{kind}" attention, but {" and ".join(kinds)}')
    if not -len(names) <= layer < len(names):
        raise UsageError(f"layer {layer} of {len(names)} layers of {kind} attention, which are counted from 0")
    return names[layer]


def _checked_head(e: Explanation, head: int) -> int:
    heads = e.model.config.model.heads
    if not 0 <= head < heads:
        raise UsageError(f"head {head} of {heads} heads, which are counted from 0")
    return head


@dataclass(frozen=True)
class _Axis:
    groups: list[list[int]]  # tokens that are shown as one
    labels: tuple[str, ...]


def _source(e: Explanation) -> _Axis:
    axis = _axis(e.source, e.source_pieces)
    return _Axis([*axis.groups, [len(e.source_pieces)]], (*axis.labels, END))


def _written(e: Explanation) -> _Axis:
    axis = _axis(_output(e), e.output_pieces)
    if len(e.writes) == len(e.output_pieces):  # the search was cut short
        return axis
    return _Axis([*axis.groups, [len(e.output_pieces)]], (*axis.labels, END))


def _read(e: Explanation) -> _Axis:
    axis = _axis(_output(e), e.output_pieces[: len(e.reads) - 1])
    return _Axis([[0], *([i + 1 for i in group] for group in axis.groups)], (START, *axis.labels))


def _output(e: Explanation) -> str:
    """The text that the output's pieces are of."""
    return e.output if e.sources else e.model.tokenizers[1].decode(piece.id for piece in e.output_pieces)


def _axis(text: str, pieces: Sequence[Piece]) -> _Axis:
    """Pieces that cut a letter go with their neighbours that do."""
    groups: list[list[int]] = []
    for i, piece in enumerate(pieces):
        if groups and not piece.whole and not pieces[i - 1].whole:
            groups[-1].append(i)
        else:
            groups.append([i])
    return _Axis(groups, tuple(_label(text, pieces[group[0]], pieces[group[-1]]) for group in groups))


def _label(text: str, first: Piece, last: Piece) -> str:
    """A single token as itself, several as the text that they cover."""
    return shown(first if first is last else replace(first, text=text[first.start : last.end]))
