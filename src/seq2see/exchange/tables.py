"""What describes a family of models: names of options, names of tensors, and the form in which they are stored.

A family is read in both directions: from theirs to ours when a model is loaded, from ours to theirs when one is written.
Hugging Face's are in `families.py`, llama.cpp's in `gguf.py`, and CTranslate2's one in `ctranslate2.py`.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from seq2see.config import Activation, ModelConfig, build
from seq2see.errors import UserError
from seq2see.model.network import Network, model_class
from seq2see.model.positions import sinusoids

ACTIVATIONS: dict[str, Activation] = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu-tanh",
    "gelu_pytorch_tanh": "gelu-tanh",
    "silu": "silu",
    "swish": "silu",
}


class ForeignConfig:
    """The configuration of another library's model, or a section of one; tracks which keys were used."""

    def __init__(self, fields: Mapping[str, Any], section: str = "", file: str = "config.json") -> None:
        self.fields, self.section, self.file = fields, section, file
        self.tensors: Collection[str] = ()  # the names of the model's tensors
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

    def require_all_known(self, harmless: Collection[str] = ()) -> None:
        """Rejects a key that was not used, unless it is harmless, empty or private."""
        for name, value in self.fields.items():
            if name in self.used or name in harmless or name.startswith("_") or value in (None, {}, []):
                continue
            raise UserError(
                f"{self.file}: {self.section}{name} = {str(value)[:80]} is not supported; if it does not change "
                f"what the model computes, delete it from {self.file}"
            )

    def require_equal(self, names: Sequence[str]) -> Any:
        if len({self[name] for name in names}) > 1:
            values = " and ".join(f"{name} = {self[name]}" for name in names)
            raise UserError(f"{self.file}: {values} must be equal")
        return self[names[0]]

    def activation(self, name: str, default: str) -> Activation:
        value = self.get(name, default)
        if value not in ACTIVATIONS:
            raise UserError(f'{self.file}: {name} = "{value}" is not supported; supported: {", ".join(ACTIVATIONS)}')
        return ACTIVATIONS[value]


Options = dict[str, Any]
Keys = dict[str, Any]  # of their configuration


@dataclass(frozen=True)
class Rule:
    """Options that depend on several keys, or on the tensors' names.

    `write` returns the keys that `read` turns into these options. It need not check that they can: what is written is read
    back and compared.
    """

    read: Callable[[ForeignConfig], Options]
    write: Callable[[ModelConfig], Keys]


@dataclass(frozen=True)
class Form:
    """How a tensor is stored; `read` and `write` are inverses."""

    read: Callable[[Tensor, ModelConfig], Tensor]
    write: Callable[[Tensor, ModelConfig], Tensor]


def _transpose(tensor: Tensor, config: ModelConfig) -> Tensor:
    return tensor.mT if tensor.dim() == 2 else tensor


def _add_one(tensor: Tensor, config: ModelConfig) -> Tensor:
    return tensor + 1 if tensor.dtype in (torch.float32, torch.float64) else tensor.float() + 1


def _deinterleave(tensor: Tensor, config: ModelConfig) -> Tensor:
    return tensor.unflatten(0, (-1, config.actual_head_width // 2, 2)).transpose(1, 2).flatten(0, 2)


def _interleave(tensor: Tensor, config: ModelConfig) -> Tensor:
    return tensor.unflatten(0, (-1, 2, config.actual_head_width // 2)).transpose(1, 2).flatten(0, 2)


PLAIN = Form(lambda tensor, config: tensor, lambda tensor, config: tensor)
FORMS = {
    "plain": PLAIN,
    # GPT-2's Conv1D stores the transpose of a linear map.
    "transposed": Form(_transpose, _transpose),
    # Gemma's norms store γ − 1.
    "minus-one": Form(_add_one, lambda tensor, config: tensor - 1),
    # A vector as a matrix of one row.
    "matrix": Form(lambda tensor, config: tensor.flatten(), lambda tensor, config: tensor[None]),
    # fairseq counts positions from padding + 1, so the first two rows are unused.
    "from-row-2": Form(
        lambda tensor, config: tensor[2:],
        lambda tensor, config: torch.cat([tensor.new_zeros(2, tensor.shape[1]), tensor]),
    ),
    # llama.cpp stores the rows of each head of queries and keys with both halves interleaved: 0, d/2, 1, d/2 + 1, …
    "interleaved": Form(_deinterleave, _interleave),
}


@dataclass(frozen=True)
class Stored:
    """Where a tensor of ours is found: in one tensor of theirs, or in several that ours stacks, each in a form.

    Of a name such as `shared|lm_head`, the first that exists is read; the others, if present, are copies of it.
    """

    names: tuple[str, ...]
    forms: tuple[Form, ...]
    optional: bool  # zeros, where one is absent


TensorTable = Mapping[str, Stored]


def tensor_table(text: str) -> dict[str, Stored]:
    """Parses a table of tensors: our name, their name and, unless it is plain, the form.

        embedding                                    shared|lm_head        the first that exists
        <stack>.blocks.*.attention_norm.norm         <stack>.layers.*.norm minus-one
        <stack>.blocks.*.attention.queries_keys_values  <stack>.layers.*.(q,k,v)_proj

    `<stack>` stands for encoder and decoder, `*` for the number of a layer, `(q,k,v)` for three tensors that ours stacks, and
    a name that ends in `?` may be absent. A name without `.weight` or `.bias` stands for both.
    """
    table = {}
    for line in filter(str.strip, text.splitlines()):
        for stack in ("encoder", "decoder") if "<stack>" in line else ("",):
            ours, theirs, *forms = line.replace("<stack>", stack).split()
            before, *stacked = re.split(r"[()]", theirs.removesuffix("?"))
            names = [f"{before}{part}{stacked[1]}" for part in stacked[0].split(",")] if stacked else [before]
            form = forms[0].split(",") if forms else ["plain"]
            kinds = tuple(FORMS[kind] for kind in (form if len(form) > 1 else form * len(names)))
            table[ours] = Stored(tuple(names), kinds, theirs.endswith("?"))
    return table


def find_stored(table: TensorTable, ours: str) -> Stored:
    """Returns where a tensor of ours, such as `decoder.blocks.3.feed_forward.up.weight`, is stored."""
    numbers = re.findall(r"\.(\d+)\.", ours)
    pattern = re.sub(r"\.\d+\.", ".*.", ours)
    module, _, last = pattern.rpartition(".")
    found, suffix = (table[pattern], "") if pattern in table else (table[module], f".{last}")
    layer = numbers[0] if numbers else "*"
    names = tuple("|".join(f"{alias.replace('*', layer)}{suffix}" for alias in name.split("|")) for name in found.names)
    return Stored(names, found.forms, found.optional)


# Tensors of a model's head, which never have the base model's prefix.
HEADS = ("lm_head", "final_logits_bias", "cls.", "vocab_")


@dataclass(frozen=True, kw_only=True)
class Family:
    """One family of models."""

    name: str
    architecture: str = ""  # their class, with `*` for the head: ForMaskedLM or Model in an encoder
    prefix: str = ""  # models with a head store the base model's tensors under this prefix
    # Their key → our option; with a default, where a file may leave it out. Keys such as `a|b` must have equal values.
    keys: Mapping[str, str | tuple[str, Any]]
    fixed: Mapping[str, Any]  # our options that all models of the family share
    tensors: TensorTable
    variant: Callable[[ModelConfig], str] = lambda config: ""  # the lines of the table that depend on the options
    rules: tuple[Rule, ...] = ()
    supported: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)  # their key → the values that we support
    ignored: tuple[str, ...] = ()  # ends of tensor names that are no part of the model: buffers, other heads
    harmless: str = ""  # keys that do not change what the model computes, besides those in HARMLESS
    sinusoids: tuple[str, ...] = ()  # tables that their files hold, and ours do not

    def model_config(self, config: ForeignConfig) -> ModelConfig:
        """Converts the configuration; every key is used, harmless, or rejected by name."""
        options = dict(self.fixed)
        for key, values in self.supported.items():
            config.require(key, *values)
        for key, meaning in self.keys.items():
            option, *default = (meaning,) if isinstance(meaning, str) else meaning
            if option == "activation":
                options[option] = config.activation(key, default[0])
            else:
                options[option] = config.get(key, default[0]) if default else config.require_equal(key.split("|"))
        for rule in self.rules:
            options |= rule.read(config)
        config.require_all_known({*self.harmless.split(), *HARMLESS.split()})
        # Through the same checks as a file of ours.
        listed = {name: list(value) if isinstance(value, tuple) else value for name, value in options.items()}
        return build(ModelConfig, listed, prefix="model.")

    def foreign_config(self, config: ModelConfig) -> Keys:
        """Converts our configuration to theirs; `model_config` of the result says how much of it the family can hold."""
        keys: Keys = {}
        for key, meaning in self.keys.items():
            option, *default = (meaning,) if isinstance(meaning, str) else meaning
            value = getattr(config, f"actual_{option}", getattr(config, option))
            if option == "activation":
                value = next((name for name, ours in ACTIVATIONS.items() if ours == value), default[0])
            keys |= dict.fromkeys(key.split("|"), value)
        for rule in self.rules:
            keys |= rule.write(config)
        head = "ForMaskedLM" if config.predicts_tokens else "Model"
        return {**keys, "architectures": [self.architecture.replace("*", head)]} if self.architecture else keys

    def held(self, config: ModelConfig, keys: Keys) -> ModelConfig:
        """Returns what the family holds of a configuration: writes it beside other keys, and reads it back."""
        small = replace(config, encoder_layers=1, decoder_layers=1, local_layers=(), max_positions=2)
        table, names = self.table(config), []
        for ours in model_class(small).weight_names(small):  # of one layer: enough to tell which heads a model has
            try:
                names.append(find_stored(table, ours).names[0].split("|")[0])
            except KeyError:  # the family has no such tensor, which the configuration will tell
                continue
        written = ForeignConfig({**self.foreign_config(config), **keys})
        written.tensors = names
        return self.model_config(written)

    def table(self, config: ModelConfig) -> TensorTable:
        return {**self.tensors, **tensor_table(self.variant(config))}

    def foreign_tensors(
        self, config: ModelConfig, weights: Iterable[tuple[str, Tensor]]
    ) -> Iterator[tuple[str, Tensor]]:
        """Yields our tensors under the first of their names and in their form; those that we stack are split."""
        table = self.table(config)
        heads, groups = (n * config.actual_head_width for n in (config.heads, config.actual_key_value_heads))
        for ours, tensor in weights:
            found = find_stored(table, ours)
            rows = {1: [len(tensor)], 2: [groups, groups], 3: [heads, groups, groups]}[len(found.names)]
            for aliases, form, part in zip(found.names, found.forms, tensor.detach().split(rows), strict=True):
                name = aliases.split("|")[0]
                in_head = name.startswith(HEADS) or not config.predicts_tokens
                yield name if in_head else self.prefix + name, form.write(part, config).contiguous()
        for name in self.sinusoids:
            yield self.prefix + name, sinusoids(config.max_positions, config.width, config.positions)


@dataclass(frozen=True)
class ForeignWeights:
    """The configuration of a model, converted, and its tensors, to be converted one at a time."""

    family: Family
    config: ModelConfig
    weights: Mapping[str, Tensor]

    @classmethod
    def open(cls, family: Family, config: ForeignConfig, weights: Mapping[str, Tensor]) -> "ForeignWeights":
        config.tensors = _names(weights, family.prefix)
        return cls(family, family.model_config(config), weights)

    def tensors(
        self, network: Network, dtype: torch.dtype | None, column_major: Collection[str] = (), device: str = "cpu"
    ) -> Iterator[tuple[str, Tensor]]:
        """Yields the tensors of our model, largest first, each copied into aligned memory of its own.

        The last bit of some products depends on the alignment, and memory holds only one of theirs at a time. Without a
        dtype, each keeps its own. A tensor of theirs that is left over is an error.
        """
        table, names = self.family.table(self.config), _names(self.weights, self.family.prefix)
        shapes, used = network.state_dict(), set[str]()
        for name in sorted(shapes, key=lambda name: -shapes[name].numel()):
            source = find_stored(table, name)
            used.update(alias for aliases in source.names for alias in aliases.split("|"))
            target: Tensor | None = None
            row, shape = 0, shapes[name].shape
            for theirs, part in self._parts(source, shape, names):
                if target is None:
                    sizes = shape[::-1] if name in column_major and len(shape) == 2 else shape
                    target = torch.empty(sizes, dtype=dtype or part.dtype, device=device)
                    target = target if sizes == shape else target.T
                rows = target[row : row + len(part)]
                if part.shape[1:] != shape[1:] or len(rows) != len(part):
                    raise _misfit(f"tensor {theirs} is {_size(part.shape)}, but {name} of {_size(shape)} is expected")
                rows.copy_(part)
                row += len(part)
            assert target is not None
            if row != len(target):
                raise _misfit(f"{name} has {len(target):,} rows, {theirs} gives {row:,}")
            yield name, target
        ignored = (*self.family.ignored, "\0")
        if unused := sorted(name for name in names.keys() - used if not name.endswith(ignored)):
            raise UserError(
                f"tensor {unused[0]} is not supported ({len(unused)} in all): load the base model or the language model"
            )

    def _parts(self, source: Stored, shape: torch.Size, names: Mapping[str, str]) -> Iterator[tuple[str, Tensor]]:
        """Yields what a tensor of ours consists of: in several parts, if theirs is large and can be read in parts."""
        for aliases, form in zip(source.names, source.forms, strict=True):
            found = next((name for name in aliases.split("|") if name in names), "")
            blocks = getattr(self.weights, "blocks", None)
            if found and blocks is not None and form is PLAIN:
                yield from ((found, block) for block in blocks(names[found]))
            elif found:
                yield found, form.read(self.weights[names[found]].detach(), self.config)
            elif source.optional:
                dtype = self.weights[next(iter(names.values()))].dtype
                yield found, torch.zeros(shape[0] // len(source.names), *shape[1:], dtype=dtype)
            else:
                raise UserError(f"the weights have no tensor {aliases.split('|')[0]}: is the checkpoint complete?")


def _names(weights: Iterable[str], prefix: str) -> dict[str, str]:
    """Returns the names of tensors in a file by those in a family's table; older files say gamma and beta."""
    newer = {name: re.sub(r"\.gamma$", ".weight", re.sub(r"\.beta$", ".bias", name)) for name in weights}
    return {newer[name].removeprefix(prefix): name for name in weights}


def _misfit(reason: str) -> UserError:
    return UserError(f"the weights do not fit the configuration: {reason}")


def _size(shape: Iterable[int]) -> str:
    return " × ".join(f"{size:,}" for size in shape)


# Keys of any family about bookkeeping, special tokens, labels, initialisation, decoding, or how (not what) to compute.
HARMLESS = """
    architectures auto_map dtype finetuning_task model_type tokenizer_class torch_dtype transformers_version use_bfloat16
    transformers.js_config language gradient_checkpointing model_max_length attn_implementation
    bos_token_id cls_token_id decoder_start_token_id eos_token_id mask_token_id pad_token_id sep_token_id unk_token_id
    id2label label2id num_labels prefix problem_type task_specific_params
    init_std initializer_factor initializer_range
    bad_words_ids begin_suppress_tokens diversity_penalty do_sample early_stopping encoder_no_repeat_ngram_size
    exponential_decay_length_penalty forced_bos_token_id forced_eos_token_id length_penalty max_length max_new_tokens
    min_length no_repeat_ngram_size num_beam_groups num_beams num_return_sequences output_scores remove_invalid_values
    repetition_penalty return_dict_in_generate suppress_tokens temperature top_k top_p typical_p
    add_cross_attention chunk_size_feed_forward is_decoder is_encoder_decoder output_attentions output_hidden_states
    output_past return_dict tf_legacy_loss tie_encoder_decoder torchscript use_cache
"""
