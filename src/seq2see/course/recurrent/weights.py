"""The weights of the recurrent models under the symbols of their formulas."""

from collections.abc import Iterator
from functools import partial

from seq2see.inspect.weights import Symbol, WeightNames, transformer_symbols
from seq2see.model.network import Network

GATES = "ifgo"  # of an LSTM: input, forget, cell, output
LETTERS = {"weight_ih": "W", "weight_hh": "U", "bias_ih": "b", "bias_hh": "d"}  # input weights, recurrent weights
ADDITIVE = {"queries": "W", "keys": "U", "score": "v", "initial_state": "W_s", "combine": "W_t"}


def _component(name: str, attends: bool) -> str:
    """Maps decoder.attention.keys.weight to decoder.0.cross, and decoder.layers.0 after decoder.cell to decoder.1."""
    stack, *parts = name.split(".")[:-1] or [name]
    if parts[:1] == ["layers"]:
        return f"{stack}.{int(parts[1]) + attends}" if stack == "decoder" else f"{stack}.{parts[1]}"
    return {"attention": "decoder.0.cross", "cell": "decoder.0"}.get(parts[0] if parts else "", stack)


def _symbols(model: Network, name: str) -> Iterator[Symbol]:
    path, _, kind = name.rpartition(".")
    last = path.rpartition(".")[2]
    rows = model.state_dict()[name].shape[0]
    # nn.LSTM has weight_ih_l0, and weight_ih_l0_reverse for the backward direction.
    gated, _, reverse = kind.partition("_l0")
    if gated in LETTERS:
        size = rows // len(GATES)
        for i, gate in enumerate(GATES):
            symbol = f"{'←' if reverse else ''}{LETTERS[gated]}_{gate}"
            yield Symbol(symbol, i * size, (i + 1) * size)
    elif last in ADDITIVE:
        symbol = ADDITIVE[last]
        yield Symbol(symbol if kind == "weight" else f"b{symbol[1:]}", 0, rows)
    else:
        yield from transformer_symbols(model, name)


RNN = WeightNames(partial(_component, attends=False), _symbols)
RNN_ATTENTION = WeightNames(partial(_component, attends=True), _symbols)
