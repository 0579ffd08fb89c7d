"""The course of one training, with its files: steps, reports, validations, checkpoints and snapshots, until it is over; then
the weights are averaged, scored, and left as a model with its card.
"""

import json
import math
import platform
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor

from seq2see.config import Config
from seq2see.directory import save_weights, snapshot_file
from seq2see.errors import UsageError, UserError
from seq2see.files import written_whole
from seq2see.model.registry import kind_of
from seq2see.train.checkpoint import Checkpoints, Found, read
from seq2see.train.display import Display
from seq2see.train.loop import Trainer
from seq2see.train.model_card import card
from seq2see.train.parallel import World
from seq2see.train.prepare_data import Prepared
from seq2see.train.validation import Scores, validate

REPORT_EVERY = 20  # steps between two reports, at which the host waits for the device


class Course:
    """One training, with its files."""

    def __init__(
        self, config: Config, out: Path, world: World, display: Display, data: Prepared, trainer: Trainer
    ) -> None:
        self.config, self.out, self.world, self.display = config, out, world, display
        self.data, self.trainer = data, trainer
        self.checkpoints = Checkpoints(out / "checkpoints")
        self.began = time.perf_counter()
        self.saved = time.perf_counter()

    @property
    def state(self) -> Any:
        return self.trainer.state

    def restore(self) -> None:
        found = self._found()
        if found is None:
            self.display.say("no checkpoint yet: the run starts from the beginning")
            return
        about = found.about
        self.trainer.restore(found.tensors, about)
        if about["threads"] != torch.get_num_threads():
            self.display.say(
                f"the run had {about['threads']} threads and now has {torch.get_num_threads()}: "
                "numbers may differ in their last digits"
            )
        self.display.say(f"resumed at step {self.state.step:,}")

    def _found(self) -> Found | None:
        """The checkpoint to go on from, chosen by the leading process."""
        found = self._newest() if self.world.leads else None
        checkpoint = self.world.told(lambda: found.checkpoint if found else None)
        if checkpoint is None or self.world.leads:
            return found
        return Found(checkpoint, *read(checkpoint))

    def _newest(self) -> Found | None:
        """The newest sound checkpoint; what comes after it, or was left half done, is cleared away."""
        found, unusable = self.checkpoints.newest(self._is_own)
        for checkpoint in unusable:
            self.display.say(f"[yellow]{checkpoint.path.name} is damaged or of another run, and passed over[/]")
        step = found.checkpoint.step if found else 0
        self.checkpoints.clear(step, unusable)
        self.display.rewind(step)
        for part in self.out.rglob(".*.part"):
            part.unlink(missing_ok=True)
        return found

    def _is_own(self, found: Found) -> bool:
        return found.about.get("words") == self._words() and self.trainer.fits(found.tensors)

    def _words(self) -> list[str]:
        """What tells the checkpoints of models with other words, which may be of the same sizes."""
        return [tokenizer.fingerprint for tokenizer in self.data.tokenizers]

    def go(self) -> None:
        if self.config.train.tensorboard:
            self.display.also_to_tensorboard(self.state.step)
        every = self.config.train.validate_every or self._about_an_epoch()
        self.began = time.perf_counter() - self.state.seconds
        with _interruptible(self.world) as interrupted:
            while not self._is_over():
                self.trainer.step()
                state = self.state
                state.seconds, stop, save = self.world.most(
                    time.perf_counter() - self.began, interrupted(), self._save_is_due()
                )
                if self.config.train.snapshots and state.step & (state.step - 1) == 0:
                    self._snapshot()
                if state.step % REPORT_EVERY == 0 or state.step == 1:
                    self.display.step(self.trainer.report(), state.seconds)
                if state.step % every == 0:
                    self._validate()
                elif save or stop:
                    self._save()
                if stop:
                    self.checkpoints.finish()
                    self.world.wait()  # torchrun ends the others as soon as one has left
                    raise UserError(f"stopped at step {state.step:,}; go on with: seq2see train --resume {self.out}")
        if not self.state.scores or self.state.scores[-1][0] != self.state.step:
            self._validate()
        self.checkpoints.finish()
        self._finish()

    def _about_an_epoch(self) -> int:
        batches = self.data.batches(self.state.epoch).count(self.state.epoch)
        return min(max(math.ceil(batches / self.config.train.accumulate), 100), 2000)

    def _is_over(self) -> bool:
        train, state = self.config.train, self.state
        tired = False
        if train.patience and state.scores:
            best = max(range(len(state.scores)), key=lambda i: state.scores[i][1])
            tired = len(state.scores) - 1 - best >= train.patience
        limited = bool(train.steps or train.epochs or train.minutes or train.patience)
        if not limited:
            raise UsageError("say when to stop: --steps, --epochs, --minutes, or --set train.patience=10")
        return tired or self.trainer.share >= 1

    def _save_is_due(self) -> bool:
        train = self.config.train
        if train.save_every:
            return bool(self.state.step % train.save_every == 0)
        return time.perf_counter() - self.saved > train.save_minutes * 60

    def _save(self) -> None:
        self.saved = time.perf_counter()
        tensors = self.trainer.tensors()
        if self.world.leads:
            about = self.trainer.about() | {"words": self._words()}
            self.checkpoints.save("step", self.state.step, tensors, about)

    def _snapshot(self) -> None:
        tensors = self.trainer.weights()
        if self.world.leads:
            save_weights(snapshot_file(self.out, self.state.step), tensors, torch.bfloat16)

    def _measure(self, values: Mapping[str, Tensor], most: int) -> Scores:
        kind = kind_of(self.config.model)
        model = kind.from_weights(self.config.model, dict(values)).to(self.world.device).eval()
        return validate(
            model, self.data.valid_batches, self.data.valid, self.data.tokenizers, self.trainer.precision, most
        )

    def _validate(self) -> None:
        state, train = self.state, self.config.train
        values = self.trainer.weights()
        if self.world.leads:
            scores = self._measure(values, train.validate_on)
            value = scores.value(train.metric)
            best = value > state.best
            state.scores.append((state.step, value))
            self.display.validation(state.step, scores, best, self.data.valid)
            if train.average > 1 or best:
                self._keep(values)
        state.scores = self.world.told(lambda: state.scores)
        self._save()

    def _keep(self, values: Mapping[str, Tensor]) -> None:
        """Weights for the average in the end: those of the best, or the last, so many validations."""
        train, by_step = self.config.train, dict(self.state.scores)
        self.checkpoints.save("weights", self.state.step, values, {})
        self.checkpoints.finish()
        known = [c for c in self.checkpoints.of_kind("weights") if c.step in by_step]
        key: Callable[[Any], float] = (lambda c: by_step[c.step]) if train.average_of == "best" else (lambda c: c.step)
        for old in sorted(known, key=key, reverse=True)[train.average :]:
            old.path.unlink(missing_ok=True)

    def _finish(self) -> None:
        """Averages, takes what is better on the whole validation set, and leaves a model."""
        last = self.trainer.weights()
        if not self.world.leads:
            self.world.wait()
            return
        by_step = dict(self.state.scores)
        kept = self._kept(by_step) or {self.state.step: last}
        candidates = {
            f"step {max(kept, key=lambda step: by_step[step]):,}": kept[max(kept, key=lambda step: by_step[step])]
        }
        if len(kept) > 1:
            name = f"the average of {len(kept)} checkpoints, steps {min(kept):,} to {max(kept):,}"
            candidates[name] = {key: _mean([w[key] for w in kept.values()]) for key in next(iter(kept.values()))}
        everything = max(len(self.data.valid), 1)
        measured = {name: self._measure(values, everything) for name, values in candidates.items()}
        chosen = max(measured, key=lambda name: measured[name].value(self.config.train.metric))
        scores = measured[chosen]
        save_weights(self.out / "model.safetensors", candidates[chosen])
        about = self._about(chosen, scores)
        with written_whole(self.out / "scores.json") as part:
            part.write_text(json.dumps(about, indent=1, ensure_ascii=False), encoding="utf-8")
        with written_whole(self.out / "README.md") as part:
            part.write_text(card(self.config, self.out, about, self.data, scores), encoding="utf-8")
        points = "" if scores.bleu is None else f", BLEU {scores.bleu:.1f}, chrF++ {scores.chrf:.1f}"
        self.display.say(f"[bold]{self.out}[/] is ready: {chosen}; validation loss {scores.loss:.3f}{points}")
        self.world.wait()

    def _kept(self, by_step: Mapping[int, float]) -> dict[int, dict[str, Tensor]]:
        """The weights to average, but for those that a disk has damaged."""
        kept = {}
        for checkpoint in self.checkpoints.of_kind("weights"):
            if checkpoint.step not in by_step:
                continue
            try:
                kept[checkpoint.step] = read(checkpoint)[0]
            except UserError:
                self.display.say(f"[yellow]{checkpoint.path.name} is damaged and passed over[/]")
        return kept

    def _about(self, chosen: str, scores: Scores) -> dict[str, Any]:
        state = self.state
        place = (
            torch.cuda.get_device_name()
            if self.world.device.type == "cuda"
            else platform.processor() or platform.machine()
        )
        about: dict[str, Any] = {"weights": chosen, "validation": {"loss": round(scores.loss, 5)}}
        if scores.bleu is not None:
            about["validation"] |= {
                "bleu": round(scores.bleu, 2), "chrf": round(scores.chrf or 0, 2), "sentences": scores.sentences,
                "signatures": list(scores.signatures),
            }  # fmt: skip
        about["training"] = {
            "steps": state.step, "epochs": round(self.trainer.epochs, 2), "target_tokens": state.tokens,
            "seconds": round(state.seconds, 1), "skipped_steps": state.skipped, "processes": self.world.size,
            "device": place, "threads": torch.get_num_threads(), "torch": torch.__version__,
            "parameters": sum(p.numel() for p in self.trainer.model.parameters()),
            "precision": str(self.trainer.precision.dtype).removeprefix("torch."),
        }  # fmt: skip
        return about


def _mean(tensors: Sequence[Tensor]) -> Tensor:
    return torch.stack([tensor.double() for tensor in tensors]).mean(0).to(tensors[0].dtype)


@contextmanager
def _interruptible(world: World) -> Iterator[Callable[[], bool]]:
    """Ctrl-C asks the run to save and stop; a second one stops it at once."""
    asked = 0.0
    again = 2.0 if world.size > 1 else 0.0  # seconds: before that, it is torchrun passing on what Slurm sent to all

    def ask(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked and time.monotonic() - asked > again:
            raise KeyboardInterrupt
        asked = asked or time.monotonic()

    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    before = signal.signal(signal.SIGINT, ask)
    try:
        yield lambda: bool(asked)
    finally:
        signal.signal(signal.SIGINT, before)
