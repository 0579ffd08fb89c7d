"""scores.json: what a model scored when its training ended."""

import json
import warnings
from pathlib import Path
from typing import Any

from seq2see.errors import Notice


def load_scores(folder: Path) -> dict[str, Any]:
    """Returns the content of scores.json; a model does not need it, so a damaged one only causes a warning."""
    path = folder / "scores.json"
    if not path.is_file():
        return {}
    try:
        scores = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(scores, dict):
            return scores
        reason = "it is not a JSON object"
    except (OSError, ValueError, RecursionError) as error:
        reason = str(error)
    warnings.warn(f"{path} is damaged and ignored: {reason}", Notice, stacklevel=2)
    return {}
