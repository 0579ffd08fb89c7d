"""Reads the files that training runs write, to display and compare the runs."""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seq2see.config import Config
from seq2see.errors import UserError


@dataclass(frozen=True)
class RunLog:
    """A run's configuration, logged steps and validations and, once it has finished, its scores."""

    path: Path
    config: Config
    steps: list[dict[str, Any]]
    validations: list[dict[str, Any]]
    scores: dict[str, Any]

    @classmethod
    def load(cls, path: Path) -> "RunLog":
        if not (path / "config.toml").is_file():
            raise UserError(f"{path} is not a run directory: it has no config.toml")
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
        return {}  # an incomplete last line: the run was killed, or is writing it now
    return row if isinstance(row, dict) else {}


def downsample(rows: list[dict[str, Any]], max_rows: int = 1000) -> list[dict[str, Any]]:
    """Selects up to `max_rows` evenly spaced rows with a finite loss, including the first and the last."""
    rows = [row for row in rows if isinstance(row.get("loss"), int | float) and math.isfinite(row["loss"])]
    if len(rows) <= max_rows:
        return rows
    return [rows[round(i * (len(rows) - 1) / (max_rows - 1))] for i in range(max_rows)]


def config_differences(runs: list[RunLog]) -> dict[str, list[Any]]:
    """Returns the settings in which the runs differ, each with its value in every run."""
    different: dict[str, list[Any]] = {}
    for section in ("text", "model", "train"):
        for name in vars(getattr(runs[0].config, section)):
            values = [getattr(getattr(run.config, section), name) for run in runs]
            if any(value != values[0] for value in values):
                different[f"{section}.{name}"] = values
    return different


BLOCKS = " ▁▂▃▄▅▆▇█"


def sparkline(values: list[float], width: int = 32) -> str:
    """Draws a curve in one line of text."""
    if not values:
        return ""
    count = min(width, len(values))
    samples = [values[round(i * (len(values) - 1) / max(count - 1, 1))] for i in range(count)]
    low, high = min(samples), max(samples)
    return "".join(BLOCKS[1 + round((value - low) / ((high - low) or 1) * 7)] for value in samples)
