"""`heads`: several attentions in parallel, each with its own weights.

The cost of 8 heads of width 64 against one of width 512, and where every head of a model attends from a word that depends
on others: what "it" refers to, who has the telescope, which adjectives describe the noun.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from seq2see.api import Model
from seq2see.course.lessons.attention import Matrix, to_matrix
from seq2see.course.lessons.figures import heatmap, save_figure, subplots
from seq2see.course.lessons.models import explain_sentence, input_stack, resolve_model
from seq2see.course.lessons.render import LessonText, Row, Table
from seq2see.errors import UserError, did_you_mean
from seq2see.inspect.attention_flow import attention_weights, head_ablation
from seq2see.inspect.interventions import ablate_head
from seq2see.model.layers import SelfAttention
from seq2see.presets import preset

Question = tuple[str, Sequence[str]]  # the query word, and the words it may refer to
QUESTIONS: Mapping[str, Question] = {
    "The man saw the astronomer with a telescope.": ("telescope", ("man", "saw", "astronomer")),
    "The pizza came out of the oven and it tasted good.": ("it", ("pizza", "oven")),
    "A fluffy blue creature roamed the verdant forest.": ("creature", ("fluffy", "blue")),
}
HEADS_PER_TABLE = 8


@dataclass(frozen=True)
class Cost:
    heads: int
    head_width: int
    parameters: int  # of one self-attention layer


@dataclass(frozen=True)
class Answer:
    """The attention of every head from the query word to the candidates."""

    sentence: str
    words: tuple[str, ...]
    query: str
    candidates: tuple[str, ...]
    candidate_weights: tuple[Matrix, ...]  # [candidate][layer][head]
    layer: int  # of the head with the largest total weight on the candidates
    head: int
    share: float  # its total weight on the candidates
    uniform_share: float  # the same for a head that attends uniformly
    weights: Matrix  # of that head
    ablation_loss: float  # drop in ln P of the translation without that head
    output: str
    ablated_output: str


@dataclass(frozen=True)
class Result:
    costs: tuple[Cost, ...]
    answers: tuple[Answer, ...]


def compute(questions: Mapping[str, Question] = QUESTIONS, model: Model | None = None) -> Result:
    """Measures the attention of every head on every sentence."""
    paper = preset("paper-base")
    shapes = ((1, paper.width), (paper.heads, paper.width // paper.heads), (paper.heads, paper.width))
    costs = tuple(Cost(n, d, _count_parameters(n, d)) for n, d in shapes)
    model = resolve_model(model)
    return Result(costs, tuple(_answer(model, sentence, *question) for sentence, question in questions.items()))


def _count_parameters(heads: int, head_width: int) -> int:
    config = replace(preset("paper-base"), heads=heads, head_width=head_width)
    with torch.device("meta"):
        return sum(p.numel() for p in SelfAttention(config, causal=False).parameters())


def _answer(model: Model, sentence: str, query: str, candidates: Sequence[str]) -> Answer:
    e = explain_sentence(model, sentence)
    stack = input_stack(e)
    row, columns = _last_index(query, stack.tokens), [_last_index(each, stack.tokens) for each in candidates]
    weights = torch.stack([attention_weights(e, name) for name in stack.attention_names])  # [layers, heads, n, n]
    to_candidates = weights[:, :, row, columns]  # [layers, heads, candidates]
    layer, head = divmod(int(to_candidates.sum(-1).argmax()), to_candidates.shape[1])
    name = stack.attention_names[layer]
    ablated_output = ""
    if e.output and model.config.model.has_encoder:
        ablated_output = explain_sentence(model, sentence, interventions=[ablate_head(name, head)]).output
    return Answer(
        sentence, stack.tokens, query, tuple(candidates),
        tuple(to_matrix(to_candidates[..., c]) for c in range(len(columns))), layer, head,
        float(to_candidates[layer, head].sum()), len(columns) / len(stack.tokens), to_matrix(weights[layer, head]),
        float(head_ablation(e, name)[head].sum()), e.output, ablated_output,
    )  # fmt: skip


def _last_index(word: str, words: Sequence[str]) -> int:
    if word not in words:
        raise UserError(f'"{word}" is not in "{" ".join(words)}": {did_you_mean(word, words)}')
    return len(words) - 1 - list(words)[::-1].index(word)


def describe(result: Result) -> LessonText:
    costs = Table(
        ("", "parameters of one attention"),
        tuple((f"{c.heads} head{'s' * (c.heads > 1)} of {c.head_width}", c.parameters) for c in result.costs),
        "With the width of the paper, 512:",
    )
    body: list[str | Table] = [costs]
    for answer in result.answers:
        body += [*_weight_tables(answer), _summary(answer)]
    return LessonText(
        'Several attentions in parallel. The notes: one captures "only ONE perspective", but "The man saw the astronomer '
        'with a telescope" has two meanings; so "we use more than one Self-Attention", and "reduce 512 → 64 to handle '
        'computation".',
        tuple(body),
        "8 heads of 64 cost as much as one of 512; 8 heads of 512 would cost 8 times as much. Heads attend to different "
        "words. They are not trained for particular questions, so do not expect one head per question: a large weight shows "
        "where a head attends, and ablating the head shows whether it matters.",
    )


def _weight_tables(answer: Answer) -> list[Table]:
    layers, heads = len(answer.candidate_weights[0]), len(answer.candidate_weights[0][0])
    tables = []
    for start in range(0, heads, HEADS_PER_TABLE):
        shown = range(start, min(start + HEADS_PER_TABLE, heads))
        rows: list[Row] = []
        for layer in range(layers):
            for c, name in enumerate(answer.candidates):
                weights = (answer.candidate_weights[c][layer][h] for h in shown)
                rows.append((f"layer {layer}" if c == 0 else "", name, *weights))
        caption = f'"{answer.sentence}" Attention of each head from "{answer.query}":' if start == 0 else ""
        tables.append(Table(("", "", *(f"h {h}" for h in shown)), tuple(rows), caption, shaded=True))
    return tables


def _summary(answer: Answer) -> str:
    shares = [
        f"{name} {weights[answer.layer][answer.head]:.0%}"
        for name, weights in zip(answer.candidates, answer.candidate_weights, strict=True)
    ]
    summary = (
        f"Head {answer.head} of layer {answer.layer} attends to them most: {', '.join(shares)}, {answer.share:.0%} in total. "
        f"A uniform head would give them {answer.uniform_share:.0%}."
    )
    if not answer.output:
        return summary
    change = f"{-answer.ablation_loss:+.2f}".replace("-", "−")
    same = answer.ablated_output == answer.output
    instead = "the translation stays the same" if same else f"it becomes {answer.ablated_output}"
    return f"{summary} Without this head, ln P of the translation, {answer.output}, changes by {change}, and {instead}."


def draw(result: Result, path: Path | str) -> None:
    figure, axes = subplots(len(result.answers))
    for ax, answer in zip(axes, result.answers, strict=True):
        title = f'Layer {answer.layer}, head {answer.head}, chosen for "{answer.query}"'
        heatmap(ax, answer.weights, answer.words, answer.words, title)
    save_figure(figure, path)
