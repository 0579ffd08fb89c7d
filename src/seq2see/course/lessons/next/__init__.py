"""`next`: predicting the next token. A matrix of vectors on the way in (W_E), another on the way out (W_U).

Embedding looks a word up; unembedding compares the last vector with the vector of every token: a classifier with one class per
token. In training it is applied to every position, in use to the last one, which therefore has to hold all that came before.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.nn import functional as F

from seq2see.api import Model
from seq2see.course.lessons.attention import Features, Matrix, to_matrix, to_tensor
from seq2see.course.lessons.exercises import Exercise, choose
from seq2see.course.lessons.figures import label_axes, save_figure, subplots
from seq2see.course.lessons.models import (
    NO_LANGUAGE_MODEL,
    explain_next,
    find_language_model,
    next_tokens,
    resolve_decoder,
)
from seq2see.course.lessons.render import (
    LANGUAGE_MODELS,
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
from seq2see.errors import UserError
from seq2see.inspect.explain import Explanation
from seq2see.inspect.logit_lens import alternatives

# The matrices of the notes: one column of W_E per token, and the logits that W_U makes of the last vector.
EMBEDDING: Features = {
    "apple": (8.2, 7.2, -8.1, -8.7), "banana": (-4.2, 6.4, 3.8, -1.7), "cats": (0.2, -1, -4, 1.2), "dogs": (0.8, 7, 4, 8),
}  # fmt: skip
LOGITS: Mapping[str, float] = {"good": 200, "apple": -8, "cat": 1, "new": 6, "cut": -9}
PROMPTS = ("apple, banana, and bread are", "Harry Potter's least favourite professor is", "Therefore, the murderer was")
CONTEXT = "The cook was in the kitchen all night. The doctor had blood on his coat."

TokenProbability = tuple[str, float]


@dataclass(frozen=True)
class Position:
    input: str
    target: str
    top: tuple[TokenProbability, ...]


@dataclass(frozen=True)
class Prompt:
    """What a language model would add to a text."""

    text: str
    top: tuple[TokenProbability, ...]


@dataclass(frozen=True)
class WithContext:
    """The same last words, alone and after other sentences."""

    context: str
    alone: Prompt
    after: Prompt
    cosine: float  # between the last vectors


@dataclass(frozen=True)
class Result:
    tokens: tuple[str, ...]
    embedding: Matrix  # W_E: one column per token
    one_hot_error: float  # largest difference between W_E · one-hot and the column
    logits: tuple[tuple[str, float, float], ...]  # (token, logit, probability)
    is_language_model: bool
    source: str
    output: str
    width: int
    vocab_size: int
    row_input: str  # the token at the row whose vector is unembedded
    row_token: str  # the most probable token there
    product: float  # the vector of that row · the vector of that token
    logit: float  # the model's logit for that token
    top: tuple[TokenProbability, ...]  # at that row
    positions: tuple[Position, ...]
    prompts: tuple[Prompt, ...]  # empty without a language model
    with_context: WithContext | None


def compute(
    embedding: Features = EMBEDDING, logits: Mapping[str, float] = LOGITS, sentence: str = "I am good",
    prompts: Sequence[str] = PROMPTS, context: str = CONTEXT, model: Model | None = None,
) -> Result:  # fmt: skip
    """Looks words up and turns logits into probabilities by hand, then predicts the next token with a model."""
    if len(logits) < 2:
        raise UserError(f"{len(logits)} logit: the softmax needs at least 2 tokens to choose from")
    model = resolve_decoder(model)
    table = to_tensor(list(embedding.values()), "embedding").mT  # [width, tokens]
    one_hot = torch.eye(len(embedding), dtype=table.dtype)
    probabilities = torch.tensor(list(logits.values()), dtype=torch.float64).softmax(-1).tolist()
    e = explain_next(model, sentence)
    row = _shown_row(e)
    top = alternatives(e, row, top=5)
    config, language_model = model.config.model, find_language_model(model)
    return Result(
        tuple(embedding), to_matrix(table), float((table @ one_hot - table).abs().max()),
        tuple((token, float(x), p) for (token, x), p in zip(logits.items(), probabilities, strict=True)),
        config.shape == "decoder", sentence, e.output, config.width, config.vocab_size, e.decoder_input_tokens[row],
        top[0].token, *_unembed(e, row, top[0].id), tuple((each.token, each.probability) for each in top),
        tuple(
            Position(token, target, tuple((each.token, each.probability) for each in alternatives(e, i, top=3)))
            for i, (token, target) in enumerate(zip(e.decoder_input_tokens, e.target_tokens, strict=True))
        ),
        () if language_model is None else tuple(Prompt(text, next_tokens(language_model, text)) for text in prompts),
        None if language_model is None else _compare(language_model, context, prompts[-1]),
    )  # fmt: skip


def _shown_row(e: Explanation) -> int:
    """A language model's last row, after which it would speak; of a translation, the row that is least certain."""
    return int(e.logprobs.amax(-1).argmin()) if e.source_tokens else len(e.target_tokens) - 1


@torch.no_grad()
def _unembed(e: Explanation, row: int, token: int) -> tuple[float, float]:
    """Multiplies the vector of a row with that of a token; returns the product and the model's own logit."""
    model = e.model.network
    table = model.embedding if model.unembedding is None else model.unembedding
    product = e.trace["decoder.vectors"][row] @ table.weight[token]
    if model.unembedding_bias is not None:
        product = product + model.unembedding_bias[token]
    return float(product), float(e.trace["logits"][row, token])


def _compare(model: Model, context: str, text: str) -> WithContext:
    whole = f"{context} {text}"
    vectors = [
        (each := explain_next(model, words)).trace["decoder.vectors"][each.output_start].float().cpu()
        for words in (text, whole)
    ]
    alone, after = (Prompt(words, next_tokens(model, words)) for words in (text, whole))
    return WithContext(context, alone, after, float(F.cosine_similarity(vectors[0], vectors[1], dim=0)))


def describe(result: Result) -> LessonText:
    best = max(result.logits, key=lambda each: each[1])
    reads = (
        "the text" if result.is_language_model else f"the translation of “{result.source}”, where it is least certain"
    )
    return LessonText(
        f"the five most probable tokens after “{result.row_input}”, in {reads}. The vector there is compared with the "
        f"vectors of all {result.vocab_size:,} tokens.",
        (Bars(f"What comes after “{result.row_input}”?", (("", result.top),), 1.0),),
        (
            f"The vector at “{result.row_input}” ({result.width} numbers) times the vector of “{result.row_token}” is "
            f"{result.product:.4f}".replace("-", "−")
            + f"; the model's logit for it is {result.logit:.4f}".replace("-", "−")
            + ". The softmax of all logits gives the probabilities.",
        ),
        "Unembedding is a classifier with one class per token: a dot product with every token's vector, then softmax. "
        "Each vector predicts only what follows it. So the last one must hold whatever matters of all that came "
        "before; attention has brought it there.",
        Library(
            "logits = vectors @ embedding.weight.T          # Network.logits\nlogits.softmax(-1)",
            "model/network.py",
            (ViewLink("the probabilities of every position", "translate", {"text": result.source}),),
        ),
        (
            _matrix_section(result),
            Section(
                "Logits by hand",
                (
                    Table(
                        ("token", "logit", "probability"),
                        tuple((t, f"{x:g}".replace("-", "−"), f"{p:.3g}") for t, x, p in result.logits),
                    ),
                    f"A logit is a score, not yet a share. {best[0]} leads by "
                    f"{best[1] - sorted(x for _, x, _ in result.logits)[-2]:g}, and the softmax takes e to the power of "
                    "that: in practice certainty.",
                ),
            ),
            Section(
                "Every position predicts its next token",
                (
                    Table(
                        ("input", "prediction", "p", "2nd", "3rd", "what came"),
                        tuple(
                            (p.input, p.top[0][0], p.top[0][1], _format(p.top[1]), _format(p.top[2]), p.target)
                            for p in result.positions
                        ),
                        f"{result.source}" + (f" → {result.output}" if not result.is_language_model else ""),
                    ),
                    "In training all of these are used at once: a text of n tokens gives n exercises. In use only the "
                    "last counts.",
                ),
            ),
            _prompt_section(result),
        ),
        (
            Try(
                "A small lead: probabilities become readable.",
                {"logits": {"good": 2, "apple": -1, "cat": 1, "new": 0.5}},
            ),
            Try(
                "Ask a language model of your own.", {"prompts": "Once upon a time there"}, options="--model DIRECTORY"
            ),
        ),
        (
            Note(
                LANGUAGE_MODELS,
                "“use a matrix, match the last vector, to a list, of 50,000 vocabulary”; “unembedding is a "
                "classifier”; the other vectors are there “to predict what goes right after it”. With the logits 200, "
                f"−8, 1, 6, −9 the first token has the probability {_softmax_first(LOGITS):.0f}: the others share "
                "e^−194. “Harry Potter, least favorite, Professor → How” probably stands for Snape; “Therefore, the "
                "modeler was ???” for the murderer of a detective story, whose name needs the whole book.",
            ),
        ),
    )


def _softmax_first(logits: Mapping[str, float]) -> float:
    return float(torch.tensor(list(logits.values()), dtype=torch.float64).softmax(-1)[0])


def _matrix_section(result: Result) -> Section:
    rows: list[Row] = [(str(i + 1), *row) for i, row in enumerate(result.embedding)]
    first = result.tokens[0]
    return Section(
        "The two matrices, W_E and W_U",
        (
            Table(("", *result.tokens), tuple(rows), "W_E: one column per token", 1),
            f"Embedding is a lookup: {first} is the first column, {format_vector([row[0] for row in result.embedding])}. As a "
            f"product, W_E times the one-hot vector of {first}; the two differ by {result.one_hot_error:.0f}.",
            "W_U goes the other way: one row per token, times the vector, one logit each. In this model W_E has "
            f"{result.width} × {result.vocab_size:,} numbers, and so has W_U (they may be the same matrix).",
        ),
    )


def _prompt_section(result: Result) -> Section:
    if not result.prompts:
        return Section("What would a language model say?", (NO_LANGUAGE_MODEL,))
    rows = tuple((prompt.text, ", ".join(_format(each) for each in prompt.top)) for prompt in result.prompts)
    parts: list[Part] = [Table(("text", "most probable next tokens"), rows)]
    if result.with_context is not None:
        compared = result.with_context
        parts.append(
            f"The same last words after other sentences, “{compared.context}”: "
            f"{', '.join(_format(each) for each in compared.after.top)}. The last vector has cosine "
            f"{compared.cosine:.2f} with that of the words alone: the same words, another vector, because attention has "
            "read the rest. Whether the model knows the answer is another question; the list shows it."
        )
    return Section("What would a language model say?", tuple(parts))


def _format(prediction: TokenProbability) -> str:
    return f"{prediction[0]} {prediction[1]:.2f}"


def exercises() -> tuple[Exercise, ...]:
    unembedding, vector = to_tensor([[1, 0], [2, 1], [0, 3]]), to_tensor([[2], [1]])
    logits = (unembedding @ vector).flatten()
    tokens = ("cat", "dog", "bird")
    return (
        Exercise(
            "W_U has the rows cat (1, 0), dog (2, 1), bird (0, 3); the last vector is (2, 1). What is the logit of dog?",
            float(logits[1]),
            "2 · 2 + 1 · 1.",
        ),
        choose(
            "Which token is most probable?",
            tokens,
            lambda token: float(logits[tokens.index(token)]),
            f"Logits {', '.join(f'{x:g}' for x in logits.tolist())}: the largest wins.",
        ),
        Exercise(
            "And what is its probability, by softmax?",
            float(logits.softmax(-1)[1]),
            "e⁵ / (e² + e⁵ + e³).",
        ),
    )


def draw(result: Result, path: Path | str) -> None:
    figure, (axes,) = subplots(1, any_script=True)
    y = range(len(result.top))
    axes.barh(y, [p for _, p in reversed(result.top)])
    axes.set_yticks(y, [token for token, _ in reversed(result.top)])
    axes.set_xlim(0, 1)
    label_axes(axes, f"After “{result.row_input}”", "probability", "", legend=False)
    save_figure(figure, path)
