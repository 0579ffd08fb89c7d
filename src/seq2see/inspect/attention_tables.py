"""Attention weights as labelled tables, for the terminal, plots and notebooks.

A token may hold part of a character. Such tokens are merged with their neighbours, so that every label is readable: the
weights of merged keys are summed, the rows of merged queries averaged.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from seq2see.errors import UsageError
from seq2see.inspect.attention_flow import attention_names, attention_weights
from seq2see.inspect.explain import Explanation, TokenSequence, span_label, takes_explanation


@dataclass(frozen=True, eq=False)
class AttentionTable:
    """Row i attends to column j with weights[i, j]."""

    name: str  # decoder.1.cross
    head: int | None  # None for the mean over several heads
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    weights: Tensor
    causal: bool = False  # columns after the row's own position are masked
    probabilities: tuple[float, ...] | None = None  # of the token that each decoder row predicts
    links: Sequence[tuple[int, int]] = ()  # cells that belong together: (column, row)

    @property
    def title(self) -> str:
        return f"{self.name}, {'mean over heads' if self.head is None else f'head {self.head}'}"


@takes_explanation
def attention_table(e: Explanation, attention: str, head: int | None = None) -> AttentionTable:
    """Returns one head, or the mean over all. Decoder rows are labelled with the token that they predict."""
    tables = head_tables(e, attention)
    heads = len(tables) - 1
    if head is not None and not 0 <= head < heads:
        raise UsageError(f"head {head} is out of range: there are {heads} heads, numbered from 0")
    return tables[-1 if head is None else head]


@takes_explanation
def head_tables(e: Explanation, attention: str) -> list[AttentionTable]:
    """Returns a table per head, followed by their mean (with a single head, that head again)."""
    weights = attention_weights(e, attention)  # [heads, queries, keys]
    stack, _, kind = attention.split(".")
    targets, inputs = _axis(e.decoder, first=1), _axis(e.decoder, last=1)
    keys = inputs if kind == "masked" else _axis(e.encoder)
    rows = keys if stack == "encoder" else targets
    if kind == "masked":
        read = {i: label for group, label in zip(inputs.groups, inputs.labels, strict=True) for i in group}
        pairs = zip(targets.groups, targets.labels, strict=True)
        rows = targets._replace(labels=tuple(f"{read[group[0]]} → {target}" for group, target in pairs))
    probabilities = tuple(p for _, p in token_probabilities(e)) if stack == "decoder" else None
    weights = torch.stack([weights[..., group].sum(-1) for group in keys.groups], dim=-1)
    weights = torch.stack([weights[:, group].mean(1) for group in rows.groups], dim=1)
    head = None if len(weights) > 1 else 0
    mean = AttentionTable(attention, head, rows.labels, keys.labels, weights.mean(0), kind == "masked", probabilities)
    return [*(replace(mean, head=head, weights=one) for head, one in enumerate(weights)), mean]


@takes_explanation
def token_probabilities(e: Explanation) -> list[tuple[str, float]]:
    """Returns the output tokens with their probabilities."""
    axis = _axis(e.decoder, first=1)
    probabilities = [float(e.target_logprobs[group].sum().exp()) for group in axis.groups]
    return list(zip(axis.labels, probabilities, strict=True))


@takes_explanation
def find_attention(e: Explanation, kind: str, layer: int) -> str:
    """Returns the name of an attention, such as `decoder.1.cross`, by kind and layer; negative layers count from the end."""
    names = [name for name in attention_names(e) if name.endswith(f".{kind}")]
    if not attention_names(e):
        raise UsageError("this model has no attention: its decoder sees only the encoder's last state")
    if not names:
        kinds = sorted({name.rpartition(".")[2] for name in attention_names(e)})
        raise UsageError(f'this model has no "{kind}" attention: choose {" or ".join(kinds)}')
    if not -len(names) <= layer < len(names):
        raise UsageError(f"layer {layer} is out of range: {kind} attention has {len(names)} layers, numbered from 0")
    return names[layer]


class _Axis(NamedTuple):
    groups: list[list[int]]  # indices of the tokens shown as one
    labels: tuple[str, ...]


def _axis(tokens: TokenSequence, first: int = 0, last: int = 0) -> _Axis:
    """Lays out a sequence without its `first` first and `last` last tokens; adjacent ones that split a grapheme are one."""
    spans = dict(enumerate(tokens.spans, tokens.start))
    split = {i for i, span in spans.items() if not span.whole}
    groups: list[list[int]] = []
    for i in range(first, len(tokens.ids) - last):
        if groups and i in split and i - 1 in split:
            groups[-1].append(i)
        else:
            groups.append([i])
    joined = {
        group[0]: span_label(replace(spans[group[0]], text=tokens.text[spans[group[0]].start : spans[group[-1]].end]))
        for group in groups
        if len(group) > 1
    }
    labels = tuple(joined.get(group[0], tokens.labels[group[0]]) for group in groups)
    return _Axis([[i - first for i in group] for group in groups], labels)
