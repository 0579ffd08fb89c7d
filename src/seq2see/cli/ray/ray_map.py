"""Maps a task over items with Ray Data: each worker loads the task's model once, and takes one item after another.

If a worker dies, Ray starts another one and gives it the item again. Results arrive in any order, each with its item's index.
"""

import logging
import math
import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn, Protocol

from seq2see.errors import UserError

Row = dict[str, Any]


class Task(Protocol):
    """Is sent to the workers, and so must be picklable."""

    def start(self) -> Callable[[Any], Any]:
        """Loads what the task needs; returns the function of an item."""
        ...


class _Worker:
    def __init__(self, task: Task) -> None:
        self._run: Callable[[Any], Any]
        try:
            self._run = task.start()
        except UserError as error:  # Ray would repeat the start, and hide the message in a traceback
            message = str(error)

            def fail(item: Any) -> NoReturn:
                raise UserError(message)

            self._run = fail

    def __call__(self, row: Row) -> Row:
        try:
            return {"index": row["index"], "result": pickle.dumps(self._run(pickle.loads(row["item"]))), "error": ""}
        except UserError as error:
            return {"index": row["index"], "result": b"", "error": str(error)}


def ray_map(task: Task, items: Sequence[Any], workers: int = 0) -> Iterator[tuple[int, Any]]:
    """Yields (index, result) of each item as it is done. `workers` = 0 means one per GPU, or per core if there is none.

    Joins the cluster of RAY_ADDRESS or of this machine; if there is none, starts one on this machine until the map ends.
    """
    ray = require_ray()
    was_running = ray.is_initialized()
    if not was_running:
        ray.init(log_to_driver=False, logging_level=logging.ERROR)
    try:
        yield from _map(ray, task, items, workers)
    finally:
        if not was_running:
            ray.shutdown()


def require_ray() -> Any:
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    try:
        import ray
        import ray.data
    except ImportError:
        raise UserError('--engine ray needs Ray: pip install "seq2see[ray]"') from None
    return ray


def share_per_worker(nodes: Sequence[int], workers: int) -> float:
    """Returns how many cores or GPUs of these machines each worker can have, so that all of them fit; less than 1 if shared."""
    for share in range(max(nodes), 0, -1):
        if sum(node // share for node in nodes) >= workers:
            return share
    return 1 / math.ceil(workers / sum(nodes))


def _map(ray: Any, task: Task, items: Sequence[Any], workers: int) -> Iterator[tuple[int, Any]]:
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    cores, gpus = ([int(node.get(kind, 0)) for node in nodes] for kind in ("CPU", "GPU"))
    workers = max(1, min(workers or sum(gpus) or sum(cores), len(items)))
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = context.print_on_execution_start = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    rows = [{"index": index, "item": pickle.dumps(item)} for index, item in enumerate(items)]
    # Ray restarts workers that die, and limits the threads of each to its cores.
    if sum(gpus):
        share = {"num_gpus": min(1.0, share_per_worker(gpus, workers))}
    else:
        share = {"num_cpus": share_per_worker(cores, workers)}
    results = ray.data.from_items(rows, override_num_blocks=len(rows)).map(
        _Worker, fn_constructor_args=(task,), compute=ray.data.ActorPoolStrategy(size=workers), **share
    )
    try:
        for row in results.iter_rows():
            if row["error"]:
                raise UserError(row["error"])
            yield row["index"], pickle.loads(row["result"])
    except ray.exceptions.RayError as error:
        reason = str(error).strip().splitlines()[0]
        raise UserError(f"the Ray workers failed: {reason}; what is finished is kept: repeat the command") from error
