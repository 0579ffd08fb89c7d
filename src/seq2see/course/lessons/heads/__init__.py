"""`heads`: several attentions in parallel, each with its own weights.

By hand: one sentence seen by two heads, each of which looks at one feature. In a model: where every head attends from a word
that depends on others. All heads are shown, next to what each gives to any word at the same distance, because a head picked
from many, or one that follows the position, proves little. Finally the cost of 8 heads of width 64 against one of width 512.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from seq2see.api import Model
from seq2see.course.lessons.attention import Features, Matrix, attention, look_up, to_matrix, to_tensor
from seq2see.course.lessons.exercises import Exercise
from seq2see.course.lessons.figures import heatmap, save_figure, subplots
from seq2see.course.lessons.models import explain_sentence, input_stack, input_words, resolve_model
from seq2see.course.lessons.render import (
    ATTENTION,
    EMBEDDINGS,
    LANGUAGE_MODELS,
    SLIDES,
    Bars,
    LessonText,
    Library,
    Note,
    Part,
    Row,
    Section,
    Table,
    Try,
    ViewLink,
    format_vector,
)
from seq2see.errors import UserError, did_you_mean
from seq2see.inspect.alignment import word_alignment
from seq2see.inspect.attention_flow import attention_weights, head_ablation
from seq2see.inspect.explain import Explanation
from seq2see.inspect.interventions import ablate_head
from seq2see.model.layers import SelfAttention
from seq2see.train.presets import preset

# "fit" belongs to sport and to health; one attention mixes the two, two heads keep them apart.
FEATURES = ("sport", "health", "other")
TABLE: Features = {
    "running": (3, 0, 0), "keeps": (0, 0, 2), "you": (0, 0, 2), "fit": (2, 2, 0), "despite": (0, 0, 2), "diabetes": (0, 3, 0),
}  # fmt: skip
PERSPECTIVES: Features = {"sport": (1, 0, 0), "health": (0, 1, 0)}
VIEW_SENTENCE, VIEW_WORD = "running keeps you fit despite diabetes", "fit"

MODEL = "en-hi"  # the grammar's model translates only one of two adjectives
Question = tuple[str, Sequence[str]]  # the query word, and the words it may refer to
QUESTIONS: Mapping[str, Question] = {
    "The man saw the girl with a telescope.": ("telescope", ("man", "saw", "girl")),
    "The pizza came out of the oven and it tasted good.": ("it", ("pizza", "oven")),
    "A beautiful blue creature lives in the forest.": ("creature", ("beautiful", "blue")),
}
# Correct translations, to say where a model's differs.
REFERENCES: Mapping[str, Sequence[str]] = {
    "The man saw the girl with a telescope.": (
        "आदमी ने लड़की को दूरबीन से देखा।", "आदमी ने दूरबीन से लड़की को देखा।", "L'homme a vu la fille avec un télescope.",
    ),
    "The pizza came out of the oven and it tasted good.": (
        "पिज़्ज़ा ओवन से निकला और इसका स्वाद अच्छा था।", "पिज़्ज़ा ओवन से निकला और उसका स्वाद अच्छा था।",
        "La pizza est sortie du four et elle avait bon goût.",
    ),
    "A beautiful blue creature lives in the forest.": (
        "एक सुंदर नीला जीव जंगल में रहता है।", "Une belle créature bleue vit dans la forêt.",
    ),
}  # fmt: skip
# What a head gives to a word at some distance, whatever the word, is averaged over these.
OTHER_SENTENCES = (
    "The boy did not see the big dog in the garden.", "My sister wants to buy a new bicycle today.",
    "The old man gave a letter to the doctor.", "We are eating rice and fish in the kitchen.",
    "She is older than her brother and very tall.", "The children play cricket in the park every evening.",
    "I like eating ice-cream and drinking cold milk.", "There is a white cat under the small table.",
)  # fmt: skip
HEADS_PER_TABLE = 8
NEAR = 0.1  # relative difference of two means that counts as none
LIFT = 0.1  # of a weight over that at the same distance, to count as more than the distance


@dataclass(frozen=True)
class Cost:
    heads: int
    head_width: int
    parameters: int  # of one self-attention layer


@dataclass(frozen=True)
class View:
    """One sentence through one head that looks at some features only."""

    name: str
    weights: Matrix
    output: tuple[float, ...]  # of the word
    summary: tuple[float, ...]  # mean of all outputs: the sentence, as this head sums it up


@dataclass(frozen=True)
class Views:
    words: tuple[str, ...]
    word: int  # index
    features: tuple[str, ...]
    before: tuple[float, ...]
    heads: tuple[View, ...]  # the first sees all features


@dataclass(frozen=True)
class Answer:
    """The attention of every head from the query word to the candidates."""

    sentence: str
    words: tuple[str, ...]
    query: str
    candidates: tuple[str, ...]
    candidate_weights: tuple[Matrix, ...]  # [candidate][layer][head]
    distance_weights: tuple[Matrix, ...]  # the same to the word at that distance, mean over other sentences
    means: tuple[float, ...]  # of candidate_weights over all heads
    distance_means: tuple[float, ...]
    attention: str  # with the head that gives the candidates most
    layer: int  # of the head with the largest total weight on the candidates
    head: int
    share: float  # its total weight on the candidates
    distance_share: float  # the same at these distances in other sentences
    uniform_share: float  # the same for a head that attends uniformly
    weights: Matrix  # of that head
    ablation_loss: float  # drop in ln P of the translation without that head
    output: str
    ablated_output: str
    warning: str  # of the model, about its translation
    unaligned: tuple[str, ...]  # longer words of the sentence to which no word of the translation is aligned
    reference: str  # a correct translation, if one is known and the output differs from it


@dataclass(frozen=True)
class Result:
    views: Views
    costs: tuple[Cost, ...]
    answers: tuple[Answer, ...]
    read: Matrix  # [layer · head, word of the first sentence]: mean weight that each word receives
    read_names: tuple[str, ...]


def compute(
    table: Features = TABLE, perspectives: Features = PERSPECTIVES, view_sentence: str = VIEW_SENTENCE,
    view_word: str = VIEW_WORD, questions: Mapping[str, Question] = QUESTIONS, model: Model | None = None,
) -> Result:  # fmt: skip
    """Computes one sentence by hand-made heads, and measures the attention of every head of a model on every sentence."""
    paper = preset("paper-base")
    shapes = ((1, paper.width), (paper.heads, paper.width // paper.heads), (paper.heads, paper.width))
    costs = tuple(Cost(n, d, _count_parameters(n, d)) for n, d in shapes)
    views = _views(table, perspectives, view_sentence, view_word)
    model = resolve_model(model, MODEL)
    by_distance = _Distances(model)
    answers = tuple(_answer(model, by_distance, sentence, *question) for sentence, question in questions.items())
    first = explain_sentence(model, next(iter(questions)), target="")
    read = _word_weights(first)[1].mean(-2)  # [layers, heads, words]
    names = tuple(f"layer {layer}, head {head}" for layer in range(len(read)) for head in range(len(read[layer])))
    return Result(views, costs, answers, to_matrix(read.flatten(0, 1)), names)


def _views(table: Features, perspectives: Features, sentence: str, word: str) -> Views:
    words, x = look_up(sentence, table)
    if word not in words:
        raise UserError(f'"{word}" is not in "{sentence}": {did_you_mean(word, words)}')
    width = x.shape[1]
    heads = []
    for name, selected in (("all features", (1,) * width), *perspectives.items()):
        if len(selected) != width:
            raise UserError(
                f'the perspective "{name}" has {len(selected)} numbers, but a word has {width}: they need to be equal'
            )
        projected = x * to_tensor([selected])  # W_Q = W_K = a diagonal matrix
        steps = attention(projected, projected, x)
        output = to_tensor(steps.output)
        row = tuple(output[words.index(word)].tolist())
        heads.append(View(name, steps.weights, row, tuple(output.mean(0).tolist())))
    features = (*FEATURES[:width], *(str(i + 1) for i in range(len(FEATURES), width)))
    return Views(words, words.index(word), features, tuple(x[words.index(word)].tolist()), tuple(heads))


def _count_parameters(heads: int, head_width: int) -> int:
    config = replace(preset("paper-base"), heads=heads, head_width=head_width)
    with torch.device("meta"):
        return sum(p.numel() for p in SelfAttention(config, causal=False).parameters())


class _Distances:
    """The mean weight that each head gives to the word at some distance, over the words of other sentences."""

    def __init__(self, model: Model) -> None:
        # The translations are not needed.
        self._weights = [_word_weights(explain_sentence(model, sentence, target=""))[1] for sentence in OTHER_SENTENCES]

    @cache  # noqa: B019 (lives as long as one computation)
    def at(self, distance: int) -> Tensor:
        """[layers, heads]; zeros if no sentence is long enough."""
        diagonals = [w.diagonal(distance, -2, -1) for w in self._weights if abs(distance) < w.shape[-1]]
        return torch.cat(diagonals, -1).mean(-1) if diagonals else torch.zeros(self._weights[0].shape[:2])


def _word_weights(e: Explanation) -> tuple[tuple[str, ...], Tensor]:
    """Returns the words, and the weights of every head between them, [layers, heads, words, words]."""
    words = input_words(e)
    weights = torch.stack([attention_weights(e, name).float().cpu() for name in input_stack(e).attention_names])
    return words.labels, words.merge(weights)


def _answer(model: Model, by_distance: _Distances, sentence: str, query: str, candidates: Sequence[str]) -> Answer:
    e = explain_sentence(model, sentence)
    words, weights = _word_weights(e)
    row, columns = _last_index(query, words), [_last_index(each, words) for each in candidates]
    to_candidates = weights[:, :, row, columns]  # [layers, heads, candidates]
    at_distance = torch.stack([by_distance.at(column - row) for column in columns], -1)
    layer, head = divmod(int(to_candidates.sum(-1).argmax()), to_candidates.shape[1])
    name = input_stack(e).attention_names[layer]
    ablated_output, unaligned = "", tuple[str, ...]()
    if e.output and model.config.model.has_encoder:
        ablated_output = explain_sentence(model, sentence, interventions=[ablate_head(name, head)]).output
        unaligned = _unaligned(e)
    ablation_loss = float(head_ablation(e, name)[head].sum()) if model.config.model.has_decoder else 0.0
    references = REFERENCES.get(sentence, ())
    wrong = e.output and references and e.output not in references
    return Answer(
        sentence, words, query, tuple(candidates),
        tuple(to_matrix(to_candidates[..., c]) for c in range(len(columns))),
        tuple(to_matrix(at_distance[..., c]) for c in range(len(columns))),
        tuple(to_candidates.mean((0, 1)).tolist()), tuple(at_distance.mean((0, 1)).tolist()), name, layer, head,
        float(to_candidates[layer, head].sum()), float(at_distance[layer, head].sum()), len(columns) / len(words),
        to_matrix(weights[layer, head]), ablation_loss, e.output, ablated_output,
        e.assessment.note if e.output else "", unaligned,
        max(references, key=lambda each: len(set(each) & set(e.output))) if wrong else "",
    )  # fmt: skip


def _unaligned(e: Explanation) -> tuple[str, ...]:
    alignment = word_alignment(e)
    linked = {source for source, _ in alignment.links}
    return tuple(
        word for i, word in enumerate(alignment.source_words) if i not in linked and word.isalpha() and len(word) > 3
    )


def _last_index(word: str, words: Sequence[str]) -> int:
    if word not in words:
        raise UserError(f'"{word}" is not in "{" ".join(words)}": {did_you_mean(word, words)}')
    return len(words) - 1 - list(words)[::-1].index(word)


def describe(result: Result) -> LessonText:
    views = result.views
    word = views.words[views.word]
    one, eight, wide = result.costs
    return LessonText(
        f'"{word}" in the same sentence, seen by one attention over all features and by one head per feature. Each head sums '
        "the sentence up in its own way.",
        (
            Bars(
                f'"{" ".join(views.words)}": weights of "{word}"',
                tuple(
                    (view.name, tuple(zip(views.words, view.weights[views.word], strict=True))) for view in views.heads
                ),
                1.0,
            ),
        ),
        (
            Table(
                ("seen by", f"{word} becomes", "the sentence, summed up"),
                tuple((view.name, format_vector(view.output), format_vector(view.summary)) for view in views.heads),
                f"({', '.join(views.features)}); {word} alone is {format_vector(views.before)}",
            ),
        ),
        "One attention has to mix everything into one answer; each head can ask its own question. And "
        f"{eight.heads} heads of {eight.head_width} cost as much as one of {one.head_width}: {eight.parameters:,} parameters, "
        f"against {one.parameters:,}.",
        Library(
            'with model.ablate_head("encoder.0.self", 3) as without:\n    without.translate("The pizza came out of the oven.")',
            "inspect/interventions.py",
            tuple(
                ViewLink(
                    f'all heads for "{answer.sentence}"',
                    "heads",
                    {"text": answer.sentence, "attention": answer.attention, "head": answer.head},
                )
                for answer in result.answers
            ),
        ),
        (
            *(
                Section(f'In a model: what does "{a.query}" attend to?', (*_weight_tables(a), *_findings(a)))
                for a in result.answers
            ),
            _read_section(result),
            Section(
                "What heads cost",
                (
                    Table(
                        ("", "parameters of one attention"),
                        tuple(
                            (f"{c.heads} head{'s' * (c.heads > 1)} of {c.head_width}", c.parameters)
                            for c in result.costs
                        ),
                        f"With the width of the paper, {one.head_width}:",
                    ),
                    f"Narrow heads keep the sum the same: {eight.heads} · {eight.head_width} = {one.head_width}. "
                    f"{wide.heads} heads of full width would cost {wide.parameters / one.parameters:.0f} times as much.",
                ),
            ),
        ),
        (
            Try(
                "A third head that looks at both.",
                {"perspectives": {"sport": (1, 0, 0), "health": (0, 1, 0), "both": (1, 1, 0)}},
            ),
            Try(
                "Your own question to a model: a sentence, a word, and what it may refer to.",
                {"questions": {"The boy ate the apple because it was sweet.": ["it", ["boy", "apple"]]}},
            ),
        ),
        (
            Note(
                EMBEDDINGS,
                "“fit” refers to fitness and sports in one reading and stands beside diabetes in another; a linear "
                "transformation before each attention, multi-head, keeps both. The table above makes this concrete; "
                "its numbers are ours.",
            ),
            Note(
                ATTENTION,
                "One attention captures “only ONE perspective”: a document can be summarised in several ways, and “The man saw "
                "the astronomer with a telescope” has two meanings; so 512 is reduced to 64 per head “to handle computation”. "
                "The model above does not know the astronomer, so its sentence has a girl.",
            ),
            Note(
                SLIDES,
                "“Transformers have attentions to correctly associate the word it to pizza”. Whether this model's heads do is "
                "measured above; a large weight of one head is no proof.",
            ),
            Note(
                LANGUAGE_MODELS,
                "In “A fluffy blue creature roamed the verdant forest”, “creature” asks: are there any adjectives before me? "
                "The table above shows who answers in a sentence that the model can translate.",
            ),
        ),
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


def _findings(answer: Answer) -> list[Part]:
    """Says what holds and what does not: over all heads, beyond the distance, for the translation."""
    heads = len(answer.candidate_weights[0]) * len(answer.candidate_weights[0][0])
    means = Table(
        ("", *answer.candidates),
        (
            (f"mean over all {heads} heads", *answer.means),
            ("  at the same distance in other sentences", *answer.distance_means),
            (
                f"layer {answer.layer}, head {answer.head}, which gives them most",
                *_of_head(answer, answer.candidate_weights),
            ),
            ("  at the same distance in other sentences", *_of_head(answer, answer.distance_weights)),
        ),
        decimals=3,
    )
    count = range(len(answer.candidates))
    by_mean = answer.candidates[max(count, key=answer.means.__getitem__)]
    by_head = answer.candidates[max(count, key=_of_head(answer, answer.candidate_weights).__getitem__)]
    runner_up = sorted(answer.means)[-2] if len(count) > 1 else 0.0
    verdict = (
        f"Over all heads the candidates get nearly the same; the head that gives them most prefers {by_head}."
        if runner_up > (1 - NEAR) * max(answer.means)
        else f"The mean over all heads and the head that gives them most agree on {by_mean}."
        if by_mean == by_head
        else f"The mean over all heads prefers {by_mean}, the head that gives them most prefers {by_head}: one head picked "
        f"from {heads} proves little."
    )
    if answer.share - answer.distance_share > LIFT:
        verdict += (
            f" This head gives them {answer.share:.0%}, but only {answer.distance_share:.0%} to words at the same distance in "
            "other sentences: it is not the position alone."
        )
    else:
        verdict += (
            f" This head gives them {answer.share:.0%}, and {answer.distance_share:.0%} to whatever stands at the same "
            "distance in other sentences: the position may explain it."
        )
    findings: list[Part] = [means, verdict]
    if answer.output:
        findings.append(_translation(answer))
    return findings


def _of_head(answer: Answer, weights: Sequence[Matrix]) -> tuple[float, ...]:
    return tuple(table[answer.layer][answer.head] for table in weights)


def _translation(answer: Answer) -> str:
    change = f"{-answer.ablation_loss:+.2f}".replace("-", "−")
    same = answer.ablated_output == answer.output
    instead = "the translation stays the same" if same else f"it becomes {answer.ablated_output}"
    text = f"Translation: {answer.output} Without this head, its ln P changes by {change}, and {instead}."
    if answer.reference:
        text += f" It differs from a correct translation, {answer.reference}, so do not read too much into the weights."
    if answer.unaligned:
        text += f" No word of it is aligned to: {', '.join(answer.unaligned)}."
    return text + (f" The model warns: {answer.warning}." if answer.warning else "")


def _read_section(result: Result) -> Section:
    words = result.answers[0].words
    rows: list[Row] = []
    for name, received in zip(result.read_names, result.read, strict=True):
        best = sorted(range(len(words)), key=lambda i: -received[i])[:3]
        rows.append((name, ", ".join(f"{words[i]} {received[i]:.2f}" for i in best)))
    return Section(
        "One sentence, summed up by every head",
        (
            Table(
                ("", "words that receive most, mean over all queries"), tuple(rows), f'"{result.answers[0].sentence}"'
            ),
            "Heads are not trained for particular questions, so do not expect one head per question.",
        ),
    )


def exercises() -> tuple[Exercise, ...]:
    views = _views({"a": (2, 0), "b": (0, 2)}, {"first": (1, 0)}, "a b", "a")
    return (
        Exercise(
            "A model of width 512 has 8 heads. How wide is each?",
            float(preset("paper-base").actual_head_width),
            "512 / 8: together they are as wide as the model.",
        ),
        Exercise(
            "How many times the parameters of 8 heads of 64 would 8 heads of 512 have, about?",
            _count_parameters(8, 512) / _count_parameters(8, 64),
            f"{_count_parameters(8, 512):,} against {_count_parameters(8, 64):,}.",
            tolerance=0.3,
        ),
        Exercise(
            "a is (2, 0), b is (0, 2). A head sees the first number only. What weight does a give to itself? "
            "(Scores 4/√2 and 0.)",
            views.heads[1].weights[0][0],
            f"e^2.83 / (e^2.83 + 1) = {views.heads[1].weights[0][0]:.3f}.",
        ),
    )


def draw(result: Result, path: Path | str) -> None:
    figure, axes = subplots(len(result.answers) + 1)
    views = result.views
    rows = [view.weights[views.word] for view in views.heads]
    heatmap(
        axes[0], rows, [v.name for v in views.heads], views.words, f'Weights of "{views.words[views.word]}", by head'
    )
    for ax, answer in zip(axes[1:], result.answers, strict=True):
        title = f'Layer {answer.layer}, head {answer.head}, from "{answer.query}"'
        heatmap(ax, answer.weights, answer.words, answer.words, title)
    save_figure(figure, path)
