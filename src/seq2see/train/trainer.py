"""The trainer: makes one step after the other, measures them, and saves and restores the state of the training."""

import math
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor

from seq2see.config import Config
from seq2see.data.batch import Batch
from seq2see.data.batches import Batches
from seq2see.errors import UserError
from seq2see.model.network import Network
from seq2see.train.estimates import peak_flops, training_flops
from seq2see.train.graph_step import GraphStep, StaticBatch
from seq2see.train.parallel import World, copy_full_tensor, full_tensor
from seq2see.train.schedule import learning_rate
from seq2see.train.step import StepResult, TrainStep

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


@dataclass(frozen=True)
class StepPlan:
    """The micro-batches of one step, in this process."""

    batches: list[Batch]
    static_batches: list[StaticBatch]  # the same for a `GraphStep`
    next_position: tuple[int, int]  # epoch and first micro-batch of the next step
    batches_in_epoch: int


class Trainer:
    """Trains a model, one step after the other."""

    def __init__(self, config: Config, model: Network, batches: Batches, world: World) -> None:
        self.config, self.model, self.batches, self.world = config, model, batches, world
        self.state = State()
        self.plain_step = TrainStep(model, config.train, world)
        self.precision = self.plain_step.precision
        self.graph_step = GraphStep(self.plain_step, batches.shape) if self.plain_step.capturable else None
        self._planner = ThreadPoolExecutor(1)
        self._next_plan: Future[StepPlan] | None = None
        self._batches_in_epoch = 1  # of the epoch of the last step
        # Accumulated on the device since the last report: nll, targets, gradient norm.
        self._sums = torch.zeros(3, device=world.device)
        self._pending = torch.zeros(2, device=world.device)  # targets and skipped steps not yet added to the state
        self._consecutive_nan = torch.zeros((), device=world.device)
        self._peak_flops = peak_flops(world.device, self.precision.dtype)
        self._flops = 0.0  # of this process since the last report
        self._start_time = time.perf_counter()
        self._last_report = (0, self._start_time)  # step and time

    def step(self) -> None:
        """Makes the next step."""
        plan, state, train = self._take_plan(), self.state, self.config.train
        state.step += 1
        lr = learning_rate(train, self.config.model.width, state.step, self.progress)
        self._record(self._run(plan, lr))
        if self._peak_flops:
            self._flops += sum(training_flops(self.config.model, batch) for batch in plan.batches)
        (state.epoch, state.batch), self._batches_in_epoch = plan.next_position, plan.batches_in_epoch
        state.seconds = time.perf_counter() - self._start_time
        if train.minutes:  # clocks differ, but all processes must stop at the same step
            (state.seconds,) = self.world.all_reduce_max(state.seconds)

    def _run(self, plan: StepPlan, lr: float) -> StepResult:
        """Replays CUDA graphs, if it can; out of memory, continues with plain steps, which can split a batch."""
        if self.graph_step is not None:
            try:
                return self.graph_step.run(plan.static_batches, self.state.step, lr)
            except torch.OutOfMemoryError:
                self.graph_step = None
            # After the handler, whose traceback refers to the graphs and their memory.
            self.plain_step.optimizer.zero_grad()
            self.plain_step.optimizer.grad_scale = None  # type: ignore[attr-defined]
            torch.cuda.empty_cache()
        return self.plain_step.run_or_split(plan.batches, self.state.step, lr)

    def _take_plan(self) -> StepPlan:
        """Returns the batches of this step; a thread builds those of the next one while the device works."""
        this = self._next_plan or self._planner.submit(self._plan_step, self.state.epoch, self.state.batch)
        plan = this.result()
        self._next_plan = self._planner.submit(self._plan_step, *plan.next_position)
        return plan

    def _plan_step(self, epoch: int, first: int) -> StepPlan:
        """Builds this process's share of the micro-batches first, first + 1, … of a step."""
        world, count = self.world, self.batches.num_batches(epoch)
        end = min(first + self.config.train.gradient_accumulation, count)
        # FSDP exchanges shards in every pass, so all processes make the same number of passes: one without a batch gets
        # the empty batch that follows the last of the epoch.
        numbers = [number + world.rank for number in range(first, end, world.size)]
        local = [self.batches.batch(epoch, number if number < end else count) for number in numbers]
        static = [] if self.graph_step is None else [StaticBatch(batch) for batch in local]
        return StepPlan(local, static, (epoch, end) if end < count else (epoch + 1, 0), count)

    @property
    def epochs(self) -> float:
        """Passes over the corpus so far."""
        return self.state.epoch + self.state.batch / self._batches_in_epoch

    @property
    def progress(self) -> float:
        """Fraction of the training that is done, by the limit that will be reached first."""
        train, state = self.config.train, self.state
        limits = ((state.step, train.steps), (self.epochs, train.epochs), (state.seconds / 60, train.minutes))
        return max((done / limit for done, limit in limits if limit), default=0.0)

    def _record(self, result: StepResult) -> None:
        self._consecutive_nan = (self._consecutive_nan + result.is_nan) * result.is_nan
        self._sums += torch.stack([result.nll.nan_to_num(), result.targets, result.grad_norm])
        self._pending += torch.stack([result.targets, result.is_nan])

    def _count_pending(self) -> None:
        tokens, skipped = self._pending.tolist()
        self.state.target_tokens += int(tokens)
        self.state.skipped_steps += int(skipped)
        self._pending.zero_()

    def report(self) -> StepReport:
        """Returns the metrics since the last report. Synchronises with the device, so it is not called at every step."""
        self._count_pending()
        nll, targets, grad_norm = self._sums.tolist()
        self._sums.zero_()
        state, train, consecutive = self.state, self.config.train, int(self._consecutive_nan)
        if consecutive >= MAX_NAN_STEPS:
            raise UserError(
                f"the loss was NaN in {consecutive} consecutive steps, up to step {state.step:,}: try a lower learning "
                f"rate (train.lr = {train.lr}), a longer warm-up (train.warmup_steps = {train.warmup_steps}) or "
                "train.precision=float32"
            )
        last_step, last_time = self._last_report
        self._last_report = state.step, time.perf_counter()
        steps, seconds = max(state.step - last_step, 1), self._last_report[1] - last_time
        flops, self._flops = self._flops * (2 if train.r_drop else 1), 0.0
        return StepReport(
            step=state.step,
            epoch=self.epochs,
            loss=nll / max(targets, 1),
            lr=float(self.plain_step.optimizer.param_groups[0]["lr"]),
            grad_norm=grad_norm / steps,
            tokens_per_second=targets / seconds,
            mfu=flops / seconds / self._peak_flops if self._peak_flops else None,
            progress=self.progress,
        )

    def weights(self) -> dict[str, Tensor]:
        """Returns the full weights; empty except in the main process."""
        return self._gather(dict(self.model.named_parameters()))

    def checkpoint_tensors(self) -> dict[str, Tensor]:
        """Returns all tensors that training changes, by name, in full; empty except in the main process."""
        tensors = {f"model.{name}": p for name, p in self.model.named_parameters()}
        for name, p in self.model.named_parameters():
            tensors |= {f"{key}.{name}": value for key, value in self.plain_step.optimizer.state[p].items()}
        return self._gather(tensors)

    def _gather(self, named: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Gathers shards one tensor at a time onto the CPU: all of them might not fit on the device."""
        gathered = {}
        for name, tensor in named.items():
            full = full_tensor(tensor.detach())
            if self.world.is_main:
                gathered[name] = full.cpu() if self.config.train.fsdp else full
        return gathered

    def metadata(self) -> dict[str, Any]:
        """Returns the part of a checkpoint that is not tensors, as JSON values."""
        self._count_pending()
        step, last_time = self._last_report
        unreported = {"step": step, "seconds": time.perf_counter() - last_time, "sums": self._sums.tolist()}
        return {
            "state": asdict(self.state),
            "batches_in_epoch": self._batches_in_epoch,
            "since_last_report": unreported,
            "threads": torch.get_num_threads(),
        }

    def is_compatible(self, tensors: Mapping[str, Tensor]) -> bool:
        """Whether checkpoint tensors have this model's names and shapes."""
        prefix = "model."
        shapes = {name: tensor.shape for name, tensor in tensors.items() if name.startswith(prefix)}
        return shapes == {prefix + name: p.shape for name, p in self.model.named_parameters()}

    def restore(self, tensors: Mapping[str, Tensor], metadata: Mapping[str, Any]) -> None:
        """Continues from `checkpoint_tensors` and `metadata` of an earlier run."""
        for name, p in self.model.named_parameters():
            copy_full_tensor(p, tensors[f"model.{name}"])
            if f"exp_avg.{name}" in tensors:
                moments = {key: torch.zeros_like(p) for key in ("exp_avg", "exp_avg_sq")}
                for key, moment in moments.items():
                    copy_full_tensor(moment, tensors[f"{key}.{name}"])
                moments["step"] = tensors[f"step.{name}"].to(self.world.device)
                self.plain_step.optimizer.state[p] = moments
        if self.graph_step is not None:
            self.graph_step.refresh()
        scores = [tuple(score) for score in metadata["state"]["scores"]]
        self.state = state = State(**{**metadata["state"], "scores": scores})
        # Changed settings may change the number of batches per epoch: continue at about the same place.
        self._batches_in_epoch = self.batches.num_batches(state.epoch)
        state.batch = state.batch * self._batches_in_epoch // metadata["batches_in_epoch"]
        unreported, now = metadata["since_last_report"], time.perf_counter()
        self._sums.copy_(torch.tensor(unreported["sums"]))
        self._start_time = now - state.seconds
        self._last_report = (unreported["step"], now - unreported["seconds"])
