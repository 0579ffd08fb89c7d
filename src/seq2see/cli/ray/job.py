"""A job over files: every shard that is not done yet goes to a worker, and the parts of a file are joined when it is complete.

The output directory has a file for each input, with a line or row for each of its own, in order. `job.json` describes the job;
the parts of unfinished files are in `parts/`. Repeating the command of a job that was stopped does what is left.
"""

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from seq2see.cli.ray.ray_map import ray_map
from seq2see.cli.ray.shards import PARQUET, SHARD_BYTES, Shard, is_json_lines, join_parts, plan_shards
from seq2see.cli.ray.tasks import EmbedShards, TranslateShards
from seq2see.data.readers import strip_compression_suffix
from seq2see.errors import UserError
from seq2see.storage.bundled import find_model
from seq2see.tensors.files import atomic_write, check_new_directory, file_lock
from seq2see.translate.warning_log import WarningLog

JOB, PARTS = "job.json", "parts"

ShardTask = TranslateShards | EmbedShards


def run_job(
    files: Sequence[Path],
    out: Path,
    task: ShardTask,
    workers: int,
    warnings: WarningLog,
    progress: Callable[[str, int | None], Callable[[int], None]],
    shard_bytes: int = SHARD_BYTES,
) -> None:
    """Writes the output of every file that is not there yet to a directory."""
    targets = _targets(files, out, task)
    description = _describe(task, shard_bytes, [_describe_file(file) for file in files])
    with _open_job(out, description):
        shards = {target: plan_shards(file, out / PARTS / target.name, shard_bytes) for file, target in targets.items()}
        waiting: list[tuple[Path, Shard]] = []  # with the output they belong to
        missing: dict[Path, int] = {}  # shards of an output
        for target in (target for target in shards if not target.exists()):
            (out / PARTS / target.name).mkdir(parents=True, exist_ok=True)
            new = [(target, shard) for shard in shards[target] if not shard.part.exists()]
            missing[target] = len(new)
            waiting += new
            if not new:
                _join(shards[target], target)
        advance = progress("shards", sum(map(len, shards.values())))
        advance(sum(map(len, shards.values())) - len(waiting))
        for i, log in ray_map(task, [shard for _, shard in waiting], workers) if waiting else ():
            log.add_to(warnings)
            advance(1)
            target, _ = waiting[i]
            missing[target] -= 1
            if not missing[target]:
                _join(shards[target], target)
        shutil.rmtree(out / PARTS, ignore_errors=True)


def _targets(files: Sequence[Path], out: Path, task: ShardTask) -> dict[Path, Path]:
    """Returns the output of each file."""
    targets: dict[Path, Path] = {}
    for file in files:
        name = strip_compression_suffix(file)
        target = out / (name if name.endswith(PARQUET) or is_json_lines(file) else name + task.text_suffix)
        if target in targets.values():
            raise UserError(f"two of the {len(files)} files are called {target.name}: use separate directories")
        if target.resolve() == file.resolve():
            raise UserError(f"{file} would be overwritten: choose another output directory")
        targets[file] = target
    return targets


def _join(shards: Sequence[Shard], target: Path) -> None:
    join_parts([shard.part for shard in shards], target)


@contextmanager
def _open_job(out: Path, description: dict[str, Any]) -> Iterator[None]:
    """Begins or continues a job in a directory, which only this process may use meanwhile."""
    job = out / JOB
    if not job.exists():
        check_new_directory(out)
        out.mkdir(exist_ok=True)
        with atomic_write(job) as part:
            part.write_text(json.dumps(description, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    try:
        before = dict(json.loads(job.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise UserError(f"{job} is damaged: choose another output directory") from error
    if differing := [key for key in description if before.get(key) != description[key]]:
        key = differing[0]
        values = f"{json.dumps(before.get(key))[:200]}, now {json.dumps(description[key])[:200]}"
        raise UserError(f"{out} belongs to another job ({key}: {values}): choose another output directory")
    try:
        with file_lock(out, wait=False):
            yield
    except BlockingIOError:
        raise UserError(f"another process works on {out}: wait for it, or choose another output directory") from None


def _describe(task: ShardTask, shard_size: int, files: list[Any]) -> dict[str, Any]:
    options: dict[str, Any] = {"task": type(task).__name__, **asdict(task)}
    if "search" in options:
        options["search"] = {"beam": options["search"]["beam"], "nbest": options["search"]["nbest"]}
    path = find_model(task.model.path).resolve()
    options["model"] = {**options["model"], "path": str(path), "weights": _weights(path)}
    return json.loads(json.dumps({**options, "shard_size": shard_size, "files": files}))


def _describe_file(file: Path) -> list[Any]:
    status = file.stat()
    return [str(file.resolve()), status.st_size, status.st_mtime_ns]


def _weights(path: Path) -> list[Any]:
    files = [path] if path.is_file() else sorted(path.glob("*.safetensors"))
    return [[file.name, file.stat().st_size, file.stat().st_mtime_ns] for file in files]
