"""The options of the commands that can run on a Ray cluster; importing them imports nothing of Ray."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from seq2see.cli.inputs import TextInput
from seq2see.config import option
from seq2see.errors import UsageError

if TYPE_CHECKING:
    from seq2see.cli.ray.job import ShardTask

_PANEL = "Many texts"


@dataclass(frozen=True)
class RayOptions:
    """Whether to run on Ray, with how many workers, and what they read."""

    engine: Literal["local", "ray"] = option(
        "local", "This process, or a Ray cluster, on this machine or many (needs seq2see\\[ray]).", panel=_PANEL
    )
    workers: int = option(
        0, "Ray workers, each with its own model; 0 for one per GPU, or per core if there is none.", panel=_PANEL, min=0
    )
    field: str = option(
        "text", "The text in JSON lines and Parquet files, with --engine ray.", panel=_PANEL, metavar="NAME"
    )

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
        from seq2see.cli.output import printed_warnings, progress
        from seq2see.cli.ray.job import run_job

        files = [source.path for source in sources if source.path is not None]
        if len(files) < len(sources) or out is None:
            raise UsageError("--engine ray maps files to a directory: give FILE… and --out DIRECTORY")
        warnings = printed_warnings()
        with progress() as bars:
            run_job(files, out, task, self.workers, warnings, bars)
        warnings.summarize()
