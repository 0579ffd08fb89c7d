"""Training output: a live progress bar in a terminal, plain lines otherwise, and always log.jsonl.

If the terminal or pipe is closed, its output is lost, but training continues.
"""

import json
import sys
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self, cast

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from seq2see.errors import UserError, terminal
from seq2see.tensors.files import atomic_write
from seq2see.train.run_log import LOG, parse_log
from seq2see.train.trainer import StepReport
from seq2see.train.validation import Scores

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

REFRESH_INTERVAL = 1.0  # seconds between updates of the progress bar
MAX_LENGTH = 60  # characters of a sentence
PRINT_INTERVAL = 20.0  # seconds between progress lines when the output is not a terminal


class Display:
    """Prints and logs in the main process; silent in the others."""

    def __init__(self, folder: Path, is_main: bool) -> None:
        self.folder, self.is_main = folder, is_main
        # Asked once: while the bar is shown, rich replaces sys.stderr by an object that is no terminal (before rich 14.1).
        self.live = is_main and sys.stderr.isatty()
        self.console = terminal(file=cast(IO[str], _LossyStream(sys.stderr)), quiet=not is_main)
        name = TextColumn("{task.description}", markup=False)
        columns = name, BarColumn(None), TimeElapsedColumn(), "elapsed,", TimeRemainingColumn(), "left"
        self.bar = Progress(*columns, console=self.console, transient=True, disable=not self.live, expand=True)
        self._task = self.bar.add_task("", total=None)
        self._report = 0, ""  # step and metrics of the last one
        self._next_refresh = 0.0
        self._events: SummaryWriter | None = None

    def __enter__(self) -> Self:
        if self.live:
            self.bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self.live:  # a disabled bar of rich 14.0 would print an empty line
            self.bar.stop()
        if self._events is not None:
            self._events.close()

    def message(self, text: str | Text, style: str = "") -> None:
        self.console.print(text, style=style, soft_wrap=True)  # a wrapped path could not be copied

    def _refresh(self, text: str, done: float, total: float | None, seconds_left: float | None) -> None:
        """Updates the bar or prints a line."""
        self._next_refresh = time.monotonic() + (REFRESH_INTERVAL if self.live else PRINT_INTERVAL)
        if self.live:
            self.bar.update(self._task, description=text, completed=done, total=total)
        else:
            share = f"  {done / total:.0%} done" if total else ""
            left = "" if seconds_left is None else f", {_duration(seconds_left)} left"
            self.message(f"{text}{share}{left}")

    def task(self, name: str, total: int | None = None) -> Callable[[int], None]:
        """Starts a part of the preparation; returns a function that advances its progress."""
        start, done = time.monotonic(), 0
        self._next_refresh = start + (0 if self.live else PRINT_INTERVAL)  # a line only if it takes long
        self.bar.reset(self._task, description=name, total=total)

        def advance(count: int) -> None:
            nonlocal done
            done += count
            if time.monotonic() >= self._next_refresh:
                left = (time.monotonic() - start) * max(total - done, 0) / done if total and done else None
                self._refresh(name, done, total, left)

        return advance

    def progress(self, step: int, share: float, seconds: float) -> None:
        """Shows how far the training is, with the metrics of the last report and, if it is an earlier one, its step."""
        if time.monotonic() >= self._next_refresh:
            left = seconds * max(1 - share, 0) / share if share else None
            reported, metrics = self._report
            metrics = f"  (step {reported:,}:{metrics})" if metrics and reported != step else metrics
            self._refresh(f"step {step:,}{metrics}", min(share, 1.0), 1.0 if share else None, left)

    def step(self, report: StepReport, seconds: float) -> None:
        self._log({"kind": "step", **asdict(report), "seconds": round(seconds, 3)})
        metrics = (
            f"  epoch {report.epoch:.1f}  loss {report.loss:.3f}  lr {report.lr:.1e}  "
            f"{report.tokens_per_second:,.0f} tokens/s"
        )
        self._report = report.step, metrics + ("" if report.mfu is None else f"  {report.mfu:.0%} of peak FLOP/s")

    def validation(self, step: int, scores: Scores, best: bool, pairs: Sequence[tuple[str, str]]) -> None:
        """Prints the scores and the current translations of three sentences."""
        self._log({"kind": "validation", "step": step, **scores.metrics})
        mark = ("  best so far" if best else "", "green")
        self.message(Text.assemble((f"step {step:,}", "bold"), f"  {scores}", mark))
        count, table = len(scores.translations), Table.grid(padding=(0, 1))
        for number in sorted({count * part // 6 for part in (1, 3, 5)}) if count else ():
            source, reference = (_shorten(text) for text in pairs[number])
            translation = _shorten(scores.translations[number])
            table.add_row("   ", source, Text("→", "dim"), translation, Text(f"({reference})", "dim"))
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
            with (self.folder / LOG).open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
        if self._events is not None:
            for name in row.keys() - {"kind", "step"}:
                if row[name] is not None:
                    self._events.add_scalar(f"{row['kind']}/{name}", row[name], row["step"])

    def truncate_log(self, step: int, validated: Collection[int]) -> None:
        """Removes entries later than the checkpoint that the run resumes from, and validations that are not in it."""

        def is_kept(row: dict[str, Any]) -> bool:
            return row["step"] in validated if row["kind"] == "validation" else row["step"] <= step

        path = self.folder / LOG
        if self.is_main and path.is_file():
            log = parse_log(path)
            if log.damaged:
                self.message(f"skipping {log.damaged:,} damaged lines of {path}", "yellow")
            with atomic_write(path) as part:
                rows = filter(is_kept, log.rows)
                part.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")


class _LossyStream:
    """A text stream that drops output it cannot write."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def _shorten(text: str) -> str:
    return text if len(text) <= MAX_LENGTH else text[: MAX_LENGTH - 1] + "…"
