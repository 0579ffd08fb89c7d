"""Runs one training: steps, reports, validations, checkpoints and snapshots until a limit is reached; then averages the
weights, scores them, and writes the model with its model card.
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
from seq2see.files import atomic_write
from seq2see.model.registry import model_class
from seq2see.train.checkpoint import Checkpoint, CheckpointManager, LoadedCheckpoint, load_checkpoint
from seq2see.train.display import Display
from seq2see.train.loop import State, Trainer
from seq2see.train.model_card import model_card
from seq2see.train.parallel import World
from seq2see.train.prepare_data import TrainingData
from seq2see.train.validation import Scores, validate

REPORT_EVERY = 20  # steps between reports, which synchronise with the device


class Runner:
    """Runs one training and writes its files."""

    def __init__(
        self, config: Config, out: Path, world: World, display: Display, data: TrainingData, trainer: Trainer
    ) -> None:
        self.config, self.out, self.world, self.display = config, out, world, display
        self.data, self.trainer = data, trainer
        self.checkpoints = CheckpointManager(out / "checkpoints")
        self.start_time = time.perf_counter()
        self.last_saved = time.perf_counter()

    @property
    def state(self) -> State:
        return self.trainer.state

    def restore(self) -> None:
        """Loads the latest checkpoint, if there is one."""
        loaded = self._load_checkpoint()
        if loaded is None:
            self.display.message("no checkpoint found: starting from the beginning")
            return
        self.trainer.restore(loaded.tensors, loaded.metadata)
        threads = loaded.metadata["threads"]
        if threads != torch.get_num_threads():
            self.display.message(
                f"the number of threads changed from {threads} to {torch.get_num_threads()}: results may differ in the "
                "last digits"
            )
        self.display.message(f"resumed at step {self.state.step:,}")

    def _load_checkpoint(self) -> LoadedCheckpoint | None:
        """Loads the same checkpoint in all processes; the main process chooses it."""
        loaded = self._load_latest() if self.world.is_main else None
        file = self.world.broadcast(lambda: loaded.file if loaded else None)
        if file is None or self.world.is_main:
            return loaded
        return LoadedCheckpoint(file, *load_checkpoint(file))

    def _load_latest(self) -> LoadedCheckpoint | None:
        """Loads the newest valid checkpoint, and removes later files, log entries and incomplete files."""
        loaded, unusable = self.checkpoints.load_latest(self._is_own)
        for checkpoint in unusable:
            self.display.message(f"[yellow]skipping {checkpoint.path.name}: it is damaged or from another run[/]")
        step = loaded.file.step if loaded else 0
        self.checkpoints.discard(unusable, after=step)
        self.display.truncate_log(step)
        for part in self.out.rglob(".*.part"):
            part.unlink(missing_ok=True)
        return loaded

    def _is_own(self, loaded: LoadedCheckpoint) -> bool:
        """Whether a checkpoint has this run's shapes and tokenizers."""
        own_tokenizers = loaded.metadata.get("tokenizers") == self._tokenizer_fingerprints()
        return own_tokenizers and self.trainer.is_compatible(loaded.tensors)

    def _tokenizer_fingerprints(self) -> list[str]:
        return [tokenizer.fingerprint for tokenizer in self.data.tokenizers]

    def run(self) -> None:
        """Trains until a limit is reached, then writes the model."""
        if self.config.train.tensorboard:
            self.display.open_tensorboard(self.state.step)
        validate_every = self.config.train.validate_every or self._default_validation_interval()
        self.start_time = time.perf_counter() - self.state.seconds
        with _catch_interrupt(self.world) as interrupted:
            while not self._is_done():
                self.trainer.step()
                state = self.state
                state.seconds, stop, save = self.world.all_reduce_max(
                    time.perf_counter() - self.start_time, interrupted(), self._checkpoint_is_due()
                )
                if self.config.train.snapshots and state.step & (state.step - 1) == 0:
                    self._snapshot()
                if state.step % REPORT_EVERY == 0 or state.step == 1:
                    self.display.step(self.trainer.report(), state.seconds)
                if state.step % validate_every == 0:
                    self._validate()
                elif save or stop:
                    self._save()
                if stop:
                    self.checkpoints.wait()
                    self.world.barrier()  # torchrun terminates the others as soon as one exits
                    raise UserError(f"stopped at step {state.step:,}; to continue: seq2see train --resume {self.out}")
        if not self.state.scores or self.state.scores[-1][0] != self.state.step:
            self._validate()
        self.checkpoints.wait()
        self._finish()

    def _default_validation_interval(self) -> int:
        """About one epoch, in steps."""
        batches = self.data.batches(self.state.epoch).num_batches(self.state.epoch)
        return min(max(math.ceil(batches / self.config.train.gradient_accumulation), 100), 2000)

    def _is_done(self) -> bool:
        train, state = self.config.train, self.state
        out_of_patience = False
        if train.patience and state.scores:
            best = max(range(len(state.scores)), key=lambda i: state.scores[i][1])
            out_of_patience = len(state.scores) - 1 - best >= train.patience
        limited = bool(train.steps or train.epochs or train.minutes or train.patience)
        if not limited:
            raise UsageError("no stopping condition: set --steps, --epochs, --minutes, or --set train.patience=10")
        return out_of_patience or self.trainer.progress >= 1

    def _checkpoint_is_due(self) -> bool:
        train = self.config.train
        if train.checkpoint_steps:
            return bool(self.state.step % train.checkpoint_steps == 0)
        return time.perf_counter() - self.last_saved > train.checkpoint_minutes * 60

    def _save(self) -> None:
        self.last_saved = time.perf_counter()
        tensors = self.trainer.checkpoint_tensors()
        if self.world.is_main:
            metadata = self.trainer.metadata() | {"tokenizers": self._tokenizer_fingerprints()}
            self.checkpoints.save("step", self.state.step, tensors, metadata)

    def _snapshot(self) -> None:
        tensors = self.trainer.weights()
        if self.world.is_main:
            save_weights(snapshot_file(self.out, self.state.step), tensors, torch.bfloat16)

    def _score(self, weights: Mapping[str, Tensor], max_sentences: int) -> Scores:
        network_class = model_class(self.config.model)
        model = network_class.from_weights(self.config.model, dict(weights)).to(self.world.device).eval()
        data, precision = self.data, self.trainer.precision
        return validate(model, data.valid_batches, data.valid_pairs, data.tokenizers, precision, max_sentences)

    def _validate(self) -> None:
        state, train = self.state, self.config.train
        weights = self.trainer.weights()
        if self.world.is_main:
            scores = self._score(weights, train.validation_sentences)
            value = scores.value(train.metric)
            best = value > state.best_score
            state.scores.append((state.step, value))
            self.display.validation(state.step, scores, best, self.data.valid_pairs)
            if train.average_checkpoints > 1 or best:
                self._keep_weights(weights)
        state.scores = self.world.broadcast(lambda: state.scores)
        self._save()

    def _keep_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Saves weights for the final average; keeps only the best, or the last, `average_checkpoints` of them."""
        train, score_by_step = self.config.train, dict(self.state.scores)

        def rank(checkpoint: Checkpoint) -> float:
            return score_by_step[checkpoint.step] if train.average_selection == "best" else checkpoint.step

        self.checkpoints.save("weights", self.state.step, weights, {})
        self.checkpoints.wait()
        known = [c for c in self.checkpoints.list_files("weights") if c.step in score_by_step]
        for old in sorted(known, key=rank, reverse=True)[train.average_checkpoints :]:
            old.path.unlink(missing_ok=True)

    def _finish(self) -> None:
        """Averages the kept weights and writes whichever of average and best is better on the whole validation set."""
        last = self.trainer.weights()
        if not self.world.is_main:
            self.world.barrier()
            return
        score_by_step = dict(self.state.scores)
        kept = self._load_kept_weights(score_by_step) or {self.state.step: last}
        best = max(kept, key=lambda step: score_by_step[step])
        candidates = {f"step {best:,}": kept[best]}
        if len(kept) > 1:
            name = f"the average of {len(kept)} checkpoints, steps {min(kept):,} to {max(kept):,}"
            candidates[name] = {key: _mean([w[key] for w in kept.values()]) for key in next(iter(kept.values()))}
        all_sentences = max(len(self.data.valid_pairs), 1)
        scores_by_name = {name: self._score(weights, all_sentences) for name, weights in candidates.items()}
        chosen = max(scores_by_name, key=lambda name: scores_by_name[name].value(self.config.train.metric))
        scores = scores_by_name[chosen]
        save_weights(self.out / "model.safetensors", candidates[chosen])
        summary = self._summary(chosen, scores)
        with atomic_write(self.out / "scores.json") as part:
            part.write_text(json.dumps(summary, indent=1, ensure_ascii=False), encoding="utf-8")
        with atomic_write(self.out / "README.md") as part:
            part.write_text(model_card(self.config, self.out, summary, self.data, scores), encoding="utf-8")
        metrics = "" if scores.bleu is None else f", BLEU {scores.bleu:.1f}, chrF++ {scores.chrf:.1f}"
        self.display.message(
            f"[bold]{self.out}[/] is ready (weights: {chosen}); validation loss {scores.loss:.3f}{metrics}"
        )
        self.world.barrier()

    def _load_kept_weights(self, score_by_step: Mapping[int, float]) -> dict[int, dict[str, Tensor]]:
        """Loads the weights to average, by step; skips damaged files."""
        kept = {}
        for checkpoint in self.checkpoints.list_files("weights"):
            if checkpoint.step not in score_by_step:
                continue
            try:
                kept[checkpoint.step] = load_checkpoint(checkpoint)[0]
            except UserError:
                self.display.message(f"[yellow]skipping {checkpoint.path.name}: it is damaged[/]")
        return kept

    def _summary(self, chosen: str, scores: Scores) -> dict[str, Any]:
        """Returns the content of scores.json."""
        state = self.state
        device = (
            torch.cuda.get_device_name()
            if self.world.device.type == "cuda"
            else platform.processor() or platform.machine()
        )
        summary: dict[str, Any] = {"weights": chosen, "validation": {"loss": round(scores.loss, 5)}}
        if scores.bleu is not None:
            summary["validation"] |= {
                "bleu": round(scores.bleu, 2), "chrf": round(scores.chrf or 0, 2), "sentences": scores.sentences,
                "signatures": list(scores.signatures),
            }  # fmt: skip
        summary["training"] = {
            "steps": state.step, "epochs": round(self.trainer.epochs, 2), "target_tokens": state.target_tokens,
            "seconds": round(state.seconds, 1), "skipped_steps": state.skipped_steps, "processes": self.world.size,
            "device": device, "threads": torch.get_num_threads(), "torch": torch.__version__,
            "parameters": sum(p.numel() for p in self.trainer.model.parameters()),
            "precision": str(self.trainer.precision.dtype).removeprefix("torch."),
        }  # fmt: skip
        return summary


def _mean(tensors: Sequence[Tensor]) -> Tensor:
    return torch.stack([tensor.double() for tensor in tensors]).mean(0).to(tensors[0].dtype)


@contextmanager
def _catch_interrupt(world: World) -> Iterator[Callable[[], bool]]:
    """Yields a function that tells whether Ctrl-C was pressed, so the run can save and stop; a second one aborts."""
    first_time = 0.0
    # Slurm signals every process and torchrun forwards the signal, so one Ctrl-C may arrive twice.
    grace_seconds = 2.0 if world.size > 1 else 0.0

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal first_time
        if first_time and time.monotonic() - first_time > grace_seconds:
            raise KeyboardInterrupt
        first_time = first_time or time.monotonic()

    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    previous = signal.signal(signal.SIGINT, handle)
    try:
        yield lambda: bool(first_time)
    finally:
        signal.signal(signal.SIGINT, previous)
