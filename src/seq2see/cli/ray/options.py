"""The options of the commands that can run on a Ray cluster; importing them imports nothing of Ray."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from seq2see.cli.streams import TextInput
from seq2see.errors import UsageError

if TYPE_CHECKING:
    from seq2see.cli.ray.job import ShardTask

_PANEL = "Many texts"


@dataclass(frozen=True)
class RayOptions:
    """Whether to run on Ray, with how many workers, and what they read."""

    engine: Annotated[
        Literal["local", "ray"],
        typer.Option(
            help="This process, or a Ray cluster, on this machine or many (needs seq2see\\[ray]).",
            rich_help_panel=_PANEL,
        ),
    ] = "local"
    workers: Annotated[
        int,
        typer.Option(
            help="Ray workers, each with its own model; 0 for one per GPU, or per core if there is none.",
            min=0,
            rich_help_panel=_PANEL,
        ),
    ] = 0
    field: Annotated[
        str,
        typer.Option(
            help="The text in JSON lines and Parquet files, with --engine ray.", metavar="NAME", rich_help_panel=_PANEL
        ),
    ] = "text"

    @property
    def on_cluster(self) -> bool:
        """Whether to run on Ray; raises an error if it is not installed, or for options of the other engine."""
        if self.engine == "local":
            if self.workers:
                raise UsageError("--workers is for --engine ray")
            return False
        from seq2see.cli.ray.ray_map import require_ray

        require_ray()
        return True

    def run(self, sources: list[TextInput], out: Path | None, task: "ShardTask") -> None:
        """Runs a task over files on a Ray cluster."""
        from seq2see.cli.progress import progress
        from seq2see.cli.ray.job import run_job
        from seq2see.cli.streams import printed_warnings

        files = [source.path for source in sources if source.path is not None]
        if len(files) < len(sources) or out is None:
            raise UsageError("--engine ray maps files to a directory: give FILE… and --out DIRECTORY")
        warnings = printed_warnings()
        with progress() as bars:
            run_job(files, out, task, self.workers, warnings, bars)
        warnings.summarize()
