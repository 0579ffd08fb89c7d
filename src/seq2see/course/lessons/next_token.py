"""`next`: predicting the next token. The last vector against the vectors of all tokens, softmax, and temperature.

Unembedding is a classifier with one class per token; in training it is applied to every position, in use to the last one.
Applied after every layer it shows how the prediction forms. The temperature controls how random the choice is.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from seq2see.api import Model
from seq2see.course.lessons.attention import Matrix
from seq2see.course.lessons.figures import label_axes, save_figure, subplots
from seq2see.course.lessons.models import explain_sentence, resolve_decoder
from seq2see.course.lessons.render import LessonText, Row, Table
from seq2see.decode.chat import ROLES
from seq2see.decode.sampling import filter_logits
from seq2see.decode.search import Search
from seq2see.errors import UserError, did_you_mean
from seq2see.inspect.explain import Explanation
from seq2see.inspect.logit_lens import logit_lens

LOGITS, PRINTED = (6.0, -5.0, 4.0, 1.5, 9.9), (0.19, 0.04, 0.14, 0.10, 0.35)
TEMPERATURES = (0.1, 0.5, 1.0, 2.0, 7.0)
MESSAGES = (("system", "You're an apple."), ("user", "Give me a banana"))

TokenProbability = tuple[str, float]


@dataclass(frozen=True)
class Position:
    input: str
    target: str
    top: tuple[TokenProbability, ...]  # the most probable tokens of the last layer


@dataclass(frozen=True)
class Layer:
    name: str
    top: tuple[TokenProbability, ...]  # the most probable token at each position
    target_ranks: tuple[int, ...]


@dataclass(frozen=True)
class Result:
    logits: tuple[float, ...]
    printed: tuple[float, ...]
    temperatures: tuple[float, ...]
    probabilities: Matrix  # one row per temperature
    fitted_temperature: float  # best fit to the printed probabilities
    remainder: float  # probability that the printed ones leave for other tokens
    source: str
    output: str
    width: int
    vocab_size: int
    product: float  # the last vector · the vector of the predicted token
    logit: float  # the model's logit for that token
    positions: tuple[Position, ...]
    layers: tuple[Layer, ...]
    prompt: str  # the chat as one text
    reply: str  # of a language model; empty for others


def compute(
    logits: Sequence[float] = LOGITS, printed: Sequence[float] = PRINTED, temperatures: Sequence[float] = TEMPERATURES,
    sentence: str = "The man saw the lion.", messages: Sequence[tuple[str, str]] = MESSAGES, model: Model | None = None,
) -> Result:  # fmt: skip
    """Applies temperatures to the logits of the notes, and predicts the next token at every position and layer of a model."""
    if len(logits) != len(printed) or len(logits) < 2:
        raise UserError(
            f"{len(logits)} logits and {len(printed)} printed probabilities: needs equal numbers, at least 2 each"
        )
    if min(*temperatures, *printed) <= 0:
        raise UserError(f"temperatures {list(temperatures)} and probabilities {list(printed)}: all must be above 0")
    model = resolve_decoder(model)
    e = explain_sentence(model, sentence)
    lens, prompt, reply = logit_lens(e, top=3), _chat_prompt(model, messages), ""
    if model.config.model.shape == "decoder":
        reply = model.chat([(role, text) for role, text in messages], max_new_tokens=40)
    positions = tuple(
        Position(token, target, reading.top)
        for token, target, reading in zip(e.decoder_input_tokens, e.target_tokens, lens.readings[-1], strict=True)
    )
    layers = tuple(
        Layer(name, tuple(each.top[0] for each in row), tuple(each.rank for each in row))
        for name, row in zip(lens.layers, lens.readings, strict=True)
    )
    config = model.config.model
    return Result(
        tuple(logits), tuple(printed), tuple(temperatures), tuple(_softmax(logits, t) for t in temperatures),
        _fit_temperature(logits, printed), 1 - sum(printed), sentence, e.output, config.width, config.vocab_size,
        *_unembed_last(e), positions, layers, prompt, reply,
    )  # fmt: skip


def _softmax(logits: Sequence[float], temperature: float) -> tuple[float, ...]:
    """Computes the probabilities with the sampler's own function."""
    scaled = filter_logits(torch.tensor([list(logits)], dtype=torch.float64), Search(temperature=temperature))
    return tuple(scaled.softmax(-1)[0].tolist())


def _fit_temperature(logits: Sequence[float], printed: Sequence[float]) -> float:
    """Fits ln p = x / T + constant by least squares."""
    x = torch.tensor(list(logits), dtype=torch.float64)
    y = torch.tensor([math.log(p) for p in printed], dtype=torch.float64)
    x, y = x - x.mean(), y - y.mean()
    return float(x.square().sum() / (x @ y))


@torch.no_grad()
def _unembed_last(e: Explanation) -> tuple[float, float]:
    """Multiplies the last vector with that of the predicted token; returns the product and the model's own logit."""
    model, token = e.model.network, e.target_ids[-1]
    table = model.embedding if model.unembedding is None else model.unembedding
    product = e.trace["decoder.vectors"][-1] @ table.weight[token]
    if model.unembedding_bias is not None:
        product = product + model.unembedding_bias[token]
    return float(product), float(e.trace["logits"][-1, token])


def _chat_prompt(model: Model, messages: Sequence[tuple[str, str]]) -> str:
    for role, _ in messages:
        if role not in ROLES:
            raise UserError(f'unknown chat role "{role}": {did_you_mean(role, ROLES)}')
    return model.chat_template.render(messages)


def describe(result: Result) -> LessonText:
    temperatures = Table(
        ("logit", *(f"T = {t:g}" for t in result.temperatures), "printed"),
        tuple(
            (f"{x:g}".replace("-", "−"), *(row[i] for row in result.probabilities), f"{result.printed[i]:g}")
            for i, x in enumerate(result.logits)
        ),
        "Logits x and softmax(x / T):", 3,
    )  # fmt: skip
    positions = Table(
        ("input", "prediction", "p", "2nd", "3rd"),
        tuple((p.input, p.top[0][0], p.top[0][1], *(_format(each) for each in p.top[1:3])) for p in result.positions),
        f"{result.source} → {result.output}: every position predicts its next token",
    )
    rows: list[Row] = [
        (position.target, *(f"{_format(layer.top[i])}, {layer.target_ranks[i]}" for layer in result.layers))
        for i, position in enumerate(result.positions)
    ]
    layers = Table(
        ("target", *(_layer_name(layer.name) for layer in result.layers)), tuple(rows),
        "Predictions after each layer (top token with p, and the rank of the target):",
    )  # fmt: skip
    chat = f"To a language model a chat is one text:\n{result.prompt.rstrip()} {result.reply or '…'}"
    if not result.reply:
        chat += "\n(This model is not a language model; otherwise its reply would follow.)"
    best = max(range(len(result.logits)), key=result.logits.__getitem__)
    shares = [f"{row[best]:.2f}" for row in result.probabilities]
    return LessonText(
        'Unembedding. The notes: "use a matrix, match the last vector, to a list, of 50,000 vocabulary"; "unembedding is a '
        'classifier"; every other vector is there "to predict what goes right after it"; "T is larger, more weight to lower '
        'value".',
        (
            f"The last vector ({result.width} numbers) times the vector of the predicted token is {result.product:.4f}; the "
            f"model's logit for it, one of {result.vocab_size:,}, is {result.logit:.4f}.",
            positions, layers, temperatures, chat,
        ),
        f"At T = {result.temperatures[0]:g} the best token has probability {shares[0]}, at T = {result.temperatures[-1]:g} "
        f"it has {shares[-1]}: smaller T is sharper, larger T flatter, and T → 0 always selects the best token.",
        _errata(),
    )  # fmt: skip


def _errata() -> tuple[str, ...]:
    total, fitted = sum(PRINTED), _fit_temperature(LOGITS, PRINTED)
    reconstructed = ", ".join(f"{total * p:.2f}" for p in _softmax(LOGITS, fitted))
    return (
        "The probabilities printed next to the logits are not their softmax at T = 1 (which gives the best token "
        f"{_softmax(LOGITS, 1.0)[4]:.2f}, not 0.35). They add to {total:.2f}, which leaves {1 - total:.2f} for other tokens, "
        f"and fit T = {fitted:.1f}: {total:.2f} · softmax(x/{fitted:.1f}) is {reconstructed}.",
        'The exponent is written "x/b" in the numerator and "x/T" in the denominator: T in both.',
    )


def _format(prediction: TokenProbability) -> str:
    return f"{prediction[0]} {prediction[1]:.2f}"


def _layer_name(name: str) -> str:
    return "embedded" if name.endswith(("input", "decoder.norm.output")) else f"after block {name.split('.')[1]}"


def draw(result: Result, path: Path | str) -> None:
    figure, (axes,) = subplots(1)
    width = 0.8 / len(result.temperatures)
    for i, (t, row) in enumerate(zip(result.temperatures, result.probabilities, strict=True)):
        axes.bar([j + i * width for j in range(len(row))], row, width, label=f"T = {t:g}")
    axes.set_xticks([j + 0.4 - width / 2 for j in range(len(result.logits))], [f"{x:g}" for x in result.logits])
    label_axes(axes, "softmax(x / T)", "logit x", "probability")
    save_figure(figure, path)
