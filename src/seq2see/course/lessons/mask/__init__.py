"""`mask`: in the decoder no position attends to a later one.

The matrix M of 0 and −∞ that is added to the scores, on one head of a model, and its purpose: change the last word that the
decoder reads, and see which positions change. The lesson `leak` trains without the mask.
"""

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from seq2see.course.lessons import kit
from seq2see.data.layout import Layout, Packed
from seq2see.inspect.explain import Explanation
from seq2see.model.attention import attention_mask
from seq2see.model.layers import Memory
from seq2see.model.transformer import Transformer

# The decoder's input in the notes, "you how are", and the weights given for it without the mask.
HAND_WORDS = ("आप", "कैसे", "हैं")
HAND_WEIGHTS = ((0.8, 0.1, 0.1), (0.15, 0.75, 0.1), (0.1, 0.2, 0.7))


@dataclass(frozen=True)
class HandTable:
    """Weights given by hand, and what the mask leaves of them."""

    words: tuple[str, ...]
    given: kit.Matrix
    masked: kit.Matrix
    second_sum: float  # of the weights that the second row may keep


@dataclass(frozen=True)
class Result:
    sentence: str
    words: tuple[str, ...]  # the decoder's input tokens
    layer: int
    head: int
    mask: kit.Matrix  # M
    scaled: kit.Matrix
    masked: kit.Matrix  # scaled + M
    weights: kit.Matrix
    unmasked_weights: kit.Matrix  # softmax without M
    replacement: str  # what the last word is changed to
    change: tuple[float, ...]  # relative change of the vector of each position when the last word is replaced
    unmasked_change: tuple[float, ...]  # the same with the mask removed from all layers
    notes_weight_ahead: float  # weight on later words by the column form of the notes
    by_hand: HandTable


def compute(
    sentence: str = "How are you?",
    target: Annotated[str, kit.MAY_BE_EMPTY] = "",
    layer: Annotated[int, kit.Bounds(0, 1000)] = 0,
    head: Annotated[int, kit.Bounds(0, 1000)] = 0,
    weights: Annotated[Sequence[Sequence[float]], kit.Bounds(1e-9, 1000)] = HAND_WEIGHTS,
    model: kit.Model | None = None,
) -> Result:
    """Shows one head of the masked attention, and measures which positions a change of the last word affects."""
    model = kit.resolve_decoder(model)
    config = model.config.model
    if not (0 <= layer < config.decoder_layers and 0 <= head < config.heads):
        size = f"{config.decoder_layers} layers of {config.heads} heads"
        raise kit.UserError(f"layer {layer}, head {head}: the model has {size}, counted from 0")
    e = kit.explain_sentence(model, sentence, target or None)
    name = f"decoder.{layer}.masked"
    scaled, masked, masked_weights = (e.trace[f"{name}.{step}", 0][head] for step in ("scaled", "masked", "weights"))
    tokens = e.decoder_input_tokens
    layout = Layout.from_lengths([len(tokens)])
    mask = torch.where(attention_mask(layout, layout, causal=True)[0, 0], 0.0, -torch.inf)
    network = e.require_transformer("the mask")
    unmasked = copy.deepcopy(network)
    kit.set_causal(unmasked, False)
    return Result(
        sentence, tokens, layer, head, kit.to_matrix(mask), kit.to_matrix(scaled), kit.to_matrix(masked),
        kit.to_matrix(masked_weights), kit.to_matrix(scaled.softmax(-1)), tokens[_other_token(e)], _replace_last(e, network),
        _replace_last(e, unmasked), _notes_weight_ahead(scaled, mask), _mask_by_hand(weights),
    )  # fmt: skip


def _other_token(e: Explanation) -> int:
    """Returns the index of the first word that is not the last token; of <start>, if there is no other."""
    *ids, last = e.decoder_input_ids
    return next((i for i, id in enumerate(ids) if i > 0 and id != last), 0)


@torch.no_grad()
def _replace_last(e: Explanation, model: Transformer) -> tuple[float, ...]:
    """Replaces the last token by another one and returns the relative change of each position."""
    ids = e.decoder_input_ids
    vectors = []
    for sequence in (ids, (*ids[:-1], ids[_other_token(e)])):
        target = Packed.from_sequences([sequence])
        if model.encoder is None:
            vectors.append(model.decode(target))
        else:
            source = Packed.from_sequences([e.source_ids])
            vectors.append(model.decode(target, Memory(model.encode(source), source.layout)))
    return kit.relative_change(vectors[0], vectors[1])


def _notes_weight_ahead(scaled: Tensor, mask: Tensor) -> float:
    """Evaluates V softmax((QᵀK + M)/√p), softmax down the columns: returns the mean weight of column j on words after j."""
    columns = (scaled + mask).softmax(dim=0)  # row i of QᵀK is query i, so column j is normalised over the queries
    return float(columns.tril(-1).sum(0).mean())


def values(result: Result) -> kit.Values:
    seen = [[math.nan if j > i else weight for j, weight in enumerate(row)] for i, row in enumerate(result.weights)]
    return {
        "before": max(result.change[:-1], default=0.0),
        "before_unmasked": max(result.unmasked_change[:-1], default=0.0),
        "seen": seen,
    }


def _mask_by_hand(weights: Sequence[Sequence[float]]) -> HandTable:
    given = kit.to_tensor(weights, "weights")
    if given.shape[0] != given.shape[1] or not bool((given > 0).all()):
        raise kit.UserError(
            f"weights of {given.shape[0]} × {given.shape[1]}: the table needs as many rows as columns, and numbers above 0"
        )
    layout = Layout.from_lengths([len(given)])
    allowed = attention_mask(layout, layout, causal=True)[0, 0]
    masked = given.log().masked_fill(~allowed, -torch.inf).softmax(-1)  # ln w is a score whose softmax is w
    words = (*HAND_WORDS[: len(given)], *(str(i + 1) for i in range(len(HAND_WORDS), len(given))))
    return HandTable(words, kit.to_matrix(given), kit.to_matrix(masked), float(given[min(1, len(given) - 1), :2].sum()))


def answers() -> kit.Values:
    layout = Layout.from_lengths([4])
    masked = _mask_by_hand([[0.5, 0.3, 0.2], [0.2, 0.6, 0.2], [0.1, 0.2, 0.7]]).masked
    return {"third": float(attention_mask(layout, layout, causal=True)[0, 0, 2].sum()), "masked": masked}
