"""Reads the files that training runs write, to display and compare the runs."""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from seq2see.config import Config
from seq2see.errors import UserError
from seq2see.storage.scores import load_scores
from seq2see.train.run_lock import RunStatus, is_locked

LOG = "log.jsonl"


@dataclass(frozen=True)
class RunLog:
    """A run's configuration, logged steps and validations and, once it has finished, its scores."""

    path: Path
    config: Config
    steps: list[dict[str, Any]]
    validations: list[dict[str, Any]]
    scores: dict[str, Any]
    step: int  # reached so far
    seconds: float
    running: bool

    @property
    def finished(self) -> bool:
        """Whether its model has been written, and it has not been continued since."""
        return bool(self.scores) and not self.running and self.step <= trained_so_far(self.scores)[0]

    @classmethod
    def load(cls, path: Path) -> "RunLog":
        if not (path / "config.toml").is_file():
            raise UserError(f"{path} is not a run directory: it has no config.toml")
        rows, scores, status = parse_log(path / LOG).rows, load_scores(path), RunStatus.load(path)
        steps = [row for row in rows if row["kind"] == "step"]
        logged = (steps[-1]["step"], steps[-1].get("seconds") or 0.0) if steps else (0, 0.0)
        # The log has every 20th step, run.lock the last of a running or killed process, scores.json that of a finished run.
        step, seconds = max(logged, (status.step, status.seconds), trained_so_far(scores))
        validations = [row for row in rows if row["kind"] == "validation"]
        config = Config.load(path / "config.toml")
        return cls(path, config, steps, validations, scores, step, seconds, is_locked(path))


def trained_so_far(scores: dict[str, Any]) -> tuple[int, float]:
    """Returns the steps and seconds in scores.json; 0 if there are none."""
    training = scores.get("training")
    if not isinstance(training, dict) or not all(_is_number(training.get(name)) for name in ("steps", "seconds")):
        return 0, 0.0
    return training["steps"], training["seconds"]


class ParsedLog(NamedTuple):
    rows: list[dict[str, Any]]  # each with a kind, a step and a loss
    damaged: int  # number of unreadable lines


def parse_log(path: Path) -> ParsedLog:
    """Reads log.jsonl; skips damaged lines, since a model does not depend on its log."""
    if not path.is_file():
        return ParsedLog([], 0)
    rows = [_row(line) for line in path.read_text(encoding="utf-8", errors="replace").split("\n")]
    # The last line is empty, or incomplete: the process was killed, or is still writing.
    return ParsedLog([row for row in rows if row], rows[:-1].count({}))


def _row(line: str) -> dict[str, Any]:
    """Parses a line; returns an empty row if it is damaged."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(row, dict) or not isinstance(row.get("kind"), str) or type(row.get("step")) is not int:
        return {}
    numbers = (value for name, value in row.items() if name != "kind")
    return row if _is_number(row.get("loss")) and all(value is None or _is_number(value) for value in numbers) else {}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def downsample(rows: list[dict[str, Any]], max_rows: int = 1000) -> list[dict[str, Any]]:
    """Selects up to `max_rows` evenly spaced rows with a finite loss, including the first and the last."""
    rows = [row for row in rows if math.isfinite(row["loss"])]
    if len(rows) <= max_rows:
        return rows
    return [rows[round(i * (len(rows) - 1) / (max_rows - 1))] for i in range(max_rows)]
