"""More than one process: the same steps, shared out.

Started by torchrun, every process runs the same program. The plan of batches does not depend on how many there are: a
step has a fixed number of micro-batches, and each process takes its share of them. Gradients are summed over processes
and divided by the number of targets of all, so N processes make the same steps as one. The model files know nothing of
all this.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from seq2see.model.transformer import Transformer


@dataclass(frozen=True)
class World:
    """The processes of a run, and which of them this is."""

    device: torch.device
    rank: int = 0
    size: int = 1

    @property
    def leads(self) -> bool:
        """The one process that writes files and talks."""
        return self.rank == 0

    def sum(self, tensor: Tensor) -> Tensor:
        if self.size > 1:
            distributed.all_reduce(tensor)
        return tensor

    def wait(self) -> None:
        if self.size > 1:
            distributed.barrier()

    def agree(self, flag: bool) -> bool:
        """Whether any process says so: all must stop, validate or save together."""
        if self.size == 1:
            return flag
        return bool(self.sum(torch.tensor(float(flag), device=self.device)))


@contextmanager
def join_world(device: str = "") -> Iterator[World]:
    """The processes that torchrun has started, or this one alone."""
    chosen = device or best_device()
    if "RANK" not in os.environ:
        yield World(torch.device(chosen))
        return
    local = int(os.environ["LOCAL_RANK"])
    place = torch.device(chosen, local) if chosen == "cuda" else torch.device(chosen)
    if chosen == "cuda":
        torch.cuda.set_device(place)
    distributed.init_process_group("nccl" if chosen == "cuda" else "gloo")
    try:
        yield World(place, distributed.get_rank(), distributed.get_world_size())
    finally:
        distributed.destroy_process_group()


def best_device() -> str:
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def spread(model: Transformer, world: World, shard: bool) -> nn.Module:
    """What to call in training: the model itself, a replica that averages gradients (DDP), or its shards (FSDP)."""
    if world.size == 1:
        return model
    if not shard:
        return DistributedDataParallel(model, device_ids=[world.device] if world.device.type == "cuda" else None)
    mesh = init_device_mesh(world.device.type, (world.size,))
    for stack in (model.encoder, model.decoder):
        for block in stack.blocks if stack is not None else ():
            fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)  # the tied embedding stays in the root's group
    return model


def without_sync(module: nn.Module, last: bool) -> object:
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
