"""More than one process: the same steps, shared out.

Started by torchrun, every process runs the same program. The plan of batches does not depend on how many there are: a
step has a fixed number of micro-batches, and each process takes its share of them. Gradients are summed over processes
and divided by the number of targets of all, so N processes make the same steps as one. The model files know nothing of
all this.

Hosts talk to each other in a group of their own (gloo): what a host must know, such as that somebody pressed Ctrl-C,
does not make it wait for its device.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

import torch
from torch import Tensor, distributed, nn
from torch._C._distributed_c10d import TCPStore
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from seq2see.errors import UserError
from seq2see.model.network import Network
from seq2see.model.transformer import Transformer

T = TypeVar("T")

PATIENCE = timedelta(hours=6)  # in which the leading process may check, tokenize or validate while the others wait


@dataclass(frozen=True)
class World:
    """The processes of a run, and which of them this is."""

    device: torch.device
    rank: int = 0
    size: int = 1
    hosts: distributed.ProcessGroup | None = None

    @property
    def leads(self) -> bool:
        """The one process that writes files and talks."""
        return self.rank == 0

    def sum(self, tensor: Tensor) -> Tensor:
        if self.size > 1:
            distributed.all_reduce(tensor)
        return tensor

    def wait(self) -> None:
        """Until all processes are here."""
        if self.size > 1:
            distributed.barrier(self.hosts)

    def most(self, *values: float) -> list[float]:
        """The greatest of each value over the processes: clocks and signals differ, and all must do the same."""
        if self.size == 1:
            return list(values)
        tensor = torch.tensor(values, dtype=torch.float64)
        distributed.all_reduce(tensor, distributed.ReduceOp.MAX, self.hosts)
        return tensor.tolist()

    def told(self, find: Callable[[], T]) -> T:
        """What the leading process finds, in all of them."""
        if self.size == 1:
            return find()
        found = [find() if self.leads else None]
        distributed.broadcast_object_list(found, src=0, group=self.hosts)
        return found[0]  # type: ignore[return-value]


@contextmanager
def join_world(device: str = "") -> Iterator[World]:
    """The processes that torchrun has started, or this one alone.

    Where one fails the others soon do too, since they wait for it in vain: the first to fail says why, the others leave
    without a word.
    """
    chosen = device or best_device()
    if "RANK" not in os.environ:
        yield World(torch.device(chosen))
        return
    local = int(os.environ["LOCAL_RANK"])
    place = torch.device(chosen, local) if chosen == "cuda" else torch.device(chosen)
    if chosen == "cuda":
        torch.cuda.set_device(place)
        distributed.init_process_group("nccl", device_id=place)
    else:
        distributed.init_process_group("gloo", timeout=PATIENCE)
    hosts = distributed.new_group(backend="gloo", timeout=PATIENCE)
    try:
        yield World(place, distributed.get_rank(), distributed.get_world_size(), hosts)
    except Exception as error:
        if _fails_first():
            raise
        raise SystemExit(getattr(error, "exit_code", 1)) from None
    distributed.destroy_process_group()


def _fails_first() -> bool:
    """Asks the store through which the processes found each other; torchrun itself keeps it, so it outlives them."""
    place, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    try:
        store = TCPStore(place, port, is_master=False, timeout=timedelta(seconds=5))
        return store.add(f"seq2see failed in attempt {attempt}", 1) == 1
    except RuntimeError:  # torch's own errors, all of them
        return True


def best_device() -> str:
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def spread(model: Network, world: World, shard: bool) -> nn.Module:
    """What to call in training: the model itself, a replica that averages gradients (DDP), or its shards (FSDP)."""
    if world.size == 1:
        return model
    if not shard:
        return DistributedDataParallel(model, device_ids=[world.device] if world.device.type == "cuda" else None)
    if not isinstance(model, Transformer):
        raise UserError(f'train.shard is for Transformers, and model.kind is "{model.config.kind}": leave it out')
    mesh = init_device_mesh(world.device.type, (world.size,))
    for stack in (model.encoder, model.decoder):
        for block in stack.blocks if stack is not None else ():
            fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)  # the tied embedding stays in the root's group
    return model


def without_sync(module: nn.Module, last: bool) -> AbstractContextManager[object]:
    """Gradients travel once a step, with the last micro-batch."""
    if isinstance(module, DistributedDataParallel):
        return nullcontext() if last else module.no_sync()
    if isinstance(module, FSDPModule):
        module.set_requires_gradient_sync(last)
    return nullcontext()


def whole(tensor: Tensor) -> Tensor:
    """A tensor that may be sharded, in one piece. All processes must ask."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


@torch.no_grad()
def fill(own: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> None:
    """Copies whole tensors into tensors that may be sharded."""
    for name, tensor in own.items():
        value = values[name].to(tensor.device)
        if isinstance(tensor, DTensor):
            value = distribute_tensor(value, tensor.device_mesh, tensor.placements)
        tensor.copy_(value)
