"""The training step and the training state stored in checkpoints.

Training uses teacher forcing: the decoder reads the reference shifted by one position and predicts every next token in one
pass. The random numbers of a step are derived from (seed, step, process) alone, so a resumed run makes the same steps as an
uninterrupted one.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from seq2see.config import Config
from seq2see.data.batches import Batch, Batches, TensorBatch
from seq2see.errors import UserError
from seq2see.model.network import Network
from seq2see.model.transformer import Transformer
from seq2see.tensors.precision import compute_precision
from seq2see.train.estimates import peak_flops, training_flops
from seq2see.train.graph_step import GraphStep, StaticBatch, compile_blocks
from seq2see.train.loss import Losses, cross_entropy, output_loss, symmetric_kl
from seq2see.train.parallel import World, copy_full_tensors, full_tensor, gradient_sync, parallelize
from seq2see.train.schedule import learning_rate

MAX_NAN_STEPS = 5  # consecutive steps with a NaN loss before the run stops


@dataclass
class State:
    """The progress of a run. `batch` is the next micro-batch of the epoch."""

    step: int = 0
    epoch: int = 0
    batch: int = 0
    target_tokens: int = 0  # without padding
    seconds: float = 0.0
    skipped_steps: int = 0  # steps with a NaN or infinite gradient
    scores: list[tuple[int, float]] = field(default_factory=list)  # (step, score) per validation; higher is better

    @property
    def best_score(self) -> float:
        return max((score for _, score in self.scores), default=-math.inf)


@dataclass(frozen=True)
class StepReport:
    """Training metrics since the previous report."""

    step: int
    epoch: float
    loss: float  # −ln p per target token
    lr: float
    grad_norm: float  # before clipping
    tokens_per_second: float
    mfu: float | None  # model FLOPs utilization: share of the device's peak, if that is known
    progress: float  # fraction of the training that is done


class Trainer:
    """Makes optimizer steps; `batches` returns the micro-batches of an epoch."""

    def __init__(self, config: Config, model: Network, batches: Callable[[int], Batches], world: World) -> None:
        self.config, self.model, self.batches, self.world = config, model, batches, world
        self.state = State()
        self.num_targets = 0  # of the last step, in this process
        train = config.train
        self.precision = compute_precision(train.precision, config.model.width, world.device)
        # Recurrent layers are not compiled: each is already one kernel, or a loop that would recompile for every length.
        # Batches of pictures and sounds are not static: their convolutions pad, which must not reach the maximum length.
        compiled = train.compile and world.device.type == "cuda" and config.model.source == "tokens"
        transformer = model if isinstance(model, Transformer) and compiled else None
        use_graphs = transformer is not None and world.size == 1 and self.precision.dtype is torch.bfloat16
        if transformer is not None and not use_graphs:
            compile_blocks(transformer)
        self.module = parallelize(model, world, train.fsdp)
        # Weight decay applies to matrices only, not to biases and norms.
        parameters = list(model.parameters())  # shards under FSDP
        groups = [
            {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": config.train.weight_decay},
            {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
        ]
        self.optimizer = torch.optim.AdamW(
            groups, lr=torch.zeros((), device=world.device) if use_graphs else 0.0, betas=(train.beta1, train.beta2),
            eps=train.epsilon, fused=True, capturable=use_graphs,
        )  # fmt: skip
        self._cross_entropy = torch.compile(cross_entropy, dynamic=False) if transformer is not None else cross_entropy
        self._symmetric_kl = torch.compile(symmetric_kl, dynamic=False) if transformer is not None else symmetric_kl
        self._output_loss = torch.compile(output_loss, dynamic=False)
        self.graph_step: GraphStep | None = None
        if use_graphs and transformer is not None:
            self.graph_step = GraphStep(
                transformer, self.optimizer, batches(0).shape, self.precision.dtype, self._graph_losses, train.max_grad_norm
            )  # fmt: skip
        self._plans: Iterator[_StepPlan] | None = None
        # Accumulated on the device since the last report: nll, targets, gradient norm.
        self._sums = torch.zeros(3, device=world.device)
        self._pending = torch.zeros(2, device=world.device)  # targets and skipped steps not yet added to the state
        self._consecutive_nan = torch.zeros((), device=world.device)
        self._last_report = (0, time.perf_counter())  # step and time
        self._peak_flops = peak_flops(world.device, self.precision.dtype)
        self._flops = 0.0  # of this process since the last report

    def step(self) -> None:
        """Makes one optimizer step over all its micro-batches."""
        self._plans = self._plans or self._prefetch_plans()
        plan = next(self._plans)
        state, train = self.state, self.config.train
        state.step += 1
        self.num_targets = plan.num_targets
        lr = learning_rate(train, self.config.model.width, state.step, self.progress)
        if self.graph_step is not None:
            self._graph_step(plan, lr)
        else:
            self._plain_step(plan, lr)
        state.epoch, state.batch = plan.next_position
        if self._peak_flops:
            self._flops += sum(training_flops(self.config.model, batch) for batch in plan.batches)

    def _graph_step(self, plan: "_StepPlan", lr: float) -> None:
        """Makes a step by replaying CUDA graphs; if out of memory, falls back to plain steps, which can split a batch."""
        assert self.graph_step is not None
        step = self.graph_step
        try:
            step.run(plan.static_batches, plan.num_targets, lr, self._seed())
        except torch.OutOfMemoryError:
            self.graph_step = None
            del step  # frees the memory of its graphs
            self.optimizer.zero_grad()
            self.optimizer.grad_scale = None  # type: ignore[attr-defined]
            torch.cuda.empty_cache()
            self._plain_step(plan, lr)
            return
        self._record(step.nll, step.total, step.grad_norm, step.is_nan)

    def _graph_losses(self, network: Transformer, batch: TensorBatch) -> Losses:
        train = self.config.train
        if train.r_drop:
            return self._losses(network, batch)
        vectors = network.vectors(batch.source or batch.inputs, batch.inputs if batch.source else None)
        return self._output_loss(network, vectors, batch.targets, train.label_smoothing)

    def _plain_step(self, plan: "_StepPlan", lr: float) -> None:
        self.model.train()
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        # Created on the device: copying a number from the host would synchronise.
        total = self.world.all_reduce_sum(torch.full((), float(plan.num_targets), device=self.world.device))
        nll = self._backward(plan.batches, total)
        self._record(self.world.all_reduce_sum(nll), total, *self._update())

    def _record(self, nll: Tensor, total: Tensor, grad_norm: Tensor, is_nan: Tensor) -> None:
        self._consecutive_nan = (self._consecutive_nan + is_nan) * is_nan
        self._sums += torch.stack([nll.nan_to_num(), total, grad_norm])
        self._pending += torch.stack([total, is_nan])

    def _seed(self) -> int:
        return derive_seed(self.config.train.seed, self.state.step, self.world.rank)

    def _backward(self, batches: Sequence[Batch], total: Tensor) -> Tensor:
        """Computes gradients of the mean loss over all targets of all processes; returns this process's summed nll.

        A single process that runs out of memory splits its micro-batches in half and tries again.
        """
        parts = list(batches)
        while True:
            try:
                return self._try_backward(parts, total)
            except torch.OutOfMemoryError:
                self.optimizer.zero_grad()
                halves = [half for part in parts for half in part.halves()]
                if len(halves) == len(parts) or self.world.size > 1:
                    raise UserError(
                        f"a batch of {max(len(part.targets) for part in parts):,} target tokens does not fit in memory: "
                        "reduce it with --set train.batch_tokens=N, or split the step with "
                        "--set train.gradient_accumulation=4"
                    ) from None
                parts = halves

    def _try_backward(self, batches: Sequence[Batch], total: Tensor) -> Tensor:
        torch.manual_seed(self._seed())
        nll = torch.zeros((), device=self.world.device)
        for i, batch in enumerate(batches):
            with gradient_sync(self.module, enabled=i == len(batches) - 1):
                losses = self._compute_losses(batch.to(self.world.device))
                # DDP and FSDP average gradients over the processes, so the world size cancels that division.
                (losses.objective * (self.world.size / total)).backward()
                nll += losses.nll
        return nll

    def _compute_losses(self, batch: TensorBatch) -> Losses:
        with self.precision.autocast():
            return self._losses(self.module, batch)

    def _losses(self, module: nn.Module, batch: TensorBatch) -> Losses:
        smoothing = self.config.train.label_smoothing
        logits = module(*batch.model_inputs)
        first = self._cross_entropy(logits, batch.targets, smoothing)
        if not self.config.train.r_drop:
            return first
        second_logits = module(*batch.model_inputs)
        second = self._cross_entropy(second_logits, batch.targets, smoothing)
        divergence = self._symmetric_kl(logits, second_logits, batch.targets)
        objective = (first.objective + second.objective) / 2 + self.config.train.r_drop * divergence / 2
        return Losses(objective, (first.nll + second.nll) / 2)

    def _update(self) -> tuple[Tensor, Tensor]:
        """Clips gradients and updates the weights; skips the update if the gradient is NaN, without a device sync."""
        max_norm = self.config.train.max_grad_norm or math.inf
        grad_norm = full_tensor(nn.utils.clip_grad_norm_(self.model.parameters(), max_norm))
        is_nan = (~grad_norm.isfinite()).float()
        self.optimizer.found_inf = is_nan  # type: ignore[attr-defined]
        self.optimizer.step()
        self.optimizer.zero_grad()
        return grad_norm.nan_to_num(0, 0, 0), is_nan

    def report(self) -> StepReport:
        """Returns the metrics since the last report. Synchronises with the device, so it is not called at every step."""
        self._count_pending()
        nll, targets, grad_norm = self._sums.tolist()
        self._sums.zero_()
        consecutive = int(self._consecutive_nan)
        if consecutive >= MAX_NAN_STEPS:
            raise UserError(
                f"the loss was NaN in {consecutive} consecutive steps, up to step {self.state.step:,}: try a lower "
                f"learning rate (train.lr = {self.config.train.lr}), a longer warm-up (train.warmup_steps = "
                f"{self.config.train.warmup_steps}) or train.precision=float32"
            )
        last_step, last_time = self._last_report
        now = time.perf_counter()
        self._last_report = (self.state.step, now)
        steps = max(self.state.step - last_step, 1)
        flops, self._flops = self._flops * (2 if self.config.train.r_drop else 1), 0.0
        return StepReport(
            step=self.state.step,
            epoch=self.epochs,
            loss=nll / max(targets, 1),
            lr=float(self.optimizer.param_groups[0]["lr"]),
            grad_norm=grad_norm / steps,
            tokens_per_second=targets / (now - last_time),
            mfu=flops / (now - last_time) / self._peak_flops if self._peak_flops else None,
            progress=self.progress,
        )

    def _count_pending(self) -> None:
        tokens, skipped = self._pending.tolist()
        self.state.target_tokens += int(tokens)
        self.state.skipped_steps += int(skipped)
        self._pending.zero_()

    @property
    def epochs(self) -> float:
        """Passes over the corpus so far."""
        return self.state.epoch + self.state.batch / self._batches_in_epoch()

    def _batches_in_epoch(self) -> int:
        """Number of micro-batches in the current epoch."""
        return self.batches(self.state.epoch).num_batches(self.state.epoch)

    @property
    def progress(self) -> float:
        """Fraction of the training that is done, by the limit that will be reached first."""
        train, state = self.config.train, self.state
        fractions = [state.step / train.steps] if train.steps else []
        if train.epochs:
            fractions.append(self.epochs / train.epochs)
        if train.minutes:
            fractions.append(state.seconds / 60 / train.minutes)
        return max(fractions, default=0.0)

    def _prefetch_plans(self) -> Iterator["_StepPlan"]:
        """Yields the batches of each step; a thread builds the next step's while the device works."""
        with ThreadPoolExecutor(1) as pool:
            pending = pool.submit(self._plan_step, self.state.epoch, self.state.batch)
            while True:
                plan = pending.result()
                pending = pool.submit(self._plan_step, *plan.next_position)
                yield plan

    def _plan_step(self, epoch: int, first: int) -> "_StepPlan":
        """Builds this process's share of the micro-batches first, first + 1, … of a step."""
        batches, world = self.batches(epoch), self.world
        count = batches.num_batches(epoch)
        end = min(first + self.config.train.gradient_accumulation, count)
        # FSDP exchanges shards in every pass, so all processes make the same number of passes: one without a batch gets
        # the empty batch that follows the last of the epoch.
        numbers = [number + world.rank for number in range(first, end, world.size)]
        local = [batches.batch(epoch, number if number < end else count) for number in numbers]
        static = [] if self.graph_step is None else [StaticBatch(batch) for batch in local]
        num_targets = sum(batch.num_targets for batch in local)
        return _StepPlan(local, num_targets, (epoch, end) if end < count else (epoch + 1, 0), static)

    def weights(self) -> dict[str, Tensor]:
        """Returns the full weights; empty except in the main process."""
        return self._gather(dict(self.model.named_parameters()))

    def checkpoint_tensors(self) -> dict[str, Tensor]:
        """Returns all tensors that training changes, by name, in full; empty except in the main process."""
        tensors = {f"model.{name}": p for name, p in self.model.named_parameters()}
        for name, p in self.model.named_parameters():
            tensors |= {f"{key}.{name}": value for key, value in self.optimizer.state[p].items()}
        return self._gather(tensors)

    def _gather(self, named: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Gathers shards one tensor at a time onto the CPU: all of them might not fit on the device."""
        gathered = {}
        for name, tensor in named.items():
            full = full_tensor(tensor.detach())
            if self.world.is_main:
                gathered[name] = full.cpu() if self.config.train.fsdp else full
        return gathered

    def restore(self, tensors: Mapping[str, Tensor], metadata: Mapping[str, Any]) -> None:
        """Continues from `checkpoint_tensors` and `metadata` of an earlier run."""
        parameters = dict(self.model.named_parameters())
        copy_full_tensors(parameters, {name: tensors[f"model.{name}"] for name in parameters})
        for name, p in parameters.items():
            if f"exp_avg.{name}" not in tensors:
                continue
            state = {"step": tensors[f"step.{name}"].to(self.world.device)}
            for key in ("exp_avg", "exp_avg_sq"):
                state[key] = torch.zeros_like(p)
                copy_full_tensors({"": state[key]}, {"": tensors[f"{key}.{name}"]})
            self.optimizer.state[p] = state
        scores = [tuple(score) for score in metadata["state"]["scores"]]
        self.state = State(**{**metadata["state"], "scores": scores})
        if self.graph_step is not None:
            self.graph_step.refresh()
        # Changed settings may change the number of batches per epoch: continue at about the same place.
        self.state.batch = self.state.batch * self._batches_in_epoch() // metadata["batches_in_epoch"]
        unreported = metadata["since_last_report"]
        self._sums.copy_(torch.tensor(unreported["sums"]))
        self._last_report = (unreported["step"], time.perf_counter() - unreported["seconds"])

    def is_compatible(self, tensors: Mapping[str, Tensor]) -> bool:
        """Whether checkpoint tensors have this model's names and shapes."""
        prefix = "model."
        shapes = {name: tensor.shape for name, tensor in tensors.items() if name.startswith(prefix)}
        return shapes == {prefix + name: p.shape for name, p in self.model.named_parameters()}

    def metadata(self) -> dict[str, Any]:
        """Returns the part of a checkpoint that is not tensors, as JSON values."""
        self._count_pending()
        step, last_time = self._last_report
        unreported = {"step": step, "seconds": time.perf_counter() - last_time, "sums": self._sums.tolist()}
        return {
            "state": asdict(self.state), "batches_in_epoch": self._batches_in_epoch(),
            "since_last_report": unreported, "threads": torch.get_num_threads(),
        }  # fmt: skip


@dataclass(frozen=True)
class _StepPlan:
    batches: list[Batch]  # of this process
    num_targets: int
    next_position: tuple[int, int]  # epoch and first micro-batch of the next step
    static_batches: list[StaticBatch]


def derive_seed(*numbers: int) -> int:
    """Hashes several numbers into a seed (splitmix64), so that neighbouring numbers give unrelated seeds."""
    state = 0
    for number in numbers:
        state = (state ^ (number + 0x9E3779B97F4A7C15)) & _MASK
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
        state ^= state >> 31
    return state


_MASK = (1 << 64) - 1
