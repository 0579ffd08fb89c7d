"""`mask`: in the decoder no position attends to a later one.

The matrix M of 0 and −∞ that is added to the scores, on one head of a model, and its purpose: change the last word that the
decoder reads, and see which positions change. The lesson `leak` trains without the mask.
"""

import copy
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from seq2see.api import Model
from seq2see.course.lessons.attention import Matrix, to_matrix
from seq2see.course.lessons.figures import heatmap, save_figure, subplots
from seq2see.course.lessons.models import explain_sentence, relative_change, resolve_decoder
from seq2see.course.lessons.render import LessonText, format_small, matrix_table
from seq2see.errors import UserError
from seq2see.inspect.explain import Explanation
from seq2see.layout import Layout, Packed
from seq2see.model.attention import attention_mask
from seq2see.model.layers import Block
from seq2see.model.transformer import Transformer


@dataclass(frozen=True)
class Result:
    sentence: str
    words: tuple[str, ...]  # the decoder's input tokens
    layer: int
    head: int
    mask: Matrix  # M
    scaled: Matrix
    masked: Matrix  # scaled + M
    weights: Matrix
    unmasked_weights: Matrix  # softmax without M
    replacement: str  # what the last word is changed to
    change: tuple[float, ...]  # relative change of the vector of each position when the last word is replaced
    unmasked_change: tuple[float, ...]  # the same with the mask removed from all layers
    notes_weight_ahead: float  # weight on later words by the column form of the notes


def compute(
    sentence: str = "How are you?", target: str | None = None, layer: int = 0, head: int = 0, model: Model | None = None
) -> Result:
    """Shows one head of the masked attention, and measures which positions a change of the last word affects."""
    model = resolve_decoder(model)
    config = model.config.model
    if not (0 <= layer < config.decoder_layers and 0 <= head < config.heads):
        raise UserError(
            f"layer {layer}, head {head}: the model has {config.decoder_layers} layers of {config.heads} heads, counted from 0"
        )
    e = explain_sentence(model, sentence, target)
    name = f"decoder.{layer}.masked"
    scaled, masked, weights = (e.trace[f"{name}.{step}", 0][head] for step in ("scaled", "masked", "weights"))
    tokens = e.decoder_input_tokens
    layout = Layout.from_lengths([len(tokens)])
    mask = torch.where(attention_mask(layout, layout, causal=True)[0, 0], 0.0, -torch.inf)
    network = e.require_transformer("the mask")
    return Result(
        sentence, tokens, layer, head, to_matrix(mask), to_matrix(scaled), to_matrix(masked), to_matrix(weights),
        to_matrix(scaled.softmax(-1)), tokens[1 % len(tokens)], _replace_last(e, network),
        _replace_last(e, _remove_mask(network)), _notes_weight_ahead(scaled, mask),
    )  # fmt: skip


def _remove_mask(model: Transformer) -> Transformer:
    model = copy.deepcopy(model)
    assert model.decoder is not None
    for block in model.decoder.blocks:
        assert isinstance(block, Block)
        block.attention.causal = False
    return model


@torch.no_grad()
def _replace_last(e: Explanation, model: Transformer) -> tuple[float, ...]:
    """Replaces the last token by the first word and returns the relative change of each position."""
    ids = e.decoder_input_ids
    vectors = []
    for sequence in (ids, (*ids[:-1], ids[1 % len(ids)])):
        target = Packed.from_sequences([sequence])
        if model.encoder is None:
            vectors.append(model.decode(target))
        else:
            source = Packed.from_sequences([e.source_ids])
            vectors.append(model.decode(target, model.encode(source), source.layout))
    return relative_change(vectors[0], vectors[1])


def _notes_weight_ahead(scaled: Tensor, mask: Tensor) -> float:
    """Evaluates V softmax((QᵀK + M)/√p), softmax down the columns: returns the mean weight of column j on words after j."""
    columns = (scaled + mask).softmax(dim=0)  # row i of QᵀK is query i, so column j is normalised over the queries
    return float(columns.tril(-1).sum(0).mean())


def describe(result: Result) -> LessonText:
    words = result.words
    return LessonText(
        'Self-attention in the decoder. The notes: "M(i, j) = 0 if j ≤ i, −∞ if j > i" is added to the scores, because in '
        'training all words of the answer are present and must not be seen: "data leak".',
        (
            matrix_table(result.mask, words, words, f'"{result.sentence}": M for the tokens that the decoder reads', 0),
            matrix_table(
                result.masked, words, words,
                f"Scores / √d + M, layer {result.layer}, head {result.head} (rows are queries):",
            ),
            matrix_table(result.weights, words, words, "Weights, the softmax of each row: e^−∞ = 0", shaded=True),
            matrix_table(result.unmasked_weights, words, words, "The same without M:", shaded=True),
            matrix_table(
                (result.change, result.unmasked_change), ("with the mask", "without"), words,
                f'The last word is replaced by "{result.replacement}". Relative change of each position:', 3,
            ),
        ),
        "Every row adds to 1 over the positions it may see; the first sees only <start>. With the mask, a position cannot "
        f"depend on later words: it changes by {format_small(max(result.change[:-1], default=0.0))}. This is why all "
        "positions can be trained at once (lessons: decoder, leak).",
        (
            "In the column form, M is added to QᵀK with the softmax down the columns, so column j is normalised over the words "
            f"from j on, and on this head {result.notes_weight_ahead:.0%} of the weight would fall on later words. With KᵀQ, "
            "Mᵀ is the correct mask. (Dividing M by √p as well is harmless: −∞ / √p = −∞.)",
        ),
    )  # fmt: skip


def draw(result: Result, path: Path | str) -> None:
    figure, axes = subplots(2, any_script=True)
    heatmap(axes[0], result.weights, result.words, result.words, "Weights with the mask")
    heatmap(axes[1], result.unmasked_weights, result.words, result.words, "The same scores without the mask")
    hidden = [[float("nan") if j <= i else 1.0 for j in range(len(result.words))] for i in range(len(result.words))]
    axes[0].imshow(
        hidden, cmap="Greys", vmin=0, vmax=4, aspect="auto"
    )  # grey: masked, which differs from a weight of 0
    save_figure(figure, path)
