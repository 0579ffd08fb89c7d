"""`mask`: in the decoder no position may look at a later one.

The table M of 0 and −∞ that is added to the scores, on a head of a model; and what it is for: change the last word that the
decoder has read, and see who notices. What happens in training without it is the lesson `leak`.
"""

import copy
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from seq2see.api import Model
from seq2see.course.lessons.models import bundled, moved, read
from seq2see.course.lessons.pictures import heat, panels, save
from seq2see.course.lessons.render import Story, brief, matrix
from seq2see.course.lessons.worked_attention import Table, as_table
from seq2see.errors import UserError
from seq2see.inspect.explain import Explanation
from seq2see.layout import Layout, Packed
from seq2see.model.attention import visible
from seq2see.model.layers import Block
from seq2see.model.transformer import Transformer


@dataclass(frozen=True)
class Mask:
    sentence: str
    words: tuple[str, ...]  # what the decoder reads
    layer: int
    head: int
    mask: Table  # M
    scaled: Table
    masked: Table  # scaled + M
    weights: Table
    open_weights: Table  # softmax without M
    replaced: str  # what the last word is changed to
    moved: tuple[float, ...]  # how far each position's vector then moves, as the model is
    moved_open: tuple[float, ...]  # and with the mask taken out of all layers
    ahead_as_written: float  # weight on later words by the notes' column form


def mask(
    sentence: str = "How are you?", target: str | None = None, layer: int = 0, head: int = 0, model: Model | None = None
) -> Mask:
    """One head of the masked attention, and who sees a change of the last word."""
    chosen = bundled(model)
    config = chosen.config.model
    if not (0 <= layer < config.decoder_layers and 0 <= head < config.heads):
        raise UserError(
            f"layer {layer}, head {head} of {config.decoder_layers} layers of {config.heads} heads, from 0 on"
        )
    e = read(chosen, sentence, target)
    place = f"decoder.{layer}.masked"
    scaled, masked, weights = (e.trace[f"{place}.{name}", 0][head] for name in ("scaled", "masked", "weights"))
    layout = Layout.of([len(e.reads)])
    added = torch.where(visible(layout, layout, causal=True)[0, 0], 0.0, -torch.inf)
    own = e.transformer("the mask")
    return Mask(
        sentence, e.reads, layer, head, as_table(added), as_table(scaled), as_table(masked), as_table(weights),
        as_table(scaled.softmax(-1)), e.reads[1 % len(e.reads)], _moved(e, own), _moved(e, _unmasked(own)),
        _as_written(scaled, added),
    )  # fmt: skip


def _unmasked(model: Transformer) -> Transformer:
    model = copy.deepcopy(model)
    assert model.decoder is not None
    for block in model.decoder.blocks:
        assert isinstance(block, Block)
        block.attention.causal = False
    return model


@torch.no_grad()
def _moved(e: Explanation, model: Transformer) -> tuple[float, ...]:
    """Who moves if the last token is replaced by the first word."""
    before, after = e.read_ids, (*e.read_ids[:-1], e.read_ids[1 % len(e.read_ids)])
    vectors = []
    for ids in (before, after):
        target = Packed.of([ids])
        if model.encoder is None:
            vectors.append(model.decode(target))
        else:
            source = Packed.of([e.source_ids])
            vectors.append(model.decode(target, model.encode(source), source.layout))
    return moved(vectors[0], vectors[1])


def _as_written(scaled: Tensor, added: Tensor) -> float:
    """V softmax((QᵀK + M)/√p) with words in columns and the softmax down them: what column j gives to words after j."""
    columns = (scaled + added).softmax(dim=0)  # row i of QᵀK is query i, so column j is normed over the queries
    return float(columns.tril(-1).sum(0).mean())


def story(result: Mask) -> Story:
    words = result.words
    return Story(
        'the decoder\'s self-attention. The notes: "M(i, j) = 0 if j ≤ i, −∞ if j > i", added to the scores, since '
        'in training all words of the answer are there and must not be seen: "data leak".',
        (
            matrix(result.mask, words, words, f'"{result.sentence}": M, for what the decoder reads', 0),
            matrix(
                result.masked, words, words, f"Scores / √d + M, layer {result.layer}, head {result.head} (a row looks):"
            ),
            matrix(result.weights, words, words, "Weights, the softmax of each row: e^−∞ = 0", shaded=True),
            matrix(result.open_weights, words, words, "The same scores without M, to see what it hides:", shaded=True),
            matrix(
                (result.moved, result.moved_open), ("with the mask", "without"), words,
                f'The last word is changed to "{result.replaced}". How far each position\'s vector moves:', 3,
            ),
        ),
        "every row adds to 1 over what it may see, and the first sees only <start>. With the mask, what a position "
        f"computes cannot depend on later words: it moves by {brief(max(result.moved[:-1], default=0.0))}. That is why "
        "all positions can be trained at once (lessons: decoder, leak).",
        (
            "M is added to QᵀK in the column form with the softmax down the columns: so column j is normed over words "
            f"from j on, and on this head {result.ahead_as_written:.0%} of the weight would be on later words. With KᵀQ it "
            "is Mᵀ that hides them. (Dividing M by √p too does no harm: −∞ / √p = −∞.)",
        ),
    )  # fmt: skip


def draw(result: Mask, path: Path | str) -> None:
    figure, axes = panels(2, any_script=True)
    heat(axes[0], result.weights, result.words, result.words, "Weights with the mask")
    heat(axes[1], result.open_weights, result.words, result.words, "The same scores without it")
    hidden = [[float("nan") if j <= i else 1.0 for j in range(len(result.words))] for i in range(len(result.words))]
    axes[0].imshow(hidden, cmap="Greys", vmin=0, vmax=4, aspect="auto")  # masked is not the same as 0
    save(figure, path)
