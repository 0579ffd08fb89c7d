"""`layers`: the prediction of every layer at every position (the logit lens).

The output projection is applied not only to the last layer but to the vectors between the layers, as if the model had to answer
there. It shows where in the model an answer forms.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from seq2see.course.lessons import kit
from seq2see.inspect.logit_lens import logit_lens

TokenProbability = tuple[str, float]


@dataclass(frozen=True)
class Layer:
    name: str
    top: tuple[TokenProbability, ...]  # the most probable token at each position
    target_probabilities: tuple[float, ...]
    target_ranks: tuple[int, ...]


@dataclass(frozen=True)
class Result:
    source: str
    output: str
    is_language_model: bool
    inputs: tuple[str, ...]
    targets: tuple[str, ...]  # the last is the model's own choice
    vocab_size: int
    layers: tuple[Layer, ...]
    settled: tuple[
        int, ...
    ]  # per position, the first layer from which on the target ranks first; the number of layers if none

    @property
    def probabilities(self) -> kit.Matrix:
        return tuple(layer.target_probabilities for layer in self.layers)


def compute(sentence: str = "The man saw the lion.", model: kit.Model | None = None) -> Result:
    """Reads out the decoder's vectors before and after every block."""
    model = kit.resolve_decoder(model)
    e = kit.explain_next(model, sentence)
    lens = logit_lens(e, top=1)
    layers = tuple(
        Layer(
            _layer_name(name),
            tuple(each.top[0] for each in row),
            tuple(each.probability for each in row),
            tuple(each.rank for each in row),
        )
        for name, row in zip(lens.layers, lens.readings, strict=True)
    )
    settled = tuple(_settled([layer.target_ranks[i] for layer in layers]) for i in range(len(e.target_tokens)))
    config = model.config.model
    return Result(
        sentence, e.output, config.shape == "decoder", e.decoder_input_tokens, e.target_tokens, config.vocab_size, layers,
        settled,
    )  # fmt: skip


def _settled(ranks: list[int]) -> int:
    """The first layer from which on the rank is 1."""
    first = len(ranks)
    while first and ranks[first - 1] == 1:
        first -= 1
    return first


def _layer_name(name: str) -> str:
    return "embedding" if name.endswith(("input", "decoder.norm.output")) else f"block {name.split('.')[1]}"


def values(result: Result) -> kit.Values:
    count = len(result.layers)
    before_last = result.layers[-2].target_ranks if count > 1 else (1,) * len(result.targets)
    shown = max(range(len(result.targets)), key=before_last.__getitem__)  # decided latest
    settled = list(zip(result.targets, result.settled, strict=True))
    return {
        "shown": shown,
        "by_layer": [(layer.name, layer.target_probabilities[shown]) for layer in result.layers],
        "names": [layer.name for layer in result.layers],
        "ranks": [(t, *(layer.target_ranks[i] for layer in result.layers)) for i, t in enumerate(result.targets)],
        "early": _list([target for target, layer in settled if layer < count - 1]),
        "late": _list([target for target, layer in settled if layer == count - 1]),
        "never": _list([target for target, layer in settled if layer == count]),
        "best": [
            (target, *(f"{layer.top[i][0]} {layer.top[i][1]:.2f}" for layer in result.layers))
            for i, target in enumerate(result.targets)
        ],
        "probabilities": result.probabilities,
    }


def _list(tokens: Sequence[str]) -> str:
    different = list(dict.fromkeys(tokens))
    return ", ".join(different[:8]) + " …" * (len(different) > 8)


def answers() -> kit.Values:
    table, tokens = kit.to_tensor([[2, 0], [0, 3]]), ("lion", "tiger")
    early, late = table @ kit.to_tensor([[1, 0.2]])[0], table @ kit.to_tensor([[1, 1.5]])[0]
    return {
        "tokens": tokens,
        "early": tokens[int(early.argmax())],
        "late": tokens[int(late.argmax())],
        "probability": float(late.softmax(-1)[1]),
    }
