"""Training output: a live progress bar in a terminal, plain lines otherwise, and always log.jsonl."""

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from seq2see.errors import UserError
from seq2see.files import atomic_write
from seq2see.train.loop import StepReport
from seq2see.train.validation import Scores

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

PRINT_INTERVAL = 20.0  # seconds between progress lines when the output is not a terminal


class Display:
    """Prints and logs in the main process; silent in the others."""

    def __init__(self, folder: Path, is_main: bool) -> None:
        self.folder, self.is_main = folder, is_main
        self.console = Console(stderr=True, highlight=False, quiet=not is_main)
        self._bar = Progress(
            TextColumn("{task.description}"), BarColumn(bar_width=None), TimeElapsedColumn(), TextColumn("elapsed,"),
            TimeRemainingColumn(), TextColumn("left"), console=self.console, transient=True, disable=not self.live, expand=True,
        )  # fmt: skip
        self._task = self._bar.add_task("", total=1.0)
        self._last_printed = 0.0
        self._events: SummaryWriter | None = None

    @property
    def live(self) -> bool:
        return self.is_main and sys.stderr.isatty()

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()
        if self._events is not None:
            self._events.close()

    def message(self, text: str) -> None:
        self.console.print(text, soft_wrap=True)  # a wrapped path could not be copied

    def step(self, report: StepReport, seconds: float) -> None:
        self._log({"kind": "step", **asdict(report), "seconds": round(seconds, 3)})
        line = (
            f"step {report.step:,}  epoch {report.epoch:.1f}  loss {report.loss:.3f}  lr {report.lr:.1e}  "
            f"{report.tokens_per_second:,.0f} tokens/s"
        )
        line += "" if report.mfu is None else f"  {report.mfu:.0%} of peak FLOP/s"
        if self.live:
            self._bar.update(self._task, completed=min(report.progress, 1.0), description=line)
        elif time.monotonic() - self._last_printed > PRINT_INTERVAL:
            self._last_printed = time.monotonic()
            self.message(f"{line}  {report.progress:.0%} done")

    def validation(self, step: int, scores: Scores, best: bool, pairs: Sequence[tuple[str, str]]) -> None:
        """Prints the scores and the current translations of three sentences."""
        row: dict[str, Any] = {"kind": "validation", "step": step, "loss": scores.loss}
        row |= {"bleu": scores.bleu, "chrf": scores.chrf} if scores.bleu is not None else {}
        self._log(row)
        metrics = "" if scores.bleu is None else f"  BLEU {scores.bleu:.1f}  chrF++ {scores.chrf:.1f}"
        self.message(
            f"[bold]step {step:,}[/]  validation loss {scores.loss:.3f}{metrics}{'  [green]best so far[/]' if best else ''}"
        )
        table = Table.grid(padding=(0, 1))
        for number in _evenly_spaced(len(scores.translations), 3):
            source, reference = (_shorten(text) for text in pairs[number])
            table.add_row("   ", source, "[dim]→[/]", _shorten(scores.translations[number]), f"[dim]({reference})[/]")
        if table.row_count:
            self.console.print(table)

    def open_tensorboard(self, step: int) -> None:
        """Also writes TensorBoard event files; existing events after `step` are purged."""
        if not self.is_main:
            return
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise UserError("train.tensorboard needs TensorBoard: pip install 'seq2see[tensorboard]'") from error
        self._events = SummaryWriter(str(self.folder / "tensorboard"), purge_step=step + 1)

    def _log(self, row: dict[str, Any]) -> None:
        if self.is_main:
            with (self.folder / "log.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
        if self._events is not None:
            values = {name: row[name] for name in row.keys() - {"kind", "step"} if row[name] is not None}
            for name, value in values.items():
                self._events.add_scalar(f"{row['kind']}/{name}", value, row["step"])

    def truncate_log(self, step: int) -> None:
        """Removes log entries after the step that the run resumes from."""
        path = self.folder / "log.jsonl"
        if self.is_main and path.is_file():
            rows = [line for line in path.read_text(encoding="utf-8").splitlines() if _step_of(line) <= step]
            with atomic_write(path) as part:
                part.write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")


def _step_of(line: str) -> float:
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return float("inf")  # an incomplete line of a killed process


def _evenly_spaced(count: int, wanted: int) -> list[int]:
    return [count * (2 * i + 1) // (2 * wanted) for i in range(min(wanted, count))]


def _shorten(text: str, max_length: int = 60) -> str:
    from rich.markup import escape

    return escape(text if len(text) <= max_length else text[: max_length - 1] + "…")
