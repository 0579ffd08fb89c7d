"""`seq2see runs`: compares training runs."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seq2see.cli.output import check_plot, print_json, table
from seq2see.config import DataConfig, differences, option
from seq2see.errors import terminal
from seq2see.storage.bundled import find_model

if TYPE_CHECKING:
    from seq2see.train.run_log import RunLog


def runs(
    folders: Annotated[list[Path], typer.Argument(help="Run directories.", metavar="DIRECTORY")],
    as_json: bool = option(False, "Print JSON.", flag="--json"),
    out: Path | None = option(
        None, "Draw the curves to a .png, .svg or .pdf file (needs seq2see\\[plot]).", metavar="FILE"
    ),
) -> None:
    """Compare training runs: progress, scores, loss curves and settings.

    Example: seq2see runs runs/en-hi runs/en-hi-wider --out curves.png
    """
    from seq2see.train.run_log import RunLog

    check_plot(out)
    logs = [RunLog.load(find_model(folder)) for folder in folders]
    changed = differences([replace(log.config, data=DataConfig()) for log in logs])
    if as_json:
        rows = [
            {
                "run": str(log.path),
                "state": _state(log),
                "step": log.step,
                "seconds": log.seconds,
                "steps": log.steps,
                "validations": log.validations,
                "scores": log.scores,
            }
            for log in logs
        ]
        print_json({"runs": rows, "differences": changed})
    else:
        _print_table(logs, changed)
    if out is not None:
        _draw(logs, out)


def _print_table(logs: list["RunLog"], changed: dict[str, list[Any]]) -> None:
    headings = ("run", "step", "minutes", "tokens/s", "training loss", "validation loss", "BLEU", "chrF++", "curve")
    console = terminal()
    console.print(table(headings, [_row(log) for log in logs], left=["curve"]))
    if changed:
        console.print("\nsettings that differ:")
    for name, values in changed.items():
        console.print(f"  {name}: {', '.join(map(str, values))}")


def _row(log: "RunLog") -> list[Any]:
    from rich.text import Text

    last = log.steps[-1] if log.steps else {}
    best = min(log.validations, key=lambda row: row["loss"], default={})
    scores = (log.finished and log.scores.get("validation")) or _best_validation(log.validations)
    name = Text.assemble(str(log.path), ("" if log.finished else f" ({_state(log)})", "yellow"))
    losses = [_format(value, ".3f") for value in (last.get("loss"), scores.get("loss", best.get("loss")))]
    metrics = [_format(scores.get(name), ".1f") for name in ("bleu", "chrf")]
    curve = sparkline([row["loss"] for row in log.validations], 24)
    return [name, f"{log.step:,}", f"{log.seconds / 60:.1f}", _format(_speed(log), ",.0f"), *losses, *metrics, curve]


def _state(log: "RunLog") -> str:
    return "running" if log.running else "finished" if log.finished else "not finished"


def _best_validation(validations: list[dict[str, Any]]) -> dict[str, Any]:
    return max(validations, key=lambda row: -row["loss"] if row.get("bleu") is None else row["bleu"], default={})


def _speed(log: "RunLog") -> float | None:
    speeds = sorted(row["tokens_per_second"] for row in log.steps if row.get("tokens_per_second") is not None)
    return speeds[len(speeds) // 2] if speeds else None


def sparkline(values: list[float], width: int) -> str:
    """Draws a curve in one line of text."""
    count = min(width, len(values))
    samples = [values[round(i * (len(values) - 1) / max(count - 1, 1))] for i in range(count)]
    low, high = min(samples, default=0.0), max(samples, default=0.0)
    return "".join("▁▂▃▄▅▆▇█"[round((value - low) / ((high - low) or 1) * 7)] for value in samples)


def _format(value: float | None, spec: str) -> str:
    return "" if value is None else format(value, spec)


def _draw(logs: list["RunLog"], out: Path) -> None:
    from seq2see.views.plots import plot_curves

    losses = {f"{log.path}": [(row["step"], row["loss"]) for row in log.steps] for log in logs}
    valid = {f"{log.path}": [(row["step"], row["loss"]) for row in log.validations] for log in logs}
    bleu = {
        f"{log.path}": [(row["step"], row["bleu"]) for row in log.validations if row.get("bleu") is not None]
        for log in logs
    }
    plot_curves({"training loss": losses, "validation loss": valid, "validation BLEU": bleu}, out)
    typer.echo(f"wrote {out}", err=True)
