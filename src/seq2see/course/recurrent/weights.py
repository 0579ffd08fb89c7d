"""The weights of the recurrent models under the symbols of their formulas."""

from seq2see.inspect.weights import Symbol, symbols
from seq2see.model.network import Network

GATES = "ifgo"  # of an LSTM: input, forget, cell, output
LETTERS = {"weight_ih": "W", "weight_hh": "U", "bias_ih": "b", "bias_hh": "d"}  # input weights, recurrent weights
ADDITIVE = {"queries": "W", "keys": "U", "score": "v", "initial_state": "W_s", "combine": "W_t"}


def describe_recurrent_weight(model: Network, name: str) -> tuple[str, list[Symbol]]:
    """Maps decoder.attention.keys.weight to decoder.0.cross, and decoder.layers.0 after decoder.cell to decoder.1."""
    stack, *parts = name.split(".")[:-1] or [name]
    component = {"attention": "decoder.0.cross", "cell": "decoder.0"}.get(parts[0] if parts else "", stack)
    if parts[:1] == ["layers"]:
        after_cell = stack == "decoder" and model.config.kind == "rnn-attention"
        component = f"{stack}.{int(parts[1]) + after_cell}"
    path, _, kind = name.rpartition(".")
    last = path.rpartition(".")[2]
    rows = len(getattr(model.get_submodule(path), kind))
    # nn.LSTM has weight_ih_l0, and weight_ih_l0_reverse for the backward direction.
    gated, _, reverse = kind.partition("_l0")
    if gated in LETTERS:
        size, letter = rows // len(GATES), f"{'←' if reverse else ''}{LETTERS[gated]}"
        return component, [Symbol(f"{letter}_{gate}", i * size, (i + 1) * size) for i, gate in enumerate(GATES)]
    if last in ADDITIVE:
        symbol = ADDITIVE[last]
        return component, [Symbol(symbol if kind == "weight" else f"b{symbol[1:]}", 0, rows)]
    return component, symbols(model, name)
