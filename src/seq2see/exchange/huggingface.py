"""Hugging Face models: a directory with config.json and safetensors, or a model object.

    model = from_huggingface("opus-mt-en-de/")        # the network alone; seq2see.load() also loads the tokenizer
    model = from_huggingface(hf_model)                # or a model object

transformers itself is not needed. A key of the configuration that is neither used nor known to be harmless is an error, and
so is a tensor left over.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from seq2see.errors import UserError
from seq2see.exchange.families import FAMILIES
from seq2see.exchange.files import ModelFolder, ShardedWeights, load_json, read_config, read_json, read_text
from seq2see.exchange.jinja_template import FILE, JinjaTemplate
from seq2see.exchange.tables import ForeignConfig, ForeignWeights
from seq2see.exchange.tokenizer_files import load_foreign_tokenizers
from seq2see.model.pooling import Pooling, PoolingKind
from seq2see.model.transformer import Transformer
from seq2see.storage.chat import ChatTemplate, ConversationTemplate
from seq2see.storage.foreign_model import ForeignModel, Reader


def from_huggingface(source: nn.Module | Path | str) -> Transformer:
    """Returns the same model as a seq2see `Transformer`, in evaluation mode and in the dtype of its weights."""
    if isinstance(source, nn.Module):
        config: dict[str, Any] = source.config.to_dict()  # type: ignore[operator, union-attr]
        weights: Mapping[str, Tensor] = source.state_dict()
    else:
        config, weights = read_config(Path(source)), ShardedWeights.open(Path(source))
    model = _open_weights(config, weights)
    network = Transformer.on_meta_device(model.config)
    return network.with_weights(dict(model.tensors(network, None))).eval()


def _open_weights(config: Mapping[str, Any], weights: Mapping[str, Tensor]) -> ForeignWeights:
    model_type = str(config.get("model_type"))
    if model_type not in FAMILIES:
        raise UserError(f'model_type = "{model_type}" is not supported; supported: {", ".join(FAMILIES)}')
    return ForeignWeights.open(FAMILIES[model_type], ForeignConfig(config), weights)


def open_huggingface(path: Path) -> ForeignModel:
    """Reads everything except the weights."""
    config = read_config(path)
    try:
        weights = _open_weights(config, ShardedWeights.open(path))
    except UserError as error:
        if str(path) in str(error):
            raise
        raise UserError(f"{path}: {error}") from error
    folder = ModelFolder(path, config, weights.config)
    facts = {"architecture": ", ".join(map(str, config.get("architectures") or [])) or "not named"}
    scaling = (config.get("rope_scaling") or config.get("rope_parameters") or {}).get("rope_type", "")
    if scaling in ("dynamic", "longrope"):
        facts["not supported"] = f"{scaling} rotary positions beyond {weights.config.max_positions:,} tokens"
    return ForeignModel(
        weights.family.name,
        weights.config,
        weights,
        load_foreign_tokenizers(folder),
        _chat_template(folder),
        facts,
        read_pooling(path) if weights.config.shape == "encoder" else None,
    )


READER = Reader(lambda path: (path / "config.json").exists(), open_huggingface)


def _chat_template(folder: ModelFolder) -> ConversationTemplate:
    """The template has a file of its own or is an entry of tokenizer_config.json, which may name several."""
    path, source = folder.path / FILE, folder.tokenizer_config.get("chat_template")
    if path.exists():
        source = read_text(path)
    elif isinstance(source, list):
        named = {entry.get("name"): entry.get("template") for entry in source if isinstance(entry, dict)}
        source = named.get("default") or next(iter(named.values()), "")
    if not source or not isinstance(source, str):
        return ChatTemplate()
    return JinjaTemplate(source, folder.special_token("bos_token") or "", folder.special_token("eos_token") or "")


_POOLING: dict[str, PoolingKind] = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "first",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_lasttoken": "last",
}


def read_pooling(folder: Path) -> Pooling | None:
    """Returns how an encoder makes one vector of a text, as the files of sentence-transformers beside it say, or None."""
    path = folder / "modules.json"
    modules = load_json(path) if path.exists() else []
    if not isinstance(modules, list) or not all(isinstance(module, dict) for module in modules):
        raise UserError(f"{path} does not contain a list of modules")
    kinds = [str(module.get("type", "")).rpartition(".")[2] for module in modules]
    unknown = [kind for kind in kinds if kind not in ("Transformer", "Pooling", "Normalize")]
    if unknown:
        raise UserError(f"{path}: the module {unknown[0]} is not supported")
    if "Pooling" not in kinds:
        return None
    path = folder / Path(str(modules[kinds.index("Pooling")].get("path", "1_Pooling"))).name / "config.json"
    harmless = ("word_embedding_dimension", "include_prompt", "embedding_dimension")
    modes = [name for name, value in read_json(path).items() if name not in harmless and value]
    if len(modes) != 1 or modes[0] not in _POOLING:
        raise UserError(
            f"{path}: {', '.join(modes) or 'no pooling mode'} is not supported; supported: {', '.join(_POOLING)}"
        )
    length = folder / "sentence_bert_config.json"
    limit = read_json(length).get("max_seq_length") if length.exists() else None
    return Pooling(_POOLING[modes[0]], "Normalize" in kinds, limit if isinstance(limit, int) and limit > 0 else 0)
