"""How a published encoder makes one vector of a text: the files of sentence-transformers beside the model."""

import json
from pathlib import Path
from typing import Any

from seq2see.errors import UserError
from seq2see.exchange.huggingface import MAX_JSON_BYTES, read_json
from seq2see.model.pooling import Pooling, PoolingKind
from seq2see.tensors.files import require_regular_file

_MODES: dict[str, PoolingKind] = {
    "pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "first", "pooling_mode_max_tokens": "max",
    "pooling_mode_lasttoken": "last",
}  # fmt: skip
_HARMLESS = ("word_embedding_dimension", "include_prompt", "embedding_dimension")


def read_pooling(folder: Path) -> Pooling | None:
    """Returns the pooling that the directory describes, or None if it describes none."""
    modules = _modules(folder / "modules.json")
    kinds = [str(module.get("type", "")).rpartition(".")[2] for module in modules]
    unknown = [kind for kind in kinds if kind not in ("Transformer", "Pooling", "Normalize")]
    if unknown:
        raise UserError(f"{folder / 'modules.json'}: the module {unknown[0]} is not supported")
    if "Pooling" not in kinds:
        return None
    path = folder / Path(str(modules[kinds.index("Pooling")].get("path", "1_Pooling"))).name / "config.json"
    settings = read_json(path)
    modes = [name for name, value in settings.items() if name not in _HARMLESS and value]
    if len(modes) != 1 or modes[0] not in _MODES:
        raise UserError(
            f"{path}: {', '.join(modes) or 'no pooling mode'} is not supported; supported: {', '.join(_MODES)}"
        )
    length = folder / "sentence_bert_config.json"
    limit = read_json(length).get("max_seq_length") if length.exists() else None
    return Pooling(_MODES[modes[0]], "Normalize" in kinds, limit if isinstance(limit, int) and limit > 0 else 0)


def _modules(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    try:
        text = require_regular_file(path).read_text(encoding="utf-8")
        table = json.loads(text) if len(text) < MAX_JSON_BYTES else None
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"cannot read {path}: {error}") from error
    if not isinstance(table, list) or not all(isinstance(module, dict) for module in table):
        raise UserError(f"{path} does not contain a list of modules")
    return table
