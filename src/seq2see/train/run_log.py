"""What runs have written of themselves, to be read and compared."""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seq2see.config import Config
from seq2see.errors import UserError


@dataclass(frozen=True)
class History:
    """One run: its configuration, its logged steps and validations, and, once it is finished, its scores."""

    path: Path
    config: Config
    steps: list[dict[str, Any]]
    validations: list[dict[str, Any]]
    scores: dict[str, Any]

    @classmethod
    def of(cls, path: Path) -> "History":
        if not (path / "config.toml").is_file():
            raise UserError(f"{path} is no run: it has no config.toml")
        log, scores = path / "log.jsonl", path / "scores.json"
        rows = [_row(line) for line in log.read_text(encoding="utf-8").splitlines()] if log.is_file() else []
        return cls(
            path, Config.load(path / "config.toml"),
            [row for row in rows if row.get("kind") == "step"],
            [row for row in rows if row.get("kind") == "validation"],
            json.loads(scores.read_text(encoding="utf-8")) if scores.is_file() else {},
        )  # fmt: skip


def _row(line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except ValueError:
        return {}  # the last line of a run that was killed, or is writing it right now
    return row if isinstance(row, dict) else {}


def thinned(rows: list[dict[str, Any]], most: int = 1000) -> list[dict[str, Any]]:
    """The rows that have a loss, at equal distances, the first and the last among them, where there are more than `most`."""
    rows = [row for row in rows if isinstance(row.get("loss"), int | float) and math.isfinite(row["loss"])]
    if len(rows) <= most:
        return rows
    return [rows[round(i * (len(rows) - 1) / (most - 1))] for i in range(most)]


def differences(runs: list[History]) -> dict[str, list[Any]]:
    """The settings in which runs differ, each with its value in every run."""
    found: dict[str, list[Any]] = {}
    for section in ("text", "model", "train"):
        for name in vars(getattr(runs[0].config, section)):
            values = [getattr(getattr(run.config, section), name) for run in runs]
            if any(value != values[0] for value in values):
                found[f"{section}.{name}"] = values
    return found


BLOCKS = " ▁▂▃▄▅▆▇█"


def sparkline(values: list[float], width: int = 32) -> str:
    """A curve in one line of text."""
    if not values:
        return ""
    picked = [values[round(i * (len(values) - 1) / max(width - 1, 1))] for i in range(min(width, len(values)))]
    low, high = min(picked), max(picked)
    return "".join(BLOCKS[1 + round((value - low) / ((high - low) or 1) * 7)] for value in picked)
