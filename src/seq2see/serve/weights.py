"""The learned numbers by the names that the notes give them: which rows of which matrix are W_Q, and where they act.

With these and a trace, whoever asks can work out any cell again from its operands. A matrix is stored as torch has it, one
row an output: x · W of the formulas is x · rowsᵀ here.
"""

from collections.abc import Callable, Iterator
from functools import partial

from torch import nn

from seq2see.model.layers import StackedLinear
from seq2see.model.network import Network
from seq2see.model.recurrent import Recurrent
from seq2see.serve.answered import Symbol, Weight

STACKED = {"queries_keys_values": "QKV", "queries": "Q", "keys_values": "KV"}
SINGLE = {"project": "O", "expand": "₁", "contract": "₂", "gate": "gate"}
GATES = "ifgo"  # of an LSTM: input, forget, new, output
ADDITIVE = {"queries": "W", "keys": "U", "fit": "v", "begin": "W_s", "combine": "W_t"}
TABLES = {
    "embedding": "E", "source_embedding": "E of the source", "unembedding": "E of the output", "positions": "P", "segments": "S"
}  # fmt: skip


def weights(model: Network) -> list[Weight]:
    place: Callable[[str], str] = _place
    symbols = _symbols
    if isinstance(model, Recurrent):
        place, symbols = partial(_recurrent_place, looks=model.decoder.attention is not None), _recurrent_symbols
    return [
        Weight(name=name, shape=list(weight.shape), place=place(name), symbols=list(symbols(model, name)))
        for name, weight in model.state_dict().items()
    ]


def _place(name: str) -> str:
    """The place as the taps have it: decoder.blocks.1.attention_norm.norm.weight acts at decoder.1.masked.norm."""
    stack, *parts = name.split(".")[:-1] or [name]
    own = "self" if stack == "encoder" else "masked"
    called = {"attention": own, "attention_norm": own, "cross_norm": "cross", "feed_forward_norm": "feed_forward",
              "embedding_norm": "norm"}  # fmt: skip
    silent = ("blocks", *STACKED, *SINGLE)
    return ".".join([stack, *(called.get(part, part) for part in parts if part not in silent)])


def _symbols(model: Network, name: str) -> Iterator[Symbol]:
    path, _, kind = name.rpartition(".")
    last = path.rpartition(".")[2]
    module = model.get_submodule(path)
    letter = "W" if kind == "weight" else "b"
    rows = model.state_dict()[name].shape[0]
    if isinstance(module, StackedLinear):
        start = 0
        for part, size in zip(STACKED[last], module.sizes, strict=True):
            yield Symbol(symbol=f"{letter}_{part}", start=start, stop=start + size)
            start += size
    elif last in SINGLE:
        yield Symbol(symbol=f"{letter}{'' if SINGLE[last] in '₁₂' else '_'}{SINGLE[last]}", start=0, stop=rows)
    elif last in TABLES:
        yield Symbol(symbol=TABLES[last], start=0, stop=rows)
    elif isinstance(module, (nn.LayerNorm, nn.RMSNorm)):
        yield Symbol(symbol="γ" if kind == "weight" else "β", start=0, stop=rows)
    else:
        yield Symbol(symbol="b", start=0, stop=rows)  # what is added to the logits


def _recurrent_place(name: str, looks: bool) -> str:
    """decoder.attention.keys.weight acts at decoder.0.cross, decoder.layers.0 after decoder.cell at decoder.1."""
    stack, *parts = name.split(".")[:-1] or [name]
    if parts[:1] == ["layers"]:
        return f"{stack}.{int(parts[1]) + looks}" if stack == "decoder" else f"{stack}.{parts[1]}"
    return {"attention": "decoder.0.cross", "cell": "decoder.0"}.get(parts[0] if parts else "", stack)


def _recurrent_symbols(model: Network, name: str) -> Iterator[Symbol]:
    path, _, kind = name.rpartition(".")
    last = path.rpartition(".")[2]
    rows = model.state_dict()[name].shape[0]
    if kind.startswith(("weight_", "bias_")):  # of the input (ih) and of the state before (hh)
        letter = "b" if kind.startswith("bias") else "W" if "_ih" in kind else "U"
        size = rows // len(GATES)
        for number, gate in enumerate(GATES):
            yield Symbol(symbol=f"{letter}_{gate}", start=number * size, stop=(number + 1) * size)
    elif last in ADDITIVE:
        yield Symbol(symbol=ADDITIVE[last] if kind == "weight" else "b", start=0, stop=rows)
    else:
        yield from _symbols(model, name)
