"""`mask`: in the decoder no position attends to a later one.

The matrix M of 0 and −∞ that is added to the scores, on one head of a model, and its purpose: change the last word that the
decoder reads, and see which positions change. The lesson `leak` trains without the mask.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from seq2see.api import Model
from seq2see.course.lessons.attention import Matrix, to_matrix, to_tensor
from seq2see.course.lessons.exercises import Exercise
from seq2see.course.lessons.figures import heatmap, save_figure, subplots
from seq2see.course.lessons.models import explain_sentence, relative_change, resolve_decoder
from seq2see.course.lessons.render import (
    ATTENTION,
    LECTURE,
    LessonText,
    Library,
    Note,
    Section,
    Try,
    ViewLink,
    format_small,
    matrix_table,
)
from seq2see.data.layout import Layout, Packed
from seq2see.errors import UserError
from seq2see.inspect.explain import Explanation
from seq2see.model.attention import attention_mask
from seq2see.model.layers import Block
from seq2see.model.transformer import Transformer

# The decoder's input in the notes, "you how are", and the weights given for it without the mask.
HAND_WORDS = ("आप", "कैसे", "हैं")
HAND_WEIGHTS = ((0.8, 0.1, 0.1), (0.15, 0.75, 0.1), (0.1, 0.2, 0.7))


@dataclass(frozen=True)
class HandTable:
    """Weights given by hand, and what the mask leaves of them."""

    words: tuple[str, ...]
    given: Matrix
    masked: Matrix
    second_sum: float  # of the weights that the second row may keep


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
    by_hand: HandTable


def compute(
    sentence: str = "How are you?", target: str | None = None, layer: int = 0, head: int = 0,
    weights: Sequence[Sequence[float]] = HAND_WEIGHTS, model: Model | None = None,
) -> Result:  # fmt: skip
    """Shows one head of the masked attention, and measures which positions a change of the last word affects."""
    model = resolve_decoder(model)
    config = model.config.model
    if not (0 <= layer < config.decoder_layers and 0 <= head < config.heads):
        raise UserError(
            f"layer {layer}, head {head}: the model has {config.decoder_layers} layers of {config.heads} heads, counted from 0"
        )
    e = explain_sentence(model, sentence, target)
    name = f"decoder.{layer}.masked"
    scaled, masked, masked_weights = (e.trace[f"{name}.{step}", 0][head] for step in ("scaled", "masked", "weights"))
    tokens = e.decoder_input_tokens
    layout = Layout.from_lengths([len(tokens)])
    mask = torch.where(attention_mask(layout, layout, causal=True)[0, 0], 0.0, -torch.inf)
    network = e.require_transformer("the mask")
    return Result(
        sentence, tokens, layer, head, to_matrix(mask), to_matrix(scaled), to_matrix(masked), to_matrix(masked_weights),
        to_matrix(scaled.softmax(-1)), tokens[_other_token(e)], _replace_last(e, network),
        _replace_last(e, _remove_mask(network)), _notes_weight_ahead(scaled, mask), _mask_by_hand(weights),
    )  # fmt: skip


def _remove_mask(model: Transformer) -> Transformer:
    model = copy.deepcopy(model)
    assert model.decoder is not None
    for block in model.decoder.blocks:
        assert isinstance(block, Block)
        block.attention.causal = False
    return model


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
            vectors.append(model.decode(target, model.encode(source), source.layout))
    return relative_change(vectors[0], vectors[1])


def _notes_weight_ahead(scaled: Tensor, mask: Tensor) -> float:
    """Evaluates V softmax((QᵀK + M)/√p), softmax down the columns: returns the mean weight of column j on words after j."""
    columns = (scaled + mask).softmax(dim=0)  # row i of QᵀK is query i, so column j is normalised over the queries
    return float(columns.tril(-1).sum(0).mean())


def describe(result: Result) -> LessonText:
    words = result.words
    before = max(result.change[:-1], default=0.0)
    hand = result.by_hand
    return LessonText(
        "each row, one position of the decoder and what it attends to. Right of the diagonal lies the future: empty with the "
        "mask, filled without.",
        (
            matrix_table(
                result.weights, words, words, f"Layer {result.layer}, head {result.head}, with the mask", shaded=True
            ),
            matrix_table(result.unmasked_weights, words, words, "The same scores without the mask", shaded=True),
        ),
        (
            f'The last word is replaced by "{result.replacement}". With the mask the positions before it change by '
            f"{format_small(before)}, without by up to {format_small(max(result.unmasked_change[:-1], default=0.0))}.",
        ),
        "The mask adds −∞ to the scores of later words, and e^−∞ = 0. What a position computes cannot depend on later "
        "words, so all positions can be trained at once (lessons: decoder, leak).",
        Library(
            "allowed = attention_mask(rows, keys, causal=True)\nscores.masked_fill(~allowed, -inf).softmax(-1)",
            "model/attention.py",
            (
                ViewLink(
                    "this head, with scores and mask",
                    "microscope",
                    {"text": result.sentence, "attention": f"decoder.{result.layer}.masked", "head": result.head},
                ),
            ),
        ),
        (
            Section(
                "The mask itself",
                (
                    matrix_table(
                        result.mask, words, words, f'"{result.sentence}": M for the tokens that the decoder reads', 0
                    ),
                    matrix_table(result.masked, words, words, "Scores / √d + M (rows are queries):"),
                    "Every row adds to 1 over the positions it may see; the first sees only itself.",
                ),
            ),
            Section(
                "A table by hand",
                (
                    matrix_table(hand.given, hand.words, hand.words, "Without the mask: each word mixes all three"),
                    matrix_table(
                        hand.masked, hand.words, hand.words, "With the mask: later words removed, rows add to 1 again"
                    ),
                    "To compute the first word's row, the model would need words that do not exist yet when it is "
                    f"used. The mask leaves 1.00 for the first row and divides the second by {hand.second_sum:.2f}, "
                    "what its first two weights add to.",
                ),
            ),
            Section(
                "Who changes",
                (
                    matrix_table(
                        (result.change, result.unmasked_change),
                        ("with the mask", "without"),
                        words,
                        f'The last word is replaced by "{result.replacement}". Relative change of each position:',
                        3,
                    ),
                ),
            ),
        ),
        (Try("Another sentence, another head.", {"sentence": "Thank you", "head": 1}),),
        (
            Note(
                LECTURE,
                '"M(i, j) = 0 if j ≤ i, −∞ if j > i" is right for row form. In the column form, M is added to QᵀK '
                "with the softmax down the columns, so column j is normalised over the words from j on, and on this "
                f"head {result.notes_weight_ahead:.0%} of the weight would fall on later words. With KᵀQ, Mᵀ is the "
                "correct mask. (Dividing M by √p as well is harmless: −∞ / √p = −∞.)",
            ),
            Note(
                ATTENTION,
                "The table 0.8 0.1 0.1 / 0.15 0.75 0.1 / 0.1 0.2 0.7 of three Hindi words shows why the mask is "
                "needed: “a word needs all the words in sentence which is available at Train Time but not on Inference "
                "time”, a data leak.",
            ),
        ),
    )


def _mask_by_hand(weights: Sequence[Sequence[float]]) -> HandTable:
    given = to_tensor(weights, "weights")
    if given.shape[0] != given.shape[1] or not bool((given > 0).all()):
        raise UserError(
            f"weights of {given.shape[0]} × {given.shape[1]}: the table needs as many rows as columns, and numbers above 0"
        )
    layout = Layout.from_lengths([len(given)])
    allowed = attention_mask(layout, layout, causal=True)[0, 0]
    masked = given.log().masked_fill(~allowed, -torch.inf).softmax(-1)  # ln w is a score whose softmax is w
    words = (*HAND_WORDS[: len(given)], *(str(i + 1) for i in range(len(HAND_WORDS), len(given))))
    return HandTable(words, to_matrix(given), to_matrix(masked), float(given[min(1, len(given) - 1), :2].sum()))


def exercises() -> tuple[Exercise, ...]:
    masked = _mask_by_hand([[0.5, 0.3, 0.2], [0.2, 0.6, 0.2], [0.1, 0.2, 0.7]]).masked
    layout = Layout.from_lengths([4])
    allowed = attention_mask(layout, layout, causal=True)[0, 0]
    return (
        Exercise(
            "A decoder reads 4 tokens. How many does the third see?", float(allowed[2].sum()), "Itself and two earlier."
        ),
        Exercise(
            "Without the mask the second of three words has weights 0.2, 0.6, 0.2. What is its weight on itself with the mask?",
            masked[1][1],
            "0.6 / (0.2 + 0.6).",
        ),
        Exercise("And what is the weight of the first word on itself?", masked[0][0], "It sees nothing else: 1."),
    )


def draw(result: Result, path: Path | str) -> None:
    figure, axes = subplots(2, any_script=True)
    heatmap(axes[0], result.weights, result.words, result.words, "Weights with the mask")
    heatmap(axes[1], result.unmasked_weights, result.words, result.words, "The same scores without the mask")
    hidden = [[float("nan") if j <= i else 1.0 for j in range(len(result.words))] for i in range(len(result.words))]
    axes[0].imshow(
        hidden, cmap="Greys", vmin=0, vmax=4, aspect="auto"
    )  # grey: masked, which differs from a weight of 0
    save_figure(figure, path)
