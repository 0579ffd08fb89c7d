"""`seq2see runs`: trainings side by side."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from seq2see.train.run_log import History


def runs(
    folders: Annotated[list[Path], typer.Argument(help="Run directories.", metavar="DIRECTORY...")],
    as_json: Annotated[bool, typer.Option("--json", help="Print everything for a program to read.")] = False,
    out: Annotated[Path | None, typer.Option(help="Draw the curves into a .png or .svg (needs seq2see[plot]).")] = None,
) -> None:
    """Compare runs: how far they are, how good, how they went, and in which settings they differ.

    Example: seq2see runs runs/en-hi runs/en-hi-wider --out curves.png
    """
    from seq2see.train.run_log import History, differences

    found = [History.of(folder) for folder in folders]
    if as_json:
        rows = [{"run": str(h.path), "steps": h.steps, "validations": h.validations, "scores": h.scores} for h in found]
        typer.echo(json.dumps({"runs": rows, "differences": differences(found)}))
    else:
        _show(found)
    if out is not None:
        _draw(found, out)


def _show(found: list["History"]) -> None:
    from rich.console import Console
    from rich.table import Table

    from seq2see.train.run_log import differences, sparkline

    console = Console(highlight=False)
    table = Table(box=None, pad_edge=False)
    for heading in ("run", "step", "minutes", "tokens/s", "loss", "valid", "BLEU", "chrF++", "validation loss"):
        table.add_column(heading, justify="left" if heading in ("run", "validation loss") else "right")
    for history in found:
        last = history.steps[-1] if history.steps else {}
        best = min(history.validations, key=lambda row: row["loss"], default={})
        scores = history.scores.get("validation") or _best(history.validations)
        name = f"{history.path}" + ("" if history.scores else " [yellow](not finished)[/]")
        table.add_row(
            name, f"{last.get('step', 0):,}", f"{last.get('seconds', 0) / 60:.1f}", _number(_speed(history), ",.0f"),
            _number(last.get("loss"), ".3f"), _number(scores.get("loss", best.get("loss")), ".3f"),
            _number(scores.get("bleu"), ".1f"), _number(scores.get("chrf"), ".1f"),
            sparkline([row["loss"] for row in history.validations], 24),
        )  # fmt: skip
    console.print(table)
    apart = differences(found)
    if len(found) > 1 and apart:
        console.print("\nthey differ in")
        for name, values in apart.items():
            console.print(f"  {name}: {', '.join(map(str, values))}")


def _best(validations: list[dict[str, Any]]) -> dict[str, Any]:
    return max(validations, key=lambda row: row.get("bleu", -row["loss"]), default={})


def _speed(history: "History") -> float | None:
    speeds = sorted(row["tokens_per_second"] for row in history.steps)
    return speeds[len(speeds) // 2] if speeds else None


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def _draw(found: list["History"], out: Path) -> None:
    from seq2see.inspect.plots import curves

    losses = {f"{h.path}": [(row["step"], row["loss"]) for row in h.steps] for h in found}
    valid = {f"{h.path}": [(row["step"], row["loss"]) for row in h.validations] for h in found}
    bleu = {f"{h.path}": [(row["step"], row["bleu"]) for row in h.validations if "bleu" in row] for h in found}
    curves({"training loss": losses, "validation loss": valid, "validation BLEU": bleu}, out)
    typer.echo(f"{out}", err=True)
