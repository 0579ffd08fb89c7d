"""`next`: what comes next. The last vector against every token's vector, softmax, and temperature.

Unembedding is a classifier with a class for each token; in training every position's vector is asked, in use the last one.
Read out at every layer it shows the answer growing. Temperature then decides how daring the choice is.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from seq2see.api import Model
from seq2see.course.lessons.models import bundled, read
from seq2see.course.lessons.pictures import label, panels, save
from seq2see.course.lessons.render import Grid, Row, Story
from seq2see.course.lessons.worked_attention import Table
from seq2see.decode.sampling import candidates
from seq2see.decode.search import Search
from seq2see.errors import UserError
from seq2see.inspect.explain import Explanation
from seq2see.inspect.logit_lens import lens

LOGITS, PRINTED = (6.0, -5.0, 4.0, 1.5, 9.9), (0.19, 0.04, 0.14, 0.10, 0.35)
TEMPERATURES = (0.1, 0.5, 1.0, 2.0, 7.0)
TURNS = (("system", "You're an apple."), ("user", "Give me a banana"))

Guess = tuple[str, float]


@dataclass(frozen=True)
class Place:
    reads: str
    writes: str
    guesses: tuple[Guess, ...]  # the likeliest tokens of the last layer


@dataclass(frozen=True)
class Layer:
    name: str
    guesses: tuple[Guess, ...]  # the likeliest token at each place
    ranks: tuple[int, ...]  # of what was chosen in the end


@dataclass(frozen=True)
class Next:
    logits: tuple[float, ...]
    printed: tuple[float, ...]
    temperatures: tuple[float, ...]
    probabilities: Table  # a row for each temperature
    fitted: float  # the temperature that explains the printed probabilities best
    others: float  # what they leave for other tokens
    source: str
    output: str
    width: int
    vocabulary: int
    product: float  # the last vector · the vector of the token it chose
    logit: float  # what the model made of it
    places: tuple[Place, ...]
    layers: tuple[Layer, ...]
    prompt: str  # the conversation as a language model reads it
    reply: str  # what it says; empty where the model is none


def next(
    logits: Sequence[float] = LOGITS, printed: Sequence[float] = PRINTED, temperatures: Sequence[float] = TEMPERATURES,
    sentence: str = "The man saw the lion.", turns: Sequence[tuple[str, str]] = TURNS, model: Model | None = None,
) -> Next:  # fmt: skip
    """The notes' logits at several temperatures, and a model's own predictions everywhere."""
    if len(logits) != len(printed) or len(logits) < 2:
        raise UserError(
            f"{len(logits)} logits and {len(printed)} printed probabilities: one for each, and two at least"
        )
    if min(*temperatures, *printed) <= 0:
        raise UserError(f"temperatures {list(temperatures)} and probabilities {list(printed)}: all must be above 0")
    chosen = bundled(model)
    e = read(chosen, sentence)
    rows = tuple(_at(logits, t) for t in temperatures)
    read_out, prompt, reply = lens(e, top=3), _prompt(chosen, turns), ""
    if chosen.config.model.shape == "decoder":
        reply = chosen.chat([(who, text) for who, text in turns], tokens=40)
    places = tuple(
        Place(reads, writes, reading.top)
        for reads, writes, reading in zip(e.reads, e.writes, read_out.readings[-1], strict=True)
    )
    layers = tuple(
        Layer(name, tuple(each.top[0] for each in row), tuple(each.rank for each in row))
        for name, row in zip(read_out.places, read_out.readings, strict=True)
    )
    config = chosen.config.model
    return Next(
        tuple(logits), tuple(printed), tuple(temperatures), rows, _fitted(logits, printed), 1 - sum(printed), sentence,
        e.output, config.width, config.vocabulary, *_product(e), places, layers, prompt, reply,
    )  # fmt: skip


def _at(logits: Sequence[float], temperature: float) -> tuple[float, ...]:
    """By the sampler's own function."""
    scaled = candidates(torch.tensor([list(logits)], dtype=torch.float64), Search(temperature=temperature))
    return tuple(scaled.softmax(-1)[0].tolist())


def _fitted(logits: Sequence[float], printed: Sequence[float]) -> float:
    """ln p is x / T and a constant, so T is one over the slope of the straight line through them."""
    x = torch.tensor(list(logits), dtype=torch.float64)
    y = torch.tensor([math.log(p) for p in printed], dtype=torch.float64)
    x, y = x - x.mean(), y - y.mean()
    return float(x.square().sum() / (x @ y))


@torch.no_grad()
def _product(e: Explanation) -> tuple[float, float]:
    """Of the last place: its vector times the vector of what it wrote, and the logit."""
    model, token = e.model.network, e.write_ids[-1]
    table = model.embedding if model.unembedding is None else model.unembedding
    product = e.trace["decoder.vectors"][-1] @ table.weight[token]
    if model.unembedding_bias is not None:
        product = product + model.unembedding_bias[token]
    return float(product), float(e.trace["logits"][-1, token])


def _prompt(model: Model, turns: Sequence[tuple[str, str]]) -> str:
    frames = {
        "system": model.chat_template.system,
        "user": model.chat_template.user,
        "model": model.chat_template.model,
    }
    for who, _ in turns:
        if who not in frames:
            raise UserError(f'nobody is called "{who}" in a chat: {", ".join(frames)}')
    said = "".join(frames[who].replace("{text}", text) for who, text in turns)
    return said + model.chat_template.model.partition("{text}")[0]


def story(result: Next) -> Story:
    notes = Grid(
        ("logit", *(f"T = {t:g}" for t in result.temperatures), "printed"),
        tuple(
            (f"{x:g}".replace("-", "−"), *(row[i] for row in result.probabilities), f"{result.printed[i]:g}")
            for i, x in enumerate(result.logits)
        ),
        "Logits x and softmax(x / T):", 3,
    )  # fmt: skip
    places = Grid(
        ("reads", "predicts", "p", "else", ""),
        tuple((p.reads, p.guesses[0][0], p.guesses[0][1], *(_guess(g) for g in p.guesses[1:3])) for p in result.places),
        f"{result.source} → {result.output}: every place predicts its own next token",
    )
    rows: list[Row] = []
    for i, place in enumerate(result.places):
        rows.append((place.writes, *(f"{_guess(layer.guesses[i])}, {layer.ranks[i]}" for layer in result.layers)))
    names = [_layer(layer.name) for layer in result.layers]
    grown = Grid(
        ("in the end", *names), tuple(rows),
        "What each layer would say there if the model stopped (p, and the rank of what it says in the end):",
    )  # fmt: skip
    chat = f"A conversation is one text to a language model:\n{result.prompt.rstrip()} {result.reply or '…'}"
    if not result.reply:
        chat += "\n(This model translates; of a language model, its reply would stand here.)"
    best = max(range(len(result.logits)), key=result.logits.__getitem__)
    fitted = _fitted(LOGITS, PRINTED)
    remade = ", ".join(f"{sum(PRINTED) * p:.2f}" for p in _at(LOGITS, fitted))
    shares = [f"{row[best]:.2f}" for row in result.probabilities]
    return Story(
        'unembedding. The notes: "use a matrix, match the last vector, to a list, of 50,000 vocabulary"; "unembedding is '
        'a classifier"; every other vector is there "to predict what goes right after it"; "T is larger, more weight to lower '
        'value".',
        (
            f"The last vector ({result.width} numbers) times the vector of the token it chose is {result.product:.4f}; the "
            f"model's logit for it, one of {result.vocabulary:,}, is {result.logit:.4f}.",
            places, grown, notes, chat,
        ),
        f"at T = {result.temperatures[0]:g} the best token has {shares[0]}, at T = {result.temperatures[-1]:g} "
        f"it has {shares[-1]}: smaller T is sharper, larger T flatter, and T → 0 always takes the best.",
        (
            f"the probabilities printed beside the logits are those of no softmax at T = 1 (which gives the best token "
            f"{_at(LOGITS, 1.0)[4]:.2f}, not 0.35). They add to {sum(PRINTED):.2f}, so that other tokens have "
            f"{1 - sum(PRINTED):.2f}, and fit T = {fitted:.1f}: {sum(PRINTED):.2f} · softmax(x/{fitted:.1f}) is {remade}.",
            'the exponent is written "x/b" above and "x/T" below: T in both.',
        ),
    )  # fmt: skip


def _guess(guess: Guess) -> str:
    return f"{guess[0]} {guess[1]:.2f}"


def _layer(name: str) -> str:
    return "embedded" if name.endswith(("input", "decoder.norm.output")) else f"after block {name.split('.')[1]}"


def draw(result: Next, path: Path | str) -> None:
    figure, (axes,) = panels(1)
    width = 0.8 / len(result.temperatures)
    for i, (t, row) in enumerate(zip(result.temperatures, result.probabilities, strict=True)):
        axes.bar([j + i * width for j in range(len(row))], row, width, label=f"T = {t:g}")
    axes.set_xticks([j + 0.4 - width / 2 for j in range(len(result.logits))], [f"{x:g}" for x in result.logits])
    label(axes, "softmax(x / T)", "logit x", "probability")
    save(figure, path)
