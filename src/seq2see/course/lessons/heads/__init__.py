"""`heads`: several attentions in parallel, each with its own weights.

By hand: one sentence seen by two heads, each of which looks at one feature. In a model: where every head attends from a word
that depends on others. All heads are shown, next to what each gives to any word at the same distance, because a head picked
from many, or one that follows the position, proves little. Finally the cost of 8 heads of width 64 against one of width 512.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

import torch
from torch import Tensor

from seq2see.course.lessons import kit
from seq2see.inspect.alignment import word_alignment
from seq2see.inspect.attention_flow import attention_weights, head_ablation
from seq2see.inspect.explain import Explanation
from seq2see.inspect.interventions import ablate_head
from seq2see.model.layers import SelfAttention
from seq2see.train.presets import preset

# "fit" belongs to sport and to health; one attention mixes the two, two heads keep them apart.
FEATURES = ("sport", "health", "other")
TABLE: kit.Features = {
    "running": (3, 0, 0),
    "keeps": (0, 0, 2),
    "you": (0, 0, 2),
    "fit": (2, 2, 0),
    "despite": (0, 0, 2),
    "diabetes": (0, 3, 0),
}
PERSPECTIVES: kit.Features = {"sport": (1, 0, 0), "health": (0, 1, 0)}
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
        "आदमी ने लड़की को दूरबीन से देखा।",
        "आदमी ने दूरबीन से लड़की को देखा।",
        "L'homme a vu la fille avec un télescope.",
    ),
    "The pizza came out of the oven and it tasted good.": (
        "पिज़्ज़ा ओवन से निकला और इसका स्वाद अच्छा था।",
        "पिज़्ज़ा ओवन से निकला और उसका स्वाद अच्छा था।",
        "La pizza est sortie du four et elle avait bon goût.",
    ),
    "A beautiful blue creature lives in the forest.": (
        "एक सुंदर नीला जीव जंगल में रहता है।",
        "Une belle créature bleue vit dans la forêt.",
    ),
}
# What a head gives to a word at some distance, whatever the word, is averaged over these.
OTHER_SENTENCES = (
    "The boy did not see the big dog in the garden.",
    "My sister wants to buy a new bicycle today.",
    "The old man gave a letter to the doctor.",
    "We are eating rice and fish in the kitchen.",
    "She is older than her brother and very tall.",
    "The children play cricket in the park every evening.",
    "I like eating ice-cream and drinking cold milk.",
    "There is a white cat under the small table.",
)
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
    weights: kit.Matrix
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
    candidate_weights: tuple[kit.Matrix, ...]  # [candidate][layer][head]
    distance_weights: tuple[kit.Matrix, ...]  # the same to the word at that distance, mean over other sentences
    means: tuple[float, ...]  # of candidate_weights over all heads
    distance_means: tuple[float, ...]
    attention: str  # with the head that gives the candidates most
    layer: int  # of the head with the largest total weight on the candidates
    head: int
    share: float  # its total weight on the candidates
    distance_share: float  # the same at these distances in other sentences
    uniform_share: float  # the same for a head that attends uniformly
    weights: kit.Matrix  # of that head
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
    read: kit.Matrix  # [layer · head, word of the first sentence]: mean weight that each word receives
    read_names: tuple[str, ...]


def compute(
    table: kit.Features = TABLE,
    perspectives: kit.Features = PERSPECTIVES,
    view_sentence: str = VIEW_SENTENCE,
    view_word: str = VIEW_WORD,
    questions: Mapping[str, Question] = QUESTIONS,
    model: kit.Model | None = None,
) -> Result:
    """Computes one sentence by hand-made heads, and measures the attention of every head of a model on every sentence."""
    paper = preset("paper-base")
    shapes = ((1, paper.width), (paper.heads, paper.width // paper.heads), (paper.heads, paper.width))
    costs = tuple(Cost(n, d, _count_parameters(n, d)) for n, d in shapes)
    views = _views(table, perspectives, view_sentence, view_word)
    model = kit.resolve_model(model, MODEL)
    by_distance = _Distances(model)
    answers = tuple(_answer(model, by_distance, sentence, *question) for sentence, question in questions.items())
    first = kit.explain_sentence(model, next(iter(questions)), target="")
    read = _word_weights(first)[1].mean(-2)  # [layers, heads, words]
    names = tuple(f"layer {layer}, head {head}" for layer in range(len(read)) for head in range(len(read[layer])))
    return Result(views, costs, answers, kit.to_matrix(read.flatten(0, 1)), names)


def _views(table: kit.Features, perspectives: kit.Features, sentence: str, word: str) -> Views:
    words, x = kit.look_up(sentence, table)
    if word not in words:
        raise kit.UserError(f'"{word}" is not in "{sentence}": {kit.did_you_mean(word, words)}')
    width = x.shape[1]
    heads = []
    for name, selected in (("all features", (1,) * width), *perspectives.items()):
        if len(selected) != width:
            raise kit.UserError(
                f'the perspective "{name}" has {len(selected)} numbers, but a word has {width}: they need to be equal'
            )
        projected = x * kit.to_tensor([selected])  # W_Q = W_K = a diagonal matrix
        steps = kit.attention(projected, projected, x)
        output = kit.to_tensor(steps.output)
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

    def __init__(self, model: kit.Model) -> None:
        # The translations are not needed.
        self._weights = [
            _word_weights(kit.explain_sentence(model, sentence, target=""))[1] for sentence in OTHER_SENTENCES
        ]

    @cache  # noqa: B019 (lives as long as one computation)
    def at(self, distance: int) -> Tensor:
        """[layers, heads]; zeros if no sentence is long enough."""
        diagonals = [w.diagonal(distance, -2, -1) for w in self._weights if abs(distance) < w.shape[-1]]
        return torch.cat(diagonals, -1).mean(-1) if diagonals else torch.zeros(self._weights[0].shape[:2])


def _word_weights(e: Explanation) -> tuple[tuple[str, ...], Tensor]:
    """Returns the words, and the weights of every head between them, [layers, heads, words, words]."""
    words = kit.input_words(e)
    weights = torch.stack([attention_weights(e, name).float().cpu() for name in kit.input_stack(e).attention_names])
    return words.labels, words.merge(weights)


def _answer(model: kit.Model, by_distance: _Distances, sentence: str, query: str, candidates: Sequence[str]) -> Answer:
    e = kit.explain_sentence(model, sentence)
    words, weights = _word_weights(e)
    row, columns = _last_index(query, words), [_last_index(each, words) for each in candidates]
    to_candidates = weights[:, :, row, columns]  # [layers, heads, candidates]
    at_distance = torch.stack([by_distance.at(column - row) for column in columns], -1)
    layer, head = divmod(int(to_candidates.sum(-1).argmax()), to_candidates.shape[1])
    name = kit.input_stack(e).attention_names[layer]
    ablated_output, unaligned = "", tuple[str, ...]()
    if e.output and model.config.model.has_encoder:
        ablated_output = kit.explain_sentence(model, sentence, interventions=[ablate_head(name, head)]).output
        unaligned = _unaligned(e)
    ablation_loss = float(head_ablation(e, name)[head].sum()) if model.config.model.has_decoder else 0.0
    references = REFERENCES.get(sentence, ())
    wrong = e.output and references and e.output not in references
    return Answer(
        sentence, words, query, tuple(candidates),
        tuple(kit.to_matrix(to_candidates[..., c]) for c in range(len(columns))),
        tuple(kit.to_matrix(at_distance[..., c]) for c in range(len(columns))),
        tuple(to_candidates.mean((0, 1)).tolist()), tuple(at_distance.mean((0, 1)).tolist()), name, layer, head,
        float(to_candidates[layer, head].sum()), float(at_distance[layer, head].sum()), len(columns) / len(words),
        kit.to_matrix(weights[layer, head]), ablation_loss, e.output, ablated_output,
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
        raise kit.UserError(f'"{word}" is not in "{" ".join(words)}": {kit.did_you_mean(word, words)}')
    return len(words) - 1 - list(words)[::-1].index(word)


def values(result: Result) -> kit.Values:
    views, words = result.views, result.answers[0].words
    received = (sorted(range(len(words)), key=lambda i: -row[i])[:3] for row in result.read)
    return {
        "word": views.words[views.word],
        "view_bars": [
            (view.name, list(zip(views.words, view.weights[views.word], strict=True))) for view in views.heads
        ],
        "view_rows": [view.weights[views.word] for view in views.heads],
        "questions": [(answer, _finding(answer)) for answer in result.answers],
        "read_rows": [
            (name, ", ".join(f"{words[i]} {row[i]:.2f}" for i in best))
            for name, row, best in zip(result.read_names, result.read, received, strict=True)
        ],
        "cost_rows": [(f"{c.heads} head{'s' * (c.heads > 1)} of {c.head_width}", c.parameters) for c in result.costs],
    }


def _finding(answer: Answer) -> kit.Values:
    """What holds and what does not: over all heads, beyond the distance, for the translation."""
    layers, heads = len(answer.candidate_weights[0]), len(answer.candidate_weights[0][0])
    of_head, of_head_distance = (
        [table[answer.layer][answer.head] for table in tables]
        for tables in (answer.candidate_weights, answer.distance_weights)
    )
    count = range(len(answer.candidates))
    runner_up = sorted(answer.means)[-2] if len(count) > 1 else 0.0
    return {
        "tables": [
            (
                [f"h {head}" for head in range(heads)[start : start + HEADS_PER_TABLE]],
                [
                    (f"layer {layer}" if c == 0 else "", name, *weights[layer][start : start + HEADS_PER_TABLE])
                    for layer in range(layers)
                    for c, (name, weights) in enumerate(zip(answer.candidates, answer.candidate_weights, strict=True))
                ],
            )
            for start in range(0, heads, HEADS_PER_TABLE)
        ],
        "heads": layers * heads,
        "of_head": of_head,
        "of_head_distance": of_head_distance,
        "nearly_same": runner_up > (1 - NEAR) * max(answer.means),
        "by_mean": answer.candidates[max(count, key=answer.means.__getitem__)],
        "by_head": answer.candidates[max(count, key=of_head.__getitem__)],
        "exceeds_distance": answer.share - answer.distance_share > LIFT,
        "same_without": answer.ablated_output == answer.output,
    }


def answers() -> kit.Values:
    views = _views({"a": (2, 0), "b": (0, 2)}, {"first": (1, 0)}, "a b", "a")
    return {
        "width": float(preset("paper-base").actual_head_width),
        "wide": _count_parameters(8, 512),
        "narrow": _count_parameters(8, 64),
        "weight": views.heads[1].weights[0][0],
    }
