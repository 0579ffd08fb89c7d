"""Options of the commands that can run on a Ray cluster."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from seq2see.cli.streams import TextInput
from seq2see.errors import UsageError

if TYPE_CHECKING:
    from seq2see.cli.ray.job import ShardTask

_PANEL = "Many texts"
Engine = Annotated[
    Literal["local", "ray"],
    typer.Option(
        help="This process, or a Ray cluster, on this machine or many (needs seq2see\\[ray]).", rich_help_panel=_PANEL
    ),
]
Workers = Annotated[
    int,
    typer.Option(
        help="Ray workers, each with its own model; 0 for one per GPU, or per core if there is none.",
        min=0,
        rich_help_panel=_PANEL,
    ),
]
Field = Annotated[
    str,
    typer.Option(
        help="The text in JSON lines and Parquet files, with --engine ray.", metavar="NAME", rich_help_panel=_PANEL
    ),
]


def check_engine(engine: str, workers: int, other: str = "") -> None:
    """Raises a UsageError for options of the other engine; `other` names a further one that is set."""
    if engine == "local" and (workers or other):
        raise UsageError(f"{'--workers' if workers else other} is for --engine ray")
    if engine == "ray":
        from seq2see.cli.ray.ray_map import require_ray

        require_ray()


def run_shards(sources: list[TextInput], out: Path | None, task: "ShardTask", workers: int) -> None:
    """Runs a task over files on a Ray cluster."""
    from seq2see.cli.progress import progress
    from seq2see.cli.ray.job import run_job
    from seq2see.translate.warning_log import WarningLog

    files = [source.path for source in sources if source.path is not None]
    if len(files) < len(sources) or out is None:
        raise UsageError("--engine ray maps files to a directory: give FILE… and --out DIRECTORY")
    warnings = WarningLog(lambda text: typer.echo(f"seq2see: {text}", err=True))
    with progress() as bars:
        run_job(files, out, task, workers, warnings, bars)
    warnings.summarize()
