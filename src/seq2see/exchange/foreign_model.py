"""Opens models of other libraries as they are: a Hugging Face directory, a GGUF file, or a Whisper model of CTranslate2.

Everything except the weights is read here; the weights are converted one tensor at a time when the model is loaded.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seq2see.decode.chat import ChatTemplate
from seq2see.errors import UserError
from seq2see.exchange.huggingface import ForeignWeights, ShardedWeights, read_config
from seq2see.exchange.sentence_embeddings import read_pooling
from seq2see.exchange.tokenizer_files import ModelFolder, load_foreign_tokenizers
from seq2see.storage.chat_template import FILE, JinjaTemplate, find_template
from seq2see.storage.foreign_model import ForeignModel, Reader
from seq2see.tensors.files import require_regular_file


def _recognizes(path: Path) -> bool:
    """Whether a path is a GGUF file or a directory of Hugging Face."""
    return path.suffix == ".gguf" if path.is_file() else (path / "config.json").exists()


def open_foreign(path: Path) -> ForeignModel:
    """Reads everything except the weights."""
    if path.is_file():
        from seq2see.exchange.gguf import open_gguf

        return open_gguf(path)
    config = read_config(path)
    if "model_type" not in config and (path / "model.bin").exists():
        return _open_ctranslate2(path, config)
    try:
        weights = ForeignWeights.open(config, ShardedWeights.open(path))
    except UserError as error:
        raise error if str(path) in str(error) else UserError(f"{path}: {error}") from error
    folder = ModelFolder(path, config, weights.config)
    tokenizers = load_foreign_tokenizers(folder)
    pooling = read_pooling(path) if weights.config.shape == "encoder" else None
    return ForeignModel(
        weights.family.name,
        weights.config,
        weights,
        tokenizers,
        _chat_template(folder),
        _facts(folder, config),
        pooling,
    )


def _open_ctranslate2(path: Path, config: Mapping[str, Any]) -> ForeignModel:
    from seq2see.exchange.ctranslate2 import WEIGHTS, WhisperWeights, whisper_folder

    weights = WhisperWeights.open(path / WEIGHTS)
    tokenizers = load_foreign_tokenizers(whisper_folder(path, config, weights.config))
    return ForeignModel(
        "Whisper", weights.config, weights, tokenizers, ChatTemplate(), {"architecture": "WhisperSpec of CTranslate2"}
    )


def _chat_template(folder: ModelFolder) -> ChatTemplate | JinjaTemplate:
    files = {}
    if (folder.path / FILE).exists():
        try:
            files[FILE] = require_regular_file(folder.path / FILE).read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise UserError(f"cannot read {folder.path / FILE}: {error}") from error
    source = find_template(folder.tokenizer_config, files)
    if not source:
        return ChatTemplate()
    return JinjaTemplate(source, folder.special_token("bos_token") or "", folder.special_token("eos_token") or "")


def _facts(folder: ModelFolder, config: Mapping[str, Any]) -> dict[str, str]:
    model = folder.model
    facts = {"architecture": ", ".join(map(str, config.get("architectures") or [])) or "not named"}
    limits = []
    kind = (config.get("rope_scaling") or config.get("rope_parameters") or {}).get("rope_type", "")
    if kind in ("dynamic", "longrope"):
        limits.append(f"{kind} rotary positions beyond {model.max_positions:,} tokens")
    if limits:
        facts["not supported"] = "; ".join(limits)
    return facts


READER = Reader(_recognizes, open_foreign)
