"""Data-parallel training over several processes, by replicas (DDP) or shards (FSDP).

torchrun starts the same program in every process. The batch plan does not depend on the number of processes: a step has a
fixed number of micro-batches, and each process takes its share of them. Gradients are summed over the processes and divided
by the total number of targets, so N processes make the same steps as one. The model code knows nothing about this.

The processes also share a gloo group on the CPU, so that exchanging control information, such as an interrupt, never waits
for the device.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

import torch
from torch import Tensor, distributed, nn
from torch.distributed import TCPStore  # type: ignore[attr-defined]  # public, but not declared so
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from seq2see.errors import UserError
from seq2see.model.network import Network
from seq2see.model.transformer import Transformer
from seq2see.tensors.device import resolve_device

T = TypeVar("T")

TIMEOUT = timedelta(hours=6)  # the other processes wait while the main one checks data, tokenizes or validates


@dataclass(frozen=True)
class World:
    """The processes of a run and the rank of this one."""

    device: torch.device
    rank: int = 0
    size: int = 1
    cpu_group: distributed.ProcessGroup | None = None

    @property
    def is_main(self) -> bool:
        """Whether this is the process that writes files and prints."""
        return self.rank == 0

    def all_reduce_sum(self, tensor: Tensor) -> Tensor:
        if self.size > 1:
            distributed.all_reduce(tensor)
        return tensor

    def barrier(self) -> None:
        """Waits until all processes have reached this point."""
        if self.size > 1:
            distributed.barrier(self.cpu_group)

    def all_reduce_max(self, *values: float) -> list[float]:
        """Returns the maximum of each value over the processes: clocks and signals differ, but all must decide alike."""
        if self.size == 1:
            return list(values)
        tensor = torch.tensor(values, dtype=torch.float64)
        distributed.all_reduce(tensor, distributed.ReduceOp.MAX, self.cpu_group)
        return tensor.tolist()

    def broadcast(self, compute: Callable[[], T]) -> T:
        """Calls `compute` in the main process and returns its result in all of them."""
        if self.size == 1:
            return compute()
        result = [compute() if self.is_main else None]
        distributed.broadcast_object_list(result, src=0, group=self.cpu_group)
        return result[0]  # type: ignore[return-value]


@contextmanager
def init_distributed(device: str = "") -> Iterator[World]:
    """Joins the processes started by torchrun, or yields a world of one process.

    When one process fails, the others fail soon after because they wait for it. Only the first failure is reported; the
    others exit silently.
    """
    device_type = resolve_device(device)
    if "RANK" not in os.environ:
        yield World(torch.device(device_type))
        return
    if device_type == "cuda":
        local_device = torch.device(resolve_device(f"cuda:{os.environ['LOCAL_RANK']}"))
        torch.cuda.set_device(local_device)
        distributed.init_process_group("nccl", device_id=local_device)
    else:
        local_device = torch.device(device_type)
        distributed.init_process_group("gloo", timeout=TIMEOUT)
    cpu_group = distributed.new_group(backend="gloo", timeout=TIMEOUT)
    try:
        yield World(local_device, distributed.get_rank(), distributed.get_world_size(), cpu_group)
    except Exception as error:
        if _is_first_failure():
            raise
        raise SystemExit(getattr(error, "exit_code", 1)) from None
    distributed.destroy_process_group()


def _is_first_failure() -> bool:
    """Counts failures in torchrun's rendezvous store, which outlives the worker processes."""
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    try:
        store = TCPStore(host, port, is_master=False, timeout=timedelta(seconds=5))
        return store.add(f"seq2see failed in attempt {attempt}", 1) == 1
    except RuntimeError:  # the base class of all torch.distributed errors
        return True


def parallelize(model: Network, world: World, fsdp: bool) -> nn.Module:
    """Returns the module to call in training: the model itself, a DDP replica, or the model with FSDP shards."""
    if world.size == 1:
        return model
    if not fsdp:
        return DistributedDataParallel(model, device_ids=[world.device] if world.device.type == "cuda" else None)
    if not isinstance(model, Transformer):
        raise UserError(
            f'train.fsdp requires a Transformer, but model.kind is "{model.config.kind}": set train.fsdp=false'
        )
    mesh = init_device_mesh(world.device.type, (world.size,))
    for stack in (model.encoder, model.decoder):
        for block in stack.blocks if stack is not None else ():
            fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)  # the tied embedding stays in the root's group
    return model


def gradient_sync(module: nn.Module, enabled: bool) -> AbstractContextManager[object]:
    """Enables or disables gradient synchronisation: gradients are exchanged once per step, with the last micro-batch."""
    if isinstance(module, DistributedDataParallel):
        return nullcontext() if enabled else module.no_sync()
    if isinstance(module, FSDPModule):
        module.set_requires_gradient_sync(enabled)
    return nullcontext()


def full_tensor(tensor: Tensor) -> Tensor:
    """Gathers a tensor that may be sharded. A collective operation: every process must call it."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


@torch.no_grad()
def copy_full_tensor(target: Tensor, value: Tensor) -> None:
    """Copies a full tensor into one that may be sharded."""
    value = value.to(target.device)
    if isinstance(target, DTensor):
        value = distribute_tensor(value, target.device_mesh, target.placements)
    target.copy_(value)
