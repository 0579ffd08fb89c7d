"""The learned numbers by the names that the notes give them: which rows of which matrix are W_Q, and where they act.

With these and a trace, whoever asks can work out any cell again from its operands. A matrix is stored as torch has it, one
row an output: x · W of the formulas is x · rowsᵀ here.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from torch import nn

from seq2see.model.layers import StackedLinear
from seq2see.model.network import Network
from seq2see.model.recurrent import Recurrent

STACKED = {"queries_keys_values": "QKV", "queries": "Q", "keys_values": "KV"}
SINGLE = {"project": "O", "expand": "₁", "contract": "₂", "gate": "gate"}
GATES = "ifgo"  # of an LSTM: input, forget, new, output
LETTERS = {"weight_ih": "W", "weight_hh": "U", "bias_ih": "b", "bias_hh": "d"}  # of the input, of the state before
ADDITIVE = {"queries": "W", "keys": "U", "fit": "v", "begin": "W_s", "combine": "W_t"}
TABLES = {
    "embedding": "E", "source_embedding": "E of the source", "unembedding": "E of the output", "positions": "P", "segments": "S"
}  # fmt: skip


@dataclass(frozen=True)
class Symbol:
    symbol: str  # W_Q
    start: int  # the first row that it is
    stop: int  # the row after its last


@dataclass(frozen=True)
class Weight:
    name: str  # decoder.blocks.1.cross.queries.weight
    shape: tuple[int, ...]
    place: str  # where it acts, as the names of a trace have it: decoder.1.cross
    symbols: tuple[Symbol, ...]


def weights(model: Network) -> list[Weight]:
    place: Callable[[str], str] = _place
    symbols = _symbols
    if isinstance(model, Recurrent):
        place, symbols = partial(_recurrent_place, looks=model.decoder.attention is not None), _recurrent_symbols
    return [
        Weight(name, tuple(weight.shape), place(name), tuple(symbols(model, name)))
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
            yield Symbol(f"{letter}_{part}", start, start + size)
            start += size
    elif last in SINGLE:
        yield Symbol(f"{letter}{'' if SINGLE[last] in '₁₂' else '_'}{SINGLE[last]}", 0, rows)
    elif last in TABLES:
        yield Symbol(TABLES[last], 0, rows)
    elif isinstance(module, (nn.LayerNorm, nn.RMSNorm)):
        yield Symbol("γ" if kind == "weight" else "β", 0, rows)
    else:
        yield Symbol("b", 0, rows)  # what is added to the logits


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
    gated, _, way = kind.partition("_l0")  # a module of layers has _l0, and _l0_reverse for the way back
    if gated in LETTERS:
        size = rows // len(GATES)
        for number, gate in enumerate(GATES):
            symbol = f"{'←' if way else ''}{LETTERS[gated]}_{gate}"
            yield Symbol(symbol, number * size, (number + 1) * size)
    elif last in ADDITIVE:
        symbol = ADDITIVE[last]
        yield Symbol(symbol if kind == "weight" else f"b{symbol[1:]}", 0, rows)
    else:
        yield from _symbols(model, name)
