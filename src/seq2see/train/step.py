"""The training step: forward, loss and backward for each micro-batch, then clipping and update.

Training uses teacher forcing: the decoder reads the reference shifted by one position and predicts every next token in one
pass. The random numbers of a step are derived from (seed, step, process) alone, so a resumed run makes the same steps as an
uninterrupted one. `GraphStep` makes the same step by replaying CUDA graphs.
"""

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from seq2see.config import TrainConfig
from seq2see.data.batch import Batch
from seq2see.errors import UserError
from seq2see.model.layers import Block
from seq2see.model.network import Network
from seq2see.model.transformer import Transformer
from seq2see.tensors.device import compute_precision
from seq2see.train.loss import TrainingLoss
from seq2see.train.parallel import World, full_tensor, gradient_sync, parallelize

# The compiler reads this when it is first imported, as creating an optimizer does. Unlike its default in the system's
# temporary directory, the user's cache persists between reboots.
USER_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(USER_CACHE / "seq2see" / "compiled"))


class StepResult(NamedTuple):
    """What a step measured, on the device: reading it would wait for the step to end."""

    nll: Tensor  # −ln p, summed over the targets of all processes
    targets: Tensor  # their number
    grad_norm: Tensor  # before clipping; 0 if it is NaN or infinite
    is_nan: Tensor  # 1 if it is: the update was skipped


class TrainStep:
    """Makes optimizer steps, in several processes each with its share of the micro-batches."""

    def __init__(self, model: Network, train: TrainConfig, world: World) -> None:
        self.model, self.world, self.seed, self.max_grad_norm = model, world, train.seed, train.max_grad_norm
        self.precision = compute_precision(train.precision, model.config.width, world.device)
        # Recurrent layers are not compiled: each is already one kernel, or a loop that would recompile for every length.
        # Batches of pictures and sounds are not static: their convolutions pad, which must not reach the maximum length.
        is_static = isinstance(model, Transformer) and model.config.source == "tokens"
        compiled = train.compile and world.device.type == "cuda" and is_static
        self.capturable = compiled and world.size == 1 and self.precision.dtype is torch.bfloat16  # as CUDA graphs
        if compiled and not self.capturable:
            compile_blocks(model)
        self.loss = TrainingLoss(train, compiled)
        self.module = parallelize(model, world, train.fsdp)
        self.optimizer = self._build_optimizer(train)

    def _build_optimizer(self, train: TrainConfig) -> torch.optim.Optimizer:
        parameters = list(self.model.parameters())  # shards under FSDP
        # Weight decay applies to matrices only, not to biases and norms.
        groups = [
            {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": train.weight_decay},
            {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
        ]
        lr = torch.zeros((), device=self.world.device) if self.capturable else 0.0
        betas = train.beta1, train.beta2
        return torch.optim.AdamW(groups, lr, betas, train.epsilon, fused=True, capturable=self.capturable)

    def run(self, batches: Sequence[Batch], number: int, lr: float) -> StepResult:
        """Makes the step of this number with the micro-batches of this process; without an update if the gradient is NaN."""
        self.module.train()
        seed_step(self.seed, number, self.world.rank)
        # Created on the device: copying a number from the host would synchronise.
        targets = torch.full((), float(sum(batch.num_targets for batch in batches)), device=self.world.device)
        nll = torch.zeros((), device=self.world.device)
        self.world.all_reduce_sum(targets)
        for i, batch in enumerate(batches):
            with gradient_sync(self.module, enabled=i == len(batches) - 1):
                with self.precision.autocast():
                    losses = self.loss(self.module, batch.to(self.world.device))
                # DDP and FSDP average gradients over the processes, so the world size cancels that division.
                (losses.objective * (self.world.size / targets)).backward()
            nll += losses.nll
        self.world.all_reduce_sum(nll)
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.max_grad_norm or math.inf)
        grad_norm = full_tensor(norm)
        is_nan = (~grad_norm.isfinite()).float()
        self.optimizer.found_inf = is_nan  # type: ignore[attr-defined]  # skips the update without a device sync
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.optimizer.step()
        self.optimizer.zero_grad()
        return StepResult(nll, targets, grad_norm.nan_to_num(0, 0, 0), is_nan)

    def run_or_split(self, batches: Sequence[Batch], number: int, lr: float) -> StepResult:
        """Makes a step; a single process that runs out of memory splits its micro-batches in half and tries again."""
        while True:
            try:
                return self.run(batches, number, lr)
            except torch.OutOfMemoryError:
                self.optimizer.zero_grad()
                halves = [half for batch in batches for half in batch.halves()]
                if len(halves) == len(batches) or self.world.size > 1:
                    raise UserError(
                        f"a batch of {max(len(batch.targets) for batch in batches):,} target tokens does not fit in "
                        "memory: reduce it with --set train.batch_tokens=N, or split the step with "
                        "--set train.gradient_accumulation=4"
                    ) from None
            batches = halves


def compile_blocks(network: Network) -> None:
    """Compiles the blocks one by one: those of the same shape share their code, so each shape is compiled once."""
    for module in network.modules():
        if isinstance(module, Block):
            module.compile(dynamic=False, fullgraph=True)


def seed_step(*numbers: int) -> None:
    """Seeds the random numbers with a hash of seed, step and process (splitmix64): neighbouring steps get unrelated ones."""
    mask, state = (1 << 64) - 1, 0
    for number in numbers:
        state = (state ^ (number + 0x9E3779B97F4A7C15)) & mask
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & mask
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & mask
        state ^= state >> 31
    torch.manual_seed(state)
