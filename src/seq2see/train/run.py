"""Runs one training: steps, reports, validations, checkpoints and snapshots until a limit is reached; then averages the
weights, scores them, and writes the model with its model card.
"""

import json
import math
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from rich.text import Text
from torch import Tensor

from seq2see.config import Config
from seq2see.errors import UserError
from seq2see.storage.directory import save_config, save_weights, snapshot_file
from seq2see.storage.manifest import write_manifest
from seq2see.tensors.files import atomic_write
from seq2see.train.checkpoint import CheckpointManager, LoadedCheckpoint, load_checkpoint
from seq2see.train.display import Display
from seq2see.train.model_card import model_card, training_summary
from seq2see.train.parallel import World
from seq2see.train.prepare_data import TrainingData
from seq2see.train.run_lock import RunLock
from seq2see.train.stop_signals import StopSignals
from seq2see.train.trainer import State, Trainer
from seq2see.train.validation import Scores, Validator, shortcoming

REPORT_EVERY = 20  # steps between reports, which synchronise with the device
MAX_VALIDATIONS = 16  # by default; more would take a noticeable share of a short run on a fast GPU


@dataclass(frozen=True)
class RunContext:
    """The resources that a process holds for the whole run."""

    out: Path
    world: World
    display: Display
    lock: RunLock
    signals: StopSignals


class Run:
    """Runs one training and writes its files."""

    def __init__(self, config: Config, context: RunContext, data: TrainingData, trainer: Trainer) -> None:
        self.config, self.data, self.trainer = config, data, trainer
        self.out, self.world, self.display = context.out, context.world, context.display
        self.lock, self.signals = context.lock, context.signals
        self.checkpoints = CheckpointManager(self.out / "checkpoints")
        self.validator = Validator(config.model, data, trainer.precision, config.train.metric)
        self.tokenizers = [tokenizer.fingerprint for tokenizer in data.tokenizers]  # which checkpoints must have, too
        self.last_saved = time.perf_counter()

    @property
    def state(self) -> State:
        return self.trainer.state

    def restore(self) -> None:
        """Loads the latest checkpoint, if there is one."""
        loaded = self._load_checkpoint()
        if loaded is None:
            self.display.message("no checkpoint found: starting from the beginning")
            self.lock.update(0, 0.0)
            return
        self.trainer.restore(loaded.tensors, loaded.metadata)
        self.lock.update(self.state.step, self.state.seconds)
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

        def belongs_to_run(loaded: LoadedCheckpoint) -> bool:
            return loaded.metadata.get("tokenizers") == self.tokenizers and self.trainer.is_compatible(loaded.tensors)

        loaded, unusable = self.checkpoints.load_latest(belongs_to_run)
        for checkpoint in unusable:
            self.display.message(f"skipping {checkpoint.path.name}: it is damaged or from another run", "yellow")
        step = loaded.file.step if loaded else 0
        scores = loaded.metadata["state"]["scores"] if loaded else []
        self.display.truncate_log(step, validated={validated for validated, _ in scores})
        for part in self.out.rglob(".*.part"):
            part.unlink(missing_ok=True)
        return loaded

    def train(self) -> None:
        """Trains until a limit is reached, then writes the model."""
        if self.config.train.tensorboard:
            self.display.open_tensorboard(self.state.step)
        validate_every = self.config.train.validate_every or self._default_validation_interval()
        with self.signals.deferred():
            save = stop = False
            while True:
                if self._validation_is_due(validate_every):
                    stop = self._validate()
                elif save or stop:
                    self._save()
                if stop:
                    self.checkpoints.wait()
                    self.world.barrier()  # torchrun terminates the others as soon as one exits
                    raise KeyboardInterrupt
                if self._is_done():
                    break
                save, stop = self._step()
            self.checkpoints.wait()
        with self.signals.immediate():
            last = self.trainer.weights()
            if self.world.is_main:
                self._write_model(last)
            self.world.barrier()

    def _step(self) -> tuple[bool, bool]:
        """Makes one step; returns whether to save, and whether a signal asked to stop."""
        self.trainer.step()
        state = self.state
        save, stop = self.world.all_reduce_max(self._checkpoint_is_due(), self.signals.received)
        if self.config.train.snapshots and state.step & (state.step - 1) == 0:
            self._snapshot()
        if state.step % REPORT_EVERY == 0 or state.step == 1:
            self.display.step(self.trainer.report(), state.seconds)
        self.display.progress(state.step, self.trainer.progress, state.seconds)
        self.lock.update(state.step, state.seconds)
        return bool(save), bool(stop)

    def _validation_is_due(self, validate_every: int) -> bool:
        """Depends on the state alone: a run that was stopped before a validation makes it when resumed."""
        state = self.state
        validated = bool(state.scores) and state.scores[-1][0] == state.step
        return state.step > 0 and not validated and (state.step % validate_every == 0 or self.trainer.progress >= 1)

    def _default_validation_interval(self) -> int:
        """About one epoch, in steps, and at most MAX_VALIDATIONS times if train.steps is set."""
        train = self.config.train
        batches = self.data.batches.num_batches(self.state.epoch)
        epoch = min(max(math.ceil(batches / train.gradient_accumulation), 100), 2000)
        return max(epoch, math.ceil(train.steps / MAX_VALIDATIONS))

    def _is_done(self) -> bool:
        train, state = self.config.train, self.state
        out_of_patience = False
        if train.patience and state.scores:
            best = max(range(len(state.scores)), key=lambda i: state.scores[i][1])
            out_of_patience = len(state.scores) - 1 - best >= train.patience
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
            metadata = self.trainer.metadata() | {"tokenizers": self.tokenizers}
            self.checkpoints.save("step", self.state.step, tensors, metadata)

    def _snapshot(self) -> None:
        tensors = self.trainer.weights()
        if self.world.is_main:
            file = snapshot_file(self.out, self.state.step)
            file.parent.mkdir(exist_ok=True)
            save_weights(file, tensors, torch.bfloat16)

    def _validate(self) -> bool:
        """Scores the weights and saves a checkpoint. A signal interrupts the scoring; returns whether one was received."""
        weights = self.trainer.weights()
        if self.world.is_main:
            scores = None
            with suppress(KeyboardInterrupt), self.signals.immediate():
                scores = self.validator.score(weights, self.config.train.validation_sentences)
            if scores is not None:
                self._record(scores, weights)
        self.state.scores = self.world.broadcast(lambda: self.state.scores)
        self._save()
        return bool(self.world.all_reduce_max(self.signals.received)[0])

    def _record(self, scores: Scores, weights: Mapping[str, Tensor]) -> None:
        """Logs a validation; keeps the weights for the final average while they are among the best."""
        state, train = self.state, self.config.train
        best = scores.value > state.best_score
        state.scores.append((state.step, scores.value))
        self.display.validation(state.step, scores, best, self.data.valid_pairs)
        if train.average_checkpoints > 1 or best:
            self.checkpoints.save("weights", state.step, weights, {}, train.average_checkpoints, self._score_of_step())

    def _score_of_step(self) -> Callable[[int], float]:
        """Returns a function that ranks the steps by the scores known now."""
        scores = dict(self.state.scores)
        return lambda step: scores.get(step, -math.inf)

    def _write_model(self, last: dict[str, Tensor]) -> None:
        """Writes the model: the average of the saved weights or the best, whichever scores higher on the validation set."""
        saved = self._load_saved_weights() or {self.state.step: last}
        best = max(saved, key=self._score_of_step())
        candidates = {f"step {best:,}": saved[best]}
        if len(saved) > 1:
            name = f"the average of {len(saved)} checkpoints, steps {min(saved):,} to {max(saved):,}"
            candidates[name] = {
                key: torch.stack([weights[key].double() for weights in saved.values()]).mean(0).to(tensor.dtype)
                for key, tensor in last.items()
            }
        scored = {name: self.validator.score(weights) for name, weights in candidates.items()}
        chosen, scores = max(scored.items(), key=lambda item: item[1].value)
        save_weights(self.out / "model.safetensors", candidates[chosen])
        summary = training_summary(self.trainer, chosen, scores)
        with atomic_write(self.out / "scores.json") as part:
            part.write_text(json.dumps(summary, indent=1, ensure_ascii=False), encoding="utf-8")
        with atomic_write(self.out / "README.md") as part:
            part.write_text(model_card(self.config, self.out, summary, self.data, scores), encoding="utf-8")
        self._record_length()
        write_manifest(self.out)
        self.display.message(self._conclusion(chosen, scores))

    def _record_length(self) -> None:
        """If the clock ended the run, writes the steps that it made to config.toml, so that --config repeats it."""
        train, step = self.config.train, self.state.step
        if train.minutes and self.state.seconds >= train.minutes * 60:
            save_config(self.out, replace(self.config, train=replace(train, steps=step, epochs=0.0, minutes=0.0)))

    def _conclusion(self, chosen: str, scores: Scores) -> Text:
        metrics = str(scores).replace("  ", ", ")
        problem = shortcoming(scores, self.data.valid_pairs, self.data.valid_batches)
        out = (str(self.out), "bold")
        if not problem:
            return Text.assemble(out, f" is ready (weights: {chosen}); {metrics}")
        minutes = max(5, math.ceil(self.state.seconds / 60 * 5))
        return Text.assemble(
            *(out, " is ", ("not usable yet", "yellow")),
            f" (weights: {chosen}); {metrics}: {problem}. Train longer: seq2see train --resume {self.out} --minutes {minutes}; "
            f"or on more data than {self.data.train_count:,} {'pairs' if self.data.valid_pairs else 'documents'}",
        )

    def _load_saved_weights(self) -> dict[int, dict[str, Tensor]]:
        """Loads the weights to average, by step; skips damaged files."""
        saved = {}
        for checkpoint in self.checkpoints.list_files("weights"):
            try:
                saved[checkpoint.step] = load_checkpoint(checkpoint)[0]
            except UserError:
                self.display.message(f"skipping {checkpoint.path.name}: it is damaged", "yellow")
        return saved
