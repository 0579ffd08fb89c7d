"""`next`: predicting the next token. A matrix of vectors on the way in (W_E), another on the way out (W_U).

Embedding looks a word up; unembedding compares the last vector with the vector of every token: a classifier with one class per
token. In training it is applied to every position, in use to the last one, which therefore has to hold all that came before.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch.nn import functional as F

from seq2see.course.lessons import kit
from seq2see.inspect.explain import Explanation
from seq2see.inspect.logit_lens import alternatives

# The matrices of the notes: one column of W_E per token, and the logits that W_U makes of the last vector.
EMBEDDING: kit.Features = {
    "apple": (8.2, 7.2, -8.1, -8.7),
    "banana": (-4.2, 6.4, 3.8, -1.7),
    "cats": (0.2, -1, -4, 1.2),
    "dogs": (0.8, 7, 4, 8),
}
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
    embedding: kit.Matrix  # W_E: one column per token
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
    embedding: kit.Features = EMBEDDING,
    logits: Mapping[str, float] = LOGITS,
    sentence: str = "I am good",
    prompts: Sequence[str] = PROMPTS,
    context: str = CONTEXT,
    model: kit.Model | None = None,
) -> Result:
    """Looks words up and turns logits into probabilities by hand, then predicts the next token with a model."""
    if len(logits) < 2:
        raise kit.UserError(f"{len(logits)} logit: the softmax needs at least 2 tokens to choose from")
    model = kit.resolve_decoder(model)
    table = kit.to_tensor(list(embedding.values()), "embedding").mT  # [width, tokens]
    one_hot = torch.eye(len(embedding), dtype=table.dtype)
    probabilities = torch.tensor(list(logits.values()), dtype=torch.float64).softmax(-1).tolist()
    e = kit.explain_next(model, sentence)
    row = _shown_row(e)
    top = alternatives(e, row, top=5)
    config, language_model = model.config.model, kit.find_language_model(model)
    positions = tuple(
        Position(token, target, tuple((each.token, each.probability) for each in alternatives(e, i, top=3)))
        for i, (token, target) in enumerate(zip(e.decoder_input_tokens, e.target_tokens, strict=True))
    )
    return Result(
        tuple(embedding), kit.to_matrix(table), float((table @ one_hot - table).abs().max()),
        tuple((token, float(x), p) for (token, x), p in zip(logits.items(), probabilities, strict=True)),
        config.shape == "decoder", sentence, e.output, config.width, config.vocab_size, e.decoder_input_tokens[row],
        top[0].token, *_unembed(e, row, top[0].id), tuple((each.token, each.probability) for each in top),
        positions,
        () if language_model is None else tuple(Prompt(text, kit.next_tokens(language_model, text)) for text in prompts),
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
    product = e.trace["decoder.vectors", 0][row] @ table.weight[token]
    if model.unembedding_bias is not None:
        product = product + model.unembedding_bias[token]
    return float(product), float(e.trace["logits", 0][row, token])


def _compare(model: kit.Model, context: str, text: str) -> WithContext:
    whole = f"{context} {text}"
    vectors = [
        (each := kit.explain_next(model, words)).trace["decoder.vectors", 0][each.output_start].float().cpu()
        for words in (text, whole)
    ]
    alone, after = (Prompt(words, kit.next_tokens(model, words)) for words in (text, whole))
    return WithContext(context, alone, after, float(F.cosine_similarity(vectors[0], vectors[1], dim=0)))


def values(result: Result) -> kit.Values:
    best, second = sorted((logit for _, logit, _ in result.logits), reverse=True)[:2]
    return {
        "embedding_rows": [(str(i + 1), *row) for i, row in enumerate(result.embedding)],
        "first_column": [row[0] for row in result.embedding],
        "logit_rows": [(token, f"{x:g}".replace("-", "−"), f"{p:.3g}") for token, x, p in result.logits],
        "best": max(result.logits, key=lambda each: each[1])[0],
        "lead": best - second,
        "prompt_rows": [(each.text, ", ".join(map(_format, each.top))) for each in result.prompts],
        "after": ", ".join(map(_format, result.with_context.after.top)) if result.with_context else "",
        "notes_first": kit.to_tensor([list(LOGITS.values())]).softmax(-1)[0, 0].item(),
    }


def _format(prediction: TokenProbability) -> str:
    return f"{prediction[0]} {prediction[1]:.2f}"


def answers() -> kit.Values:
    unembedding, vector = kit.to_tensor([[1, 0], [2, 1], [0, 3]]), kit.to_tensor([[2], [1]])
    logits, tokens = (unembedding @ vector).flatten(), ("cat", "dog", "bird")
    return {
        "tokens": tokens,
        "dog": float(logits[1]),
        "best": tokens[int(logits.argmax())],
        "logits": logits.tolist(),
        "probability": float(logits.softmax(-1)[1]),
    }
