"""The weights under the symbols of the formulas: which rows of which matrix are W_Q, and which component uses them.

Together with a trace, this is enough to recompute any value from its operands. Matrices are stored as in torch, one row per
output: x · W in a formula is x · rowsᵀ here.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import accumulate

from torch import Tensor, nn

from seq2see.config.extensions import load_extension
from seq2see.model.layers import StackedLinear
from seq2see.model.network import Network

STACKED = {"queries_keys_values": "QKV", "queries": "Q", "keys_values": "KV"}
SINGLE = {"project": "O", "up": "₁", "down": "₂", "gate": "gate"}
TABLES = {
    "embedding": "E",
    "source_embedding": "E of the source",
    "unembedding": "E of the output",
    "positions": "P",
    "segments": "S",
    "relative_bias": "b",
}


@dataclass(frozen=True)
class Symbol:
    """The rows of a matrix that a symbol stands for."""

    symbol: str = field(metadata={"description": "The name used in formulas.", "examples": ["W_Q"]})
    start: int = field(metadata={"description": "First row.", "examples": [0]})
    stop: int = field(metadata={"description": "Row after the last.", "examples": [128]})


@dataclass(frozen=True)
class WeightInfo:
    """A weight, the component that uses it, and the symbols of its rows."""

    name: str = field(metadata={"examples": ["decoder.blocks.1.cross.queries.weight"]})
    shape: tuple[int, ...] = field(metadata={"examples": [[128, 128]]})
    component: str = field(
        metadata={"description": "The component it belongs to, as named in traces.", "examples": ["decoder.1.cross"]}
    )
    symbols: list[Symbol]


# Returns the component that uses a weight, and the symbols of its rows; one for each kind of model, found by name.
DescribeWeight = Callable[[Network, str], tuple[str, list[Symbol]]]


def list_weights(model: Network) -> list[WeightInfo]:
    """Describes every weight of a model."""
    describe: DescribeWeight = load_extension("weights", model.config.kind)
    plain = type(model).on_meta_device(model.config)  # the layers may have been replaced by faster ones
    return [
        WeightInfo(name, tuple(weight.shape), *describe(plain, name)) for name, weight in plain.state_dict().items()
    ]


def get_weight(model: Network, name: str) -> Tensor:
    """Returns a weight of `list_weights`; of a bf16 or int8 layer as the layer uses it, converted back."""
    path, _, kind = name.rpartition(".")
    if not path and model.unembedding_bias is None:  # such a layer contains the output bias
        return model.get_submodule("unembedding").bias  # type: ignore[return-value]
    return getattr(model.get_submodule(path), kind)


def describe_transformer_weight(model: Network, name: str) -> tuple[str, list[Symbol]]:
    """The component is the tap prefix: decoder.blocks.1.attention_norm.norm.weight belongs to decoder.1.masked.norm."""
    stack, *parts = name.split(".")[:-1] or [name]
    if stack == "masked_head":
        return ".".join(["head", *(part for part in parts if part != "dense")]), symbols(model, name)
    attention = "self" if stack == "encoder" else "masked"
    names = {
        "attention": attention,
        "attention_norm": attention,
        "cross_norm": "cross",
        "feed_forward_norm": "feed_forward",
        "embedding_norm": "norm",
    }
    omitted = ("blocks", *STACKED, *SINGLE)
    return ".".join([stack, *(names.get(part, part) for part in parts if part not in omitted)]), symbols(model, name)


def symbols(model: Network, name: str) -> list[Symbol]:
    path, _, kind = name.rpartition(".")
    last = path.rpartition(".")[2]
    module = model.get_submodule(path)
    letter, rows = "W" if kind == "weight" else "b", len(getattr(module, kind))
    if isinstance(module, StackedLinear):
        ends = list(accumulate(module.sizes))
        parts = zip(STACKED[last], ends, module.sizes, strict=True)
        return [Symbol(f"{letter}_{part}", end - size, end) for part, end, size in parts]
    if last in SINGLE:
        letter += SINGLE[last] if SINGLE[last] in "₁₂" else f"_{SINGLE[last]}"
    elif last in TABLES:
        letter = TABLES[last]
    elif isinstance(module, (nn.LayerNorm, nn.RMSNorm)):
        letter = "γ" if kind == "weight" else "β"
    return [Symbol(letter, 0, rows)]  # W and b: the output bias, the head for masked tokens, the pooler
