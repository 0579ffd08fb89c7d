"""What a person sees of a training: a live line in a terminal, plain lines in a pipe; and log.jsonl, always."""

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
from seq2see.files import written_whole
from seq2see.train.loop import Progress as Step
from seq2see.train.validation import Scores

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

EVERY = 20.0  # seconds between the lines of a pipe


class Display:
    """Silent in all processes but the leading one."""

    def __init__(self, folder: Path, leads: bool) -> None:
        self.folder, self.leads = folder, leads
        self.console = Console(stderr=True, highlight=False, quiet=not leads)
        self._bar = Progress(
            TextColumn("{task.description}"), BarColumn(bar_width=None), TimeElapsedColumn(), TextColumn("left"),
            TimeRemainingColumn(), console=self.console, transient=True, disable=not self.live, expand=True,
        )  # fmt: skip
        self._task = self._bar.add_task("", total=1.0)
        self._spoke = 0.0
        self._events: SummaryWriter | None = None

    @property
    def live(self) -> bool:
        return self.leads and sys.stderr.isatty()

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()
        if self._events is not None:
            self._events.close()

    def say(self, text: str) -> None:
        self.console.print(text, soft_wrap=True)  # a path cut in two could not be copied

    def step(self, at: Step, seconds: float) -> None:
        self._log({"kind": "step", **asdict(at), "seconds": round(seconds, 3)})
        line = (
            f"step {at.step:,}  epoch {at.epoch:.1f}  loss {at.loss:.3f}  lr {at.lr:.1e}  "
            f"{at.tokens_per_second:,.0f} tokens/s"
        )
        line += "" if at.peak is None else f"  {at.peak:.0%} of peak"
        if self.live:
            self._bar.update(self._task, completed=min(at.share, 1.0), description=line)
        elif time.monotonic() - self._spoke > EVERY:
            self._spoke = time.monotonic()
            self.say(f"{line}  {at.share:.0%}")

    def validation(self, step: int, scores: Scores, best: bool, pairs: Sequence[tuple[str, str]]) -> None:
        """The scores, and three sentences with what the model makes of them now."""
        row: dict[str, Any] = {"kind": "validation", "step": step, "loss": scores.loss}
        row |= {"bleu": scores.bleu, "chrf": scores.chrf} if scores.bleu is not None else {}
        self._log(row)
        points = "" if scores.bleu is None else f"  BLEU {scores.bleu:.1f}  chrF++ {scores.chrf:.1f}"
        self.say(
            f"[bold]step {step:,}[/]  validation loss {scores.loss:.3f}{points}{'  [green]best so far[/]' if best else ''}"
        )
        table = Table.grid(padding=(0, 1))
        for number in _spread(len(scores.translations), 3):
            source, target = pairs[number]
            table.add_row(
                "   ", _short(source), "[dim]→[/]", _short(scores.translations[number]), f"[dim]({_short(target)})[/]"
            )
        if table.row_count:
            self.console.print(table)

    def also_to_tensorboard(self, step: int) -> None:
        """What is logged after a step goes into event files, too; what is there already of later ones is taken back."""
        if not self.leads:
            return
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise UserError("train.tensorboard needs TensorBoard: pip install 'seq2see[tensorboard]'") from error
        self._events = SummaryWriter(str(self.folder / "tensorboard"), purge_step=step + 1)

    def _log(self, row: dict[str, Any]) -> None:
        if self.leads:
            with (self.folder / "log.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
        if self._events is not None:
            values = {name: row[name] for name in row.keys() - {"kind", "step"} if row[name] is not None}
            for name, value in values.items():
                self._events.add_scalar(f"{row['kind']}/{name}", value, row["step"])

    def rewind(self, step: int) -> None:
        """Takes back what was logged after a step that the run goes on from."""
        path = self.folder / "log.jsonl"
        if self.leads and path.is_file():
            rows = [line for line in path.read_text(encoding="utf-8").splitlines() if _step_of(line) <= step]
            with written_whole(path) as part:
                part.write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")


def _step_of(line: str) -> float:
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return float("inf")  # half a line, from a process that was killed


def _spread(count: int, wanted: int) -> list[int]:
    return [count * (2 * i + 1) // (2 * wanted) for i in range(min(wanted, count))]


def _short(text: str, most: int = 60) -> str:
    from rich.markup import escape

    return escape(text if len(text) <= most else text[: most - 1] + "…")
