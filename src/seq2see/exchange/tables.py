"""The tables that describe a family of models: names of options, names of tensors, and the form in which they are stored.

A table is read in both directions: from theirs to ours when a model is loaded, from ours to theirs when one is written. Our
tensors are looked up by name, with `*` for the number of a layer; a name without `.weight` or `.bias` stands for both.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from seq2see.config import Activation, ModelConfig, build
from seq2see.errors import UserError
from seq2see.model.network import Network
from seq2see.model.positions import sinusoids

ACTIVATIONS: dict[str, Activation] = {
    "relu": "relu", "gelu": "gelu", "gelu_new": "gelu-tanh", "gelu_pytorch_tanh": "gelu-tanh", "silu": "silu", "swish": "silu",
}  # fmt: skip


class ForeignConfig:
    """The configuration of another library's model, or a section of one; tracks which keys were used."""

    def __init__(self, fields: Mapping[str, Any], section: str = "", file: str = "config.json") -> None:
        self.fields, self.section, self.file = fields, section, file
        self.used: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        if self.fields.get(name) is None:
            raise UserError(f"{self.file} has no {self.section}{name}")
        self.used.add(name)
        return self.fields[name]

    def get(self, name: str, default: Any) -> Any:
        self.used.add(name)
        value = self.fields.get(name)
        return default if value is None else value

    def require(self, name: str, *supported: Any) -> Any:
        """Rejects any other value; a missing field is taken as the first supported one."""
        value = self.get(name, supported[0])
        if value not in supported:
            only = " or ".join(map(repr, supported))
            raise UserError(f"{self.file}: {self.section}{name} = {value!r} is not supported, only {only}")
        return value

    def unknown(self, harmless: Collection[str] = ()) -> list[str]:
        """Returns the keys that were not used, except harmless and empty ones, and private ones."""
        return [
            name
            for name, value in self.fields.items()
            if name not in self.used
            and name not in harmless
            and not name.startswith("_")
            and value not in (None, {}, [])
        ]

    def require_all_known(self, harmless: Collection[str] = ()) -> None:
        for name in self.unknown(harmless):
            raise UserError(
                f"{self.file}: {self.section}{name} = {str(self.fields[name])[:80]} is not supported; if it does not change "
                f"what the model computes, delete it from {self.file}"
            )

    def require_equal(self, first: str, second: str) -> Any:
        if self[first] != self[second]:
            raise UserError(f"{self.file}: {first} = {self[first]} and {second} = {self[second]} must be equal")
        return self[first]

    def activation(self, name: str, default: str) -> Activation:
        value = self.get(name, default)
        if value not in ACTIVATIONS:
            raise UserError(f'{self.file}: {name} = "{value}" is not supported; supported: {", ".join(ACTIVATIONS)}')
        return ACTIVATIONS[value]


class Form(Protocol):
    """How a tensor is stored; `read` and `write` are inverses."""

    def read(self, tensor: Tensor) -> Tensor: ...
    def write(self, tensor: Tensor) -> Tensor: ...


class Plain:
    """As in our model."""

    def read(self, tensor: Tensor) -> Tensor:
        return tensor

    write = read


class Transposed:
    """GPT-2's Conv1D stores the transpose of a linear map."""

    def read(self, tensor: Tensor) -> Tensor:
        return tensor.mT if tensor.dim() == 2 else tensor

    write = read


class OnePlus:
    """Gemma's norms store γ − 1."""

    def read(self, tensor: Tensor) -> Tensor:
        return tensor + 1 if tensor.dtype in (torch.float32, torch.float64) else tensor.float() + 1

    def write(self, tensor: Tensor) -> Tensor:
        return tensor - 1


class Flat:
    """A vector stored as a matrix of one row."""

    def read(self, tensor: Tensor) -> Tensor:
        return tensor.flatten()

    def write(self, tensor: Tensor) -> Tensor:
        return tensor[None]


@dataclass(frozen=True)
class Offset:
    """A table of positions whose first rows are unused: fairseq counts positions from padding + 1."""

    rows: int

    def read(self, tensor: Tensor) -> Tensor:
        return tensor[self.rows :]

    def write(self, tensor: Tensor) -> Tensor:
        return torch.cat([tensor.new_zeros(self.rows, tensor.shape[1]), tensor])


@dataclass(frozen=True)
class InterleavedHeads:
    """llama.cpp stores the rows of each head of queries and keys with both halves interleaved: 0, d/2, 1, d/2 + 1, …"""

    heads: int

    def read(self, tensor: Tensor) -> Tensor:
        pairs = tensor.unflatten(0, (self.heads, -1, 2))
        return pairs.transpose(1, 2).flatten(0, 2)

    def write(self, tensor: Tensor) -> Tensor:
        halves = tensor.unflatten(0, (self.heads, 2, -1))
        return halves.transpose(1, 2).flatten(0, 2)


# Tensors of a model's head, which never have the base model's prefix.
HEADS = ("lm_head", "final_logits_bias", "cls.", "vocab_")
PLAIN, TRANSPOSED, ONE_PLUS, FLAT = Plain(), Transposed(), OnePlus(), Flat()


@dataclass(frozen=True)
class Stored:
    """Where a tensor of ours is found: in one tensor of theirs, or in several that ours stacks.

    Of a name such as `shared|lm_head`, the first that exists is read; the others, if present, are copies of it.
    """

    names: tuple[str, ...]
    form: Form | tuple[Form, ...] = PLAIN  # of all names, or of each
    optional: bool = False  # zeros, where one is absent

    def forms(self) -> tuple[Form, ...]:
        return self.form if isinstance(self.form, tuple) else (self.form,) * len(self.names)


def stored(*names: str, form: Form | tuple[Form, ...] = PLAIN, optional: bool = False) -> Stored:
    return Stored(names, form, optional)


TensorTable = Mapping[str, Stored]
Options = dict[str, Any]
Keys = dict[str, Any]  # of their configuration


@dataclass(frozen=True)
class Rule:
    """Options that depend on several keys, or on the tensors' names.

    `write` returns the keys that `read` turns into these options. It need not check that they can: what is written is read
    back and compared.
    """

    read: Callable[[ForeignConfig, Collection[str]], Options]
    write: Callable[[ModelConfig], Keys]


@dataclass(frozen=True)
class Family:
    """One family of models, as tables."""

    name: str
    architecture: str  # their class, with `*` for the head: ForMaskedLM or Model in an encoder
    prefix: str  # models with a head store the base model's tensors under this prefix
    options: Mapping[str, str]  # their key → our option, the same value
    fixed: Mapping[str, Any]  # our options that all models of the family share
    tensors: Callable[[ModelConfig], TensorTable]
    rules: tuple[Rule, ...] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict)  # of their keys, where a file may leave them out
    supported: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)  # their key → the values that we support
    ignored: tuple[str, ...] = ()  # ends of tensor names that are no part of the model: buffers, other heads
    harmless: frozenset[str] = frozenset()  # keys that do not change what the model computes, besides those in HARMLESS
    sinusoids: tuple[str, ...] = ()  # tables that their files hold, and ours do not

    def model_config(self, config: ForeignConfig, names: Collection[str]) -> ModelConfig:
        """Converts the configuration; every key is used, harmless, or rejected by name."""
        options = dict(self.fixed)
        for key, values in self.supported.items():
            config.require(key, *values)
        for key, option in self.options.items():
            value = config.get(key, self.defaults[key]) if key in self.defaults else config[key]
            options[option] = value
        for rule in self.rules:
            options |= rule.read(config, names)
        config.require_all_known(self.harmless | HARMLESS)
        return build_config(options)

    def foreign_config(self, config: ModelConfig) -> Keys:
        """Converts our configuration to theirs; `model_config` of the result says how much of it the family can hold."""
        keys: Keys = {key: getattr(config, option) for key, option in self.options.items()}
        for rule in self.rules:
            keys |= rule.write(config)
        head = "ForMaskedLM" if config.predicts_tokens else "Model"
        return {**keys, "architectures": [self.architecture.replace("*", head)]}

    def foreign_tensors(
        self, config: ModelConfig, weights: Iterable[tuple[str, Tensor]]
    ) -> Iterator[tuple[str, Tensor]]:
        """Yields our tensors under their names and in their form."""
        for name, tensor in split_stored(config, self.tensors(config), weights):
            in_head = name.startswith(HEADS) or not config.predicts_tokens
            yield name if in_head else self.prefix + name, tensor
        for name in self.sinusoids:
            yield self.prefix + name, sinusoids(config.max_positions, config.width, config.positions)


def build_config(options: Options) -> ModelConfig:
    """Builds our configuration through the same checks as a file of ours."""
    listed = {name: list(value) if isinstance(value, tuple) else value for name, value in options.items()}
    return build(ModelConfig, listed, prefix="model.")


def find_stored(table: TensorTable, ours: str) -> Stored:
    numbers = re.findall(r"\.(\d+)\.", ours)
    pattern = re.sub(r"\.\d+\.", ".*.", ours)
    module, _, last = pattern.rpartition(".")
    found, suffix = (table[pattern], "") if pattern in table else (table[module], f".{last}")
    layer = numbers[0] if numbers else "*"
    names = tuple("|".join(f"{alias.replace('*', layer)}{suffix}" for alias in name.split("|")) for name in found.names)
    return Stored(names, found.form, found.optional)


def split_stored(
    config: ModelConfig, table: TensorTable, weights: Iterable[tuple[str, Tensor]]
) -> Iterator[tuple[str, Tensor]]:
    """Yields tensors of ours under the first of their names, in their form; those that we stack are split."""
    heads, groups = (n * config.actual_head_width for n in (config.heads, config.actual_key_value_heads))
    for ours, tensor in weights:
        found = find_stored(table, ours)
        rows = {1: [len(tensor)], 2: [groups, groups], 3: [heads, groups, groups]}[len(found.names)]
        for aliases, form, part in zip(found.names, found.forms(), tensor.detach().split(rows), strict=True):
            yield aliases.split("|")[0], form.write(part).contiguous()


class ForeignTensors:
    """Tensors of another library's model by name, read one at a time; tracks which were used."""

    def __init__(self, weights: Mapping[str, Tensor], prefix: str) -> None:
        self.weights = weights
        renamed = {name: name.removesuffix(".gamma") + ".weight" for name in weights if name.endswith(".gamma")}
        renamed |= {name: name.removesuffix(".beta") + ".bias" for name in weights if name.endswith(".beta")}
        self.names = {renamed.get(name, name).removeprefix(prefix): name for name in weights}
        self.used: set[str] = set()

    def find(self, aliases: str) -> str | None:
        """Returns the first of these names that exists; all count as used."""
        names = aliases.split("|")
        self.used.update(names)
        return next((name for name in names if name in self.names), None)

    def read(self, name: str, form: Form) -> Iterator[Tensor]:
        """Yields a tensor in our form: in parts, if it is large and the file can be read in parts."""
        key = self.names[name]
        blocks = getattr(self.weights, "blocks", None)
        if blocks is not None and form is PLAIN:
            yield from blocks(key)
        else:
            yield form.read(self.weights[key].detach())

    def require_all_used(self, ignored: tuple[str, ...]) -> None:
        unused = sorted(name for name in self.names.keys() - self.used if not name.endswith(ignored or ("\0",)))
        if unused:
            raise UserError(
                f"tensor {unused[0]} is not supported ({len(unused)} in all): load the base model or the language model"
            )


def convert(
    network: Network, table: TensorTable, tensors: ForeignTensors, dtype: torch.dtype | None, column_major: Collection[str],
    device: str = "cpu",
) -> Iterator[tuple[str, Tensor]]:  # fmt: skip
    """Yields our tensors, largest first, each copied into aligned memory of its own: the last bit of some products depends
    on the alignment, and memory holds only one of theirs at a time. Without a dtype, each keeps its own.
    """
    shapes = network.state_dict()
    for name in sorted(shapes, key=lambda name: -shapes[name].numel()):
        yield (
            name,
            _gather(name, shapes[name].shape, find_stored(table, name), tensors, dtype, name in column_major, device),
        )


def _gather(
    name: str, shape: torch.Size, source: Stored, tensors: ForeignTensors, dtype: torch.dtype | None, transpose: bool,
    device: str,
) -> Tensor:  # fmt: skip
    target: Tensor | None = None
    row = 0
    for aliases, form in zip(source.names, source.forms(), strict=True):
        found = tensors.find(aliases)
        if found is None:
            if source.optional:
                if target is None:
                    reference = next(iter(tensors.names.values()))
                    target = torch.zeros(shape, dtype=dtype or tensors.weights[reference].dtype, device=device)
                size = shape[0] // len(source.names)
                target[row : row + size] = 0
                row += size
                continue
            raise UserError(f"the weights have no tensor {aliases.split('|')[0]}: is the checkpoint complete?")
        for part in tensors.read(found, form):
            if target is None:
                target = _empty(shape, dtype or part.dtype, transpose and len(shape) == 2, device)
            rows = target[row : row + len(part)]
            if part.shape[1:] != shape[1:] or len(rows) != len(part):
                sizes, expected = (" × ".join(f"{size:,}" for size in of) for of in (part.shape, shape))
                raise UserError(
                    f"the weights do not fit the configuration: tensor {found} is {sizes}, but {name} of {expected} is "
                    "expected"
                )
            rows.copy_(part)
            row += len(part)
    assert target is not None
    if row != len(target):
        raise UserError(
            f"the weights do not fit the configuration: {name} has {len(target):,} rows, {found} gives {row:,}"
        )
    return target


def _empty(shape: torch.Size, dtype: torch.dtype, transpose: bool, device: str) -> Tensor:
    if transpose:
        return torch.empty(shape[::-1], dtype=dtype, device=device).T
    return torch.empty(shape, dtype=dtype, device=device)


# Keys of any family about bookkeeping, special tokens, labels, initialisation, decoding, or how (not what) to compute.
HARMLESS = frozenset({
    "architectures", "auto_map", "dtype", "finetuning_task", "model_type", "tokenizer_class", "torch_dtype",
    "transformers_version", "use_bfloat16", "transformers.js_config", "language", "gradient_checkpointing", "model_max_length",
    "bos_token_id", "cls_token_id", "decoder_start_token_id", "eos_token_id", "mask_token_id", "pad_token_id",
    "sep_token_id", "unk_token_id",
    "id2label", "label2id", "num_labels", "prefix", "problem_type", "task_specific_params",
    "init_std", "initializer_factor", "initializer_range",
    "bad_words_ids", "begin_suppress_tokens", "diversity_penalty", "do_sample", "early_stopping",
    "encoder_no_repeat_ngram_size", "exponential_decay_length_penalty", "forced_bos_token_id", "forced_eos_token_id",
    "length_penalty", "max_length", "max_new_tokens", "min_length", "no_repeat_ngram_size", "num_beam_groups", "num_beams",
    "num_return_sequences", "output_scores", "remove_invalid_values", "repetition_penalty", "return_dict_in_generate",
    "suppress_tokens", "temperature", "top_k", "top_p", "typical_p",
    "add_cross_attention", "chunk_size_feed_forward", "is_decoder", "is_encoder_decoder", "output_attentions",
    "output_hidden_states", "output_past", "return_dict", "tf_legacy_loss", "tie_encoder_decoder", "torchscript", "use_cache",
    "attn_implementation",
})  # fmt: skip
