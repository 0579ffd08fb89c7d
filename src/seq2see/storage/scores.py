"""scores.json: what a model scored when its training ended."""

import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seq2see.errors import Notice
from seq2see.storage.manifest import file_problem


def load_scores(folder: Path) -> dict[str, Any]:
    """Returns the content of scores.json; a model does not need it, so a damaged one only causes a warning."""
    path = folder / "scores.json"
    if not path.is_file():
        return {}
    try:
        scores = json.loads(path.read_text(encoding="utf-8"))
        reason = file_problem(folder, path.name) if isinstance(scores, dict) else "it is not a JSON object"
        if not reason:
            return scores
    except (OSError, ValueError, RecursionError) as error:
        reason = str(error)
    warnings.warn(f"{path} is damaged and ignored: {reason}", Notice, stacklevel=2)
    return {}


def score_texts(scores: Mapping[str, Any]) -> list[str]:
    """Returns the validation scores, each with its name."""
    metrics = {
        "loss": "loss {:.3f}",
        "exact_match": "exact match {:.1%}",
        "bleu": "BLEU {:.1f}",
        "chrf": "chrF++ {:.1f}",
    }
    values = {format: score_number(scores, "validation", key) for key, format in metrics.items()}
    return [format.format(value) for format, value in values.items() if value is not None]


def score_number(scores: Mapping[str, Any], section: str, key: str) -> float | None:
    """Returns an entry of scores.json if it is there and a finite number."""
    table = scores.get(section)
    value = table.get(key) if isinstance(table, Mapping) else None
    return value if isinstance(value, int | float) and abs(value) < 1e300 else None
