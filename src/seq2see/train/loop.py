"""The training step, and the state that a checkpoint keeps.

Teacher forcing: the decoder reads the right words one place behind, all positions at once, and every position predicts
its next. All random numbers of a step come from (seed, step, process), so that a step does not depend on what ran before
it: a run that was killed and resumed makes the very same steps.
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
from seq2see.errors import UserError
from seq2see.model.network import Network
from seq2see.precision import precision_of
from seq2see.text.batches import Batch, Batches, TensorBatch
from seq2see.train.estimates import operations, peak
from seq2see.train.loss import Losses, divergence, loss
from seq2see.train.parallel import World, fill, spread, whole, without_sync
from seq2see.train.schedule import learning_rate

NAN_LIMIT = 5  # steps in a row with a loss that is no number, before the run stops


@dataclass
class State:
    """Where a run stands. `batch` is the next micro-batch of the epoch."""

    step: int = 0
    epoch: int = 0
    batch: int = 0
    tokens: int = 0  # real target tokens seen
    seconds: float = 0.0
    skipped: int = 0  # steps whose gradient was no number
    scores: list[tuple[int, float]] = field(default_factory=list)  # the validations: step, and score (more is better)

    @property
    def best(self) -> float:
        return max((score for _, score in self.scores), default=-math.inf)


@dataclass(frozen=True)
class Progress:
    """What a step says of itself, summed up since the last time it was asked."""

    step: int
    epoch: float
    loss: float  # −ln p a target token
    lr: float
    gradient: float  # its length before clipping
    tokens_per_second: float
    peak: float | None  # the share that was used of what the device can do at most, where that is known
    share: float  # of the training that is over


class Trainer:
    def __init__(self, config: Config, model: Network, batches: Callable[[int], Batches], world: World) -> None:
        self.config, self.model, self.batches, self.world = config, model, batches, world
        self.state = State()
        self.module = spread(model, world, config.train.shard)
        self.precision = precision_of(config, world.device)
        # Only matrices decay: biases and norms have no size to keep small.
        parameters = list(model.parameters())  # from here on shards, if they are sharded
        groups = [
            {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": config.train.weight_decay},
            {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
        ]
        train = config.train
        self.optimizer = torch.optim.AdamW(
            groups, lr=0.0, betas=(train.beta1, train.beta2), eps=train.epsilon, fused=True
        )
        self.ema = {name: p.detach().clone() for name, p in model.named_parameters()} if train.ema else {}
        # A recurrent layer is one kernel already, or a loop that would be compiled anew for every length.
        compiled = train.compile and world.device.type == "cuda" and config.model.kind == "transformer"
        self._losses = torch.compile(self._run, dynamic=False) if compiled else self._run
        self._feed: Iterator[_Step] | None = None
        self._sums = torch.zeros(
            3, device=world.device
        )  # plain loss, targets, gradient's length; since the last report
        self._uncounted = torch.zeros(2, device=world.device)  # targets and skipped steps that the state lacks
        self._bad_in_a_row = torch.zeros((), device=world.device)
        self._since = (0, time.perf_counter())
        self._peak = peak(world.device, self.precision.dtype)
        self._operations = 0.0  # of this process, since the last report

    def step(self) -> None:
        """One step of the optimizer, made of as many micro-batches as there are."""
        self._feed = self._feed or self._ahead()
        planned = next(self._feed)
        state, train = self.state, self.config.train
        state.step += 1
        self.model.train()
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(train, self.config.model.width, state.step, self.share)
        # Filled on the device, since copying a number there would make the host wait for it.
        count = float(sum(batch.count for batch in planned.batches))
        total = self.world.sum(torch.full((), count, device=self.world.device))
        plain = self._backward(planned.batches, total)
        length, bad = self._update()
        self._sums += torch.stack([self.world.sum(plain).nan_to_num(), total, length])
        self._uncounted += torch.stack([total, bad])
        state.epoch, state.batch = planned.after
        if self._peak:
            self._operations += sum(operations(self.config.model, batch) for batch in planned.batches)
        if train.ema:
            for name, p in self.model.named_parameters():
                self.ema[name].lerp_(p.detach(), 1 - min(train.ema, state.step / (state.step + 10)))

    def _backward(self, batches: Sequence[Batch], total: Tensor) -> Tensor:
        """Gradients of the mean over all targets of all processes; the summed plain loss of this one's."""
        pieces = list(batches)
        while True:
            try:
                return self._try_backward(pieces, total)
            except torch.OutOfMemoryError:
                self.optimizer.zero_grad()
                halves = [half for piece in pieces for half in piece.halves()]
                if len(halves) == len(pieces) or self.world.size > 1:
                    raise UserError(
                        f"a batch of {max(len(p.targets) for p in pieces):,} target tokens does not fit in memory: "
                        "take fewer with --set train.tokens=…, or cut the step with --set train.accumulate=4"
                    ) from None
                pieces = halves

    def _try_backward(self, batches: Sequence[Batch], total: Tensor) -> Tensor:
        torch.manual_seed(mixed(self.config.train.seed, self.state.step, self.world.rank))
        plain = torch.zeros((), device=self.world.device)
        for number, batch in enumerate(batches):
            with without_sync(self.module, last=number == len(batches) - 1):
                losses = self._losses(batch.to(self.world.device))
                # Averaging over processes will divide by their number.
                (losses.objective * (self.world.size / total)).backward()
                plain += losses.plain
        return plain

    def _run(self, batch: TensorBatch) -> Losses:
        smoothing = self.config.train.label_smoothing
        with self.precision.autocast():
            inputs = (batch.inputs,) if batch.source is None else (batch.source, batch.inputs)
            logits = self.module(*inputs)
            first = loss(logits, batch.targets, smoothing)
            if not self.config.train.r_drop:
                return first
            again = self.module(*inputs)
            second = loss(again, batch.targets, smoothing)
            apart = divergence(logits, again, batch.targets)
        objective = (first.objective + second.objective) / 2 + self.config.train.r_drop * apart / 2
        return Losses(objective, (first.plain + second.plain) / 2)

    def _update(self) -> tuple[Tensor, Tensor]:
        """Clips and steps. A gradient that is no number changes nothing and is counted, without the host waiting for it."""
        clip = self.config.train.clip or math.inf
        length = whole(nn.utils.clip_grad_norm_(self.model.parameters(), clip))
        bad = (~length.isfinite()).float()
        self.optimizer.found_inf = bad  # type: ignore[attr-defined]
        self.optimizer.step()
        self.optimizer.zero_grad()
        self._bad_in_a_row = (self._bad_in_a_row + bad) * bad
        return length.nan_to_num(0, 0, 0), bad

    def report(self) -> Progress:
        """What happened since the last report. This waits for the device, so it is not asked for at every step."""
        self._count()
        plain, targets, length = self._sums.tolist()
        self._sums.zero_()
        in_a_row = int(self._bad_in_a_row)
        if in_a_row >= NAN_LIMIT:
            raise UserError(
                f"the loss was no number in {in_a_row} steps in a row, up to step {self.state.step:,}: try a lower "
                f"learning rate (train.lr = {self.config.train.lr}), a longer warm-up (train.warmup = "
                f"{self.config.train.warmup}) or train.precision=float32"
            )
        step, moment = self._since
        now = time.perf_counter()
        self._since = (self.state.step, now)
        steps = max(self.state.step - step, 1)
        used, self._operations = self._operations * (2 if self.config.train.r_drop else 1), 0.0
        return Progress(
            step=self.state.step,
            epoch=self.epochs,
            loss=plain / max(targets, 1),
            lr=self.optimizer.param_groups[0]["lr"],
            gradient=length / steps,
            tokens_per_second=targets / (now - moment),
            peak=used / (now - moment) / self._peak if self._peak else None,
            share=self.share,
        )

    def _count(self) -> None:
        tokens, skipped = self._uncounted.tolist()
        self.state.tokens += int(tokens)
        self.state.skipped += int(skipped)
        self._uncounted.zero_()

    @property
    def epochs(self) -> float:
        """Rounds through the corpus so far."""
        return self.state.epoch + self.state.batch / self._batches_now()

    def _batches_now(self) -> int:
        """Micro-batches of the epoch in which the run is."""
        return self.batches(self.state.epoch).count(self.state.epoch)

    @property
    def share(self) -> float:
        """The part of the training that is over, by the limit that is nearest."""
        train, state = self.config.train, self.state
        shares = [state.step / train.steps] if train.steps else []
        if train.epochs:
            shares.append(self.epochs / train.epochs)
        if train.minutes:
            shares.append(state.seconds / 60 / train.minutes)
        return max(shares, default=0.0)

    def _ahead(self) -> Iterator["_Step"]:
        """The coming steps' batches, built by a thread while the device works."""
        with ThreadPoolExecutor(1) as pool:
            place = (self.state.epoch, self.state.batch)
            waiting = [pool.submit(self._plan, *place)]
            while True:
                ready = waiting.pop(0).result()
                waiting.append(pool.submit(self._plan, *ready.after))
                yield ready

    def _plan(self, epoch: int, first: int) -> "_Step":
        """The micro-batches first, first + 1, … of a step, shared out among the processes."""
        batches, world = self.batches(epoch), self.world
        count = batches.count(epoch)
        end = min(first + self.config.train.accumulate, count)
        # All make the same number of passes, as shards are exchanged in each: who has no batch gets an idle one, which
        # is what there is beyond the last.
        numbers = [number + world.rank for number in range(first, end, world.size)]
        own = [batches.batch(epoch, number if number < end else count) for number in numbers]
        return _Step(own, (epoch, end) if end < count else (epoch + 1, 0))

    def weights(self) -> dict[str, Tensor]:
        """The model's weights, or their running mean where one is kept; whole, in the leading process."""
        return self._gathered(self.ema or dict(self.model.named_parameters()))

    def tensors(self) -> dict[str, Tensor]:
        """Everything that changes in training, by name; whole, in the leading process."""
        found = {f"model.{name}": p for name, p in self.model.named_parameters()}
        for name, p in self.model.named_parameters():
            found |= {f"{key}.{name}": value for key, value in self.optimizer.state[p].items()}
        return self._gathered(found | {f"ema.{name}": value for name, value in self.ema.items()})

    def _gathered(self, named: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """One after the other, and what was in shards to the CPU: all at once may not fit on a device."""
        found = {}
        for name, tensor in named.items():
            piece = whole(tensor.detach())
            if self.world.leads:
                found[name] = piece.cpu() if self.config.train.shard else piece
        return found

    def restore(self, tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> None:
        known = dict(self.model.named_parameters())
        fill(known, {name: tensors[f"model.{name}"] for name in known})
        for name, p in known.items():
            if f"exp_avg.{name}" not in tensors:
                continue
            state = {"step": tensors[f"step.{name}"].to(self.world.device)}
            for key in ("exp_avg", "exp_avg_sq"):
                state[key] = torch.zeros_like(p)
                fill({"": state[key]}, {"": tensors[f"{key}.{name}"]})
            self.optimizer.state[p] = state
        fill(self.ema, {name: tensors[f"ema.{name}"] for name in self.ema if f"ema.{name}" in tensors} or self.ema)
        self.state = State(**{**about["state"], "scores": [tuple(score) for score in about["state"]["scores"]]})
        # With other settings an epoch may have other batches: then about where the run stood.
        self.state.batch = self.state.batch * self._batches_now() // about["batches"]
        self._sums.copy_(torch.tensor(about["unreported"]["sums"]))
        self._since = (about["unreported"]["step"], time.perf_counter() - about["unreported"]["seconds"])

    def fits(self, tensors: Mapping[str, Tensor]) -> bool:
        """Whether these can be this model's, by their names and shapes."""
        prefix = "model."
        found = {name: tensor.shape for name, tensor in tensors.items() if name.startswith(prefix)}
        return found == {prefix + name: p.shape for name, p in self.model.named_parameters()}

    def about(self) -> dict[str, Any]:
        self._count()
        step, moment = self._since
        unreported = {"sums": self._sums.tolist(), "step": step, "seconds": time.perf_counter() - moment}
        return {
            "state": asdict(self.state), "batches": self._batches_now(), "unreported": unreported,
            "threads": torch.get_num_threads(),
        }  # fmt: skip


@dataclass(frozen=True)
class _Step:
    batches: list[Batch]  # of this process
    after: tuple[int, int]  # epoch and micro-batch that come next


def mixed(*numbers: int) -> int:
    """A seed from several numbers, such that near ones give unlike seeds (splitmix64)."""
    state = 0
    for number in numbers:
        state = (state ^ (number + 0x9E3779B97F4A7C15)) & _MASK
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
        state ^= state >> 31
    return state


_MASK = (1 << 64) - 1
