"""`heads`: several attentions side by side, each with its own view.

What eight heads of 64 cost beside one of 512, and where every head of a model looks from a word that asks a question: which
thing "it" is, who has the telescope, which adjectives stand before the noun.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from seq2see.api import Model
from seq2see.course.lessons.models import bundled, place_of, read, reader
from seq2see.course.lessons.pictures import heat, panels, save
from seq2see.course.lessons.render import Grid, Row, Story
from seq2see.course.lessons.worked_attention import Table, as_table
from seq2see.inspect.attention_flow import ablations, weights
from seq2see.inspect.interventions import without
from seq2see.model.layers import SelfAttention
from seq2see.presets import preset

Question = tuple[str, Sequence[str]]  # who asks, and who may be meant
QUESTIONS: Mapping[str, Question] = {
    "The man saw the astronomer with a telescope.": ("telescope", ("man", "saw", "astronomer")),
    "The pizza came out of the oven and it tasted good.": ("it", ("pizza", "oven")),
    "A fluffy blue creature roamed the verdant forest.": ("creature", ("fluffy", "blue")),
}
ACROSS = 8  # heads that fit on a line


@dataclass(frozen=True)
class Cost:
    heads: int
    head_width: int
    parameters: int  # of one self-attention


@dataclass(frozen=True)
class Answer:
    """One question to every head. `looks[c][l][h]`: from the word that asks to candidate c, in layer l, head h."""

    sentence: str
    words: tuple[str, ...]
    asks: str
    candidates: tuple[str, ...]
    looks: tuple[Table, ...]
    layer: int  # of the head that gives the candidates most together
    head: int
    share: float  # what it gives them
    chance: float  # what a head that looks everywhere alike would
    weights: Table  # that head's whole table
    worth: float  # ln P of the translation that is lost without it
    output: str
    without: str  # the output with that head switched off


@dataclass(frozen=True)
class Heads:
    costs: tuple[Cost, ...]
    answers: tuple[Answer, ...]


def heads(questions: Mapping[str, Question] = QUESTIONS, model: Model | None = None) -> Heads:
    """Every sentence through every head."""
    paper = preset("paper-base")
    shapes = ((1, paper.width), (paper.heads, paper.width // paper.heads), (paper.heads, paper.width))
    costs = tuple(Cost(n, d, _parameters(n, d)) for n, d in shapes)
    chosen = bundled(model)
    return Heads(costs, tuple(_answer(chosen, sentence, *asked) for sentence, asked in questions.items()))


def _parameters(heads: int, head_width: int) -> int:
    config = replace(preset("paper-base"), heads=heads, head_width=head_width)
    with torch.device("meta"):
        return sum(p.numel() for p in SelfAttention(config, causal=False).parameters())


def _answer(model: Model, sentence: str, asks: str, candidates: Sequence[str]) -> Answer:
    e = read(model, sentence)
    own = reader(e)
    row, columns = place_of(asks, own.words), [place_of(each, own.words) for each in candidates]
    tables = torch.stack([weights(e, place) for place in own.places])  # [layers, heads, n, n]
    looks = tables[:, :, row, columns]  # [layers, heads, candidates]
    layer, head = divmod(int(looks.sum(-1).argmax()), looks.shape[1])
    place = own.places[layer]
    writes = e.output and model.config.model.has_encoder
    less = read(model, sentence, interventions=[without(place, head)]).output if writes else ""
    return Answer(
        sentence, own.words, asks, tuple(candidates), tuple(as_table(looks[..., c]) for c in range(len(columns))),
        layer, head, float(looks[layer, head].sum()), len(columns) / len(own.words), as_table(tables[layer, head]),
        float(ablations(e, place)[head].sum()), e.output, less,
    )  # fmt: skip


def story(result: Heads) -> Story:
    costs = Grid(
        ("", "parameters of one attention"),
        tuple((f"{c.heads} head{'s' * (c.heads > 1)} of {c.head_width}", c.parameters) for c in result.costs),
        "The paper's width, 512:",
    )
    parts: list[str | Grid] = [costs]
    for a in result.answers:
        count = len(a.looks[0][0])
        for start in range(0, count, ACROSS):
            shown = range(start, min(start + ACROSS, count))
            rows: list[Row] = []
            for layer in range(len(a.looks[0])):
                for c, name in enumerate(a.candidates):
                    rows.append((f"layer {layer}" if c == 0 else "", name, *(a.looks[c][layer][h] for h in shown)))
            caption = f'"{a.sentence}" Where each head looks from "{a.asks}":' if start == 0 else ""
            parts.append(Grid(("", "", *(f"h {h}" for h in shown)), tuple(rows), caption, shaded=True))
        shares = [f"{name} {table[a.layer][a.head]:.0%}" for name, table in zip(a.candidates, a.looks, strict=True)]
        told = (
            f"Head {a.head} of layer {a.layer} gives them most: {', '.join(shares)}, {a.share:.0%} together; a head that looks "
            f"everywhere alike, {a.chance:.0%}. "
        )
        if a.output:
            change = f"{-a.worth:+.2f}".replace("-", "−")
            instead = f"{a.without} is written" if a.without != a.output else "the same is written"
            told += f"Without it ln P of the translation, {a.output}, changes by {change}, and {instead}."
        parts.append(told)
    return Story(
        'several attentions side by side. The notes: one captures "only ONE perspective", but "The man saw the '
        'astronomer with a telescope" has two meanings; so "we use more than one Self-Attention", and "reduce 512 → 64 to '
        'handle computation".',
        tuple(parts),
        "eight heads of 64 cost what one of 512 does; eight of 512 would cost eight times as much. The heads look at "
        "different words. Nobody told them what to look for, so do not expect one for each question: where a weight is "
        "high the head looks there, and switching it off tells whether that mattered.",
    )


def draw(result: Heads, path: Path | str) -> None:
    figure, axes = panels(len(result.answers))
    for side, a in zip(axes, result.answers, strict=True):
        heat(side, a.weights, a.words, a.words, f'Layer {a.layer}, head {a.head}, chosen for "{a.asks}"')
    save(figure, path)
