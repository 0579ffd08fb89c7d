"""A training from beginning to end: from files to a scored model in a directory.

    data checked → tokenizers → tokens on disk → steps, validations, checkpoints → weights averaged → scores → card

A run can be killed at any moment and resumed: everything that it decided stands in config.toml and tokenizer.json, and
everything that changes in the newest checkpoint.
"""

import errno
import json
import math
import platform
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor

from seq2see.config import Config, DataConfig
from seq2see.directory import (
    Model,
    load,
    load_tokenizers,
    save_config,
    save_tokenizers,
    save_weights,
    snapshot_file,
)
from seq2see.errors import UsageError, UserError
from seq2see.files import written_whole
from seq2see.model.kinds import kind_of
from seq2see.presets import by_size, configuration
from seq2see.text.check.pairs import Settings, check_pairs
from seq2see.text.check.report import summary
from seq2see.train.card import card
from seq2see.train.checkpoint import Checkpoints, Found, read
from seq2see.train.cost import fewest_micro_batches
from seq2see.train.display import Display
from seq2see.train.loop import Trainer
from seq2see.train.parallel import World, join_world
from seq2see.train.prepare import (
    Prepared,
    documents,
    is_translation,
    prepare_text,
    prepare_translation,
    training_pairs,
    validation_pairs,
    with_vocabularies,
)  # fmt: skip
from seq2see.train.validate import Scores, validate

REPORT_EVERY = 20  # steps between two reports, at which the host waits for the device


def train(
    data: DataConfig, out: Path | str, *, preset: str = "", settings: Sequence[str] = (), init: Path | str | None = None,
    config: Config | None = None, device: str = "",
) -> Model:  # fmt: skip
    """Trains a new model into an empty directory. `config` is a whole configuration, of another run say; `init` a model
    whose weights and tokenizer are the beginning.
    """
    out = Path(out)
    with join_world(device) as world, _writing_to(out), Display(out, world.leads) as display:
        if world.leads:
            _claim(out)
        chosen = world.told(lambda: _choose(data, preset, settings, init, config, display))
        chosen = _cut(chosen, world, display)
        begun = load(init, "cpu") if init else None
        return _run(chosen, out, world, display, begun, resumed=False)


def _cut(config: Config, world: World, display: Display) -> Config:
    """The configuration with a step in as many micro-batches as the memory or the processes want."""
    pieces = config.train.accumulate
    if not pieces:
        pieces = world.told(lambda: fewest_micro_batches(config, world.device))
        how = "as they are" if pieces == 1 else f"in {pieces} micro-batches"
        display.say(f"a step's {config.train.tokens:,} target tokens fit in memory {how}")
    if world.size > pieces:
        pieces = world.size
        display.say(f"a step's {config.train.tokens:,} target tokens are shared by {world.size} processes")
    return replace(config, train=replace(config.train, accumulate=pieces))


def resume(out: Path | str, settings: Sequence[str] = (), device: str = "") -> Model:
    """Goes on where the newest sound checkpoint stands, as if nothing had happened."""
    out = Path(out)
    with join_world(device) as world, _writing_to(out), Display(out, world.leads) as display:
        config = world.told(lambda: _changed(out, settings, display))
        if world.size > config.train.accumulate:
            display.say(
                f"a step of this run has {config.train.accumulate} micro-batches, so only as many of {world.size} "
                f"processes have work: give each one with --set train.accumulate={world.size}"
            )
        return _run(config, out, world, display, None, resumed=True)


def _claim(out: Path) -> None:
    if (out / "config.toml").exists():
        raise UserError(f"{out} holds a run already: go on with --resume {out}, or choose another --out")
    out.mkdir(parents=True, exist_ok=True)  # better now than after an hour of tokenizing


def _changed(out: Path, settings: Sequence[str], display: Display) -> Config:
    """The run's configuration with some settings changed, where they may be."""
    before = Config.load(out / "config.toml")
    config = before.override(settings)
    for section in ("data", "text", "model", "train"):
        for name, value in vars(getattr(before, section)).items():
            new = getattr(getattr(config, section), name)
            if new == value:
                continue
            if section != "train" and name not in ("dropout", "attention_dropout", "activation_dropout"):
                raise UsageError(
                    f"{section}.{name} = {new} contradicts the run in {out}, which has {value}: start a new one, "
                    f"perhaps from its weights with --init {out}"
                )
            display.say(f"{section}.{name} is now {new}, it was {value}")
    return config


def _choose(
    data: DataConfig,
    preset: str,
    settings: Sequence[str],
    init: Path | str | None,
    config: Config | None,
    display: Display,
) -> Config:
    """The configuration: given whole, or a preset's, by name, by another model's, or by the size of the corpus."""
    if config is not None:
        given = {name: value for name, value in vars(data).items() if value != getattr(DataConfig(), name)}
        return replace(config, data=replace(config.data, **given)).override(settings)
    name = preset or (_preset_by_size(data, display))
    chosen = configuration(name)
    if init:
        other = Config.load(Path(init) / "config.toml")
        chosen = replace(chosen, model=other.model, text=other.text)
    shape = "encoder-decoder" if is_translation(data) else "decoder"
    if chosen.model.shape != shape:
        raise UsageError(f'"{name}" is a {chosen.model.shape}, but these data want a{"n" * (shape[0] == "e")} {shape}')
    return replace(chosen, data=data).override(settings)


def _preset_by_size(data: DataConfig, display: Display) -> str:
    if is_translation(data):
        count = sum(1 for _ in training_pairs(data))
        name = by_size(pairs=count)
        display.say(f"preset [bold]{name}[/] for {count:,} sentence pairs (another with --preset)")
    elif data.text:
        size = documents(data).size
        name = by_size(text_bytes=size)
        display.say(f"preset [bold]{name}[/] for {size / 1e6:,.1f} MB of text (another with --preset)")
    else:
        raise UsageError("name the text to train on: --src FILE and --tgt FILE, --pairs FILE, or --text FILE")
    return name


def _run(config: Config, out: Path, world: World, display: Display, begun: Model | None, resumed: bool) -> Model:
    count = world.told(lambda: _look_at(config, display, quiet=resumed))
    # The leading process tokenizes, the others find its work.
    if not world.leads:
        world.wait()
    tokenizers = load_tokenizers(out) if resumed or not world.leads else begun.tokenizers if begun else None
    static = world.device.type == "cuda"
    if is_translation(config.data):
        data = prepare_translation(config, out / "tokens", tokenizers, count, static)
    else:
        data = prepare_text(config, out / "tokens", tokenizers[1] if tokenizers else None, static)
    config = with_vocabularies(config, data.tokenizers)
    if data.dropped:
        display.say(f"{data.dropped:,} pairs are too long for the model or a batch, and left out")
    if world.leads:
        save_tokenizers(out, data.tokenizers)
        save_config(out, config)
        world.wait()

    torch.manual_seed(config.train.seed)
    model = kind_of(config.model)(config.model).to(world.device)
    if begun is not None:
        model.load_state_dict(begun.transformer.state_dict())
    trainer = Trainer(config, model, data.batches, world)
    run = _Run(config, out, world, display, data, trainer)
    if resumed:
        run.restore()
    return run.go()


def _look_at(config: Config, display: Display, quiet: bool) -> int:
    """The short form of the data check; the number of sentence pairs."""
    if not is_translation(config.data):
        return 0
    checked = check_pairs(
        training_pairs(config.data), Settings(longest=config.model.longest), validation_pairs(config.data)
    )
    if not checked.report.trainable:
        raise UserError(summary(checked.report).replace("\n", "; "))
    if not quiet:
        display.say(summary(checked.report))
    return checked.report.count


class _Run:
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

    def go(self) -> Model:
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
        return self._finish()

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

    def _finish(self) -> Model:
        """Averages, takes what is better on the whole validation set, and leaves a model."""
        last = self.trainer.weights()
        if not self.world.leads:
            self.world.wait()
            return load(self.out)
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
        return load(self.out)

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
def _writing_to(out: Path) -> Iterator[None]:
    """A disk that is full or may not be written to stops the run with one line; what was written before is intact."""
    try:
        yield
    except OSError as error:
        if error.errno not in _UNWRITABLE:
            raise
        begun = (out / "config.toml").is_file()
        remedy = f"free some space, then seq2see train --resume {out}" if begun else "choose another --out"
        raise UserError(f"cannot write {error.filename or f'to {out}'}: {error.strerror}; {remedy}") from error


_UNWRITABLE = {
    errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EEXIST,
    errno.EIO,
}  # fmt: skip


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
