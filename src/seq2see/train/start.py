"""Training from start to finish: from data files to a scored model in a directory.

    check data → tokenizers → tokens on disk → steps, validations, checkpoints → average weights → scores → model card

A run can be killed at any moment and resumed: config.toml and tokenizer.json hold the choices made at the start, the newest
checkpoint holds the state of the training.
"""

import errno
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import torch

from seq2see.config import Config, DataConfig
from seq2see.config.extensions import load_extension
from seq2see.data.corpus import is_translation, open_pairs, validation_pairs
from seq2see.data.tokenizer import Tokenizer
from seq2see.errors import UserError
from seq2see.model.network import model_class
from seq2see.storage.directory import load_pipeline, load_tokenizers, save_config, save_tokenizers
from seq2see.storage.manifest import remove_manifest
from seq2see.train.calibration import store_known_words
from seq2see.train.checkpoint import CheckpointManager
from seq2see.train.configure import (
    changed_config,
    check_config,
    check_files,
    choose_config,
    choose_micro_batches,
    repeat_config,
)
from seq2see.train.display import Display
from seq2see.train.parallel import init_distributed
from seq2see.train.prepare_data import prepare_text, prepare_translation, with_vocab_sizes
from seq2see.train.run import Run, RunContext
from seq2see.train.run_lock import LOCK, is_locked, lock_run
from seq2see.train.stop_signals import StopSignals
from seq2see.train.trainer import Trainer


def train(
    data: DataConfig, out: Path | str, *, preset: str = "", settings: Sequence[str] = (), init: Path | str | None = None,
    config: Config | None = None, device: str = "",
) -> None:  # fmt: skip
    """Trains a new model into an empty directory.

    `config` is a complete configuration, for example that of another run, and replaces `preset`. `init` is a model directory
    whose weights and tokenizers the training starts from.
    """
    if config is None:
        check_files(data)
    with _run_context(Path(out), device, new=True) as context:
        world, display = context.world, context.display

        def choose() -> Config:
            if config is not None:
                return repeat_config(config, data, settings)
            return choose_config(data, preset, settings, str(init or ""), world, display)

        chosen = world.broadcast(choose)
        if init:
            chosen = replace(chosen, train=replace(chosen.train, init=str(init)))
        check_config(chosen)
        _run(choose_micro_batches(chosen, world, display), context, resumed=False)


def resume(out: Path | str, settings: Sequence[str] = (), device: str = "") -> None:
    """Continues the run in `out` from its newest valid checkpoint."""
    with _run_context(Path(out), device, new=False) as context:
        world, display = context.world, context.display
        config = world.broadcast(lambda: changed_config(context.out, settings, display))
        check_config(config)
        if world.size > config.train.gradient_accumulation:
            display.message(
                f"only {config.train.gradient_accumulation} of {world.size} processes have work, one per micro-batch of a "
                f"step: use all with --set train.gradient_accumulation={world.size}"
            )
        _run(config, context, resumed=True)


@contextmanager
def _run_context(out: Path, device: str, new: bool) -> Iterator[RunContext]:
    """Acquires the process group, the run directory, the terminal and the signal handlers for the whole run."""
    with init_distributed(device) as world, _report_write_errors(out), StopSignals(world.size) as signals:
        if world.is_main:
            _create_directory(out) if new else _require_run(out)
        with lock_run(out, world.is_main) as lock, Display(out, world.is_main) as display:
            try:
                with signals.immediate():
                    yield RunContext(out, world, display, lock, signals)
            except KeyboardInterrupt:
                if signals.repeated:
                    raise
                raise UserError(_stop_message(out)) from None


def _create_directory(out: Path) -> None:
    if any((out / name).exists() for name in ("config.toml", "checkpoints")) and not is_locked(out):
        raise UserError(f"{out} already contains a run: continue it with --resume {out}, or choose another --out")
    out.mkdir(parents=True, exist_ok=True)  # fail before tokenizing, not an hour later


def _require_run(out: Path) -> None:
    if is_locked(out):
        return  # the lock will say who trains there
    if not (out / "config.toml").is_file():
        raise UserError(f"{out} is not a run directory: it has no config.toml")
    if not any((out / name).exists() for name in (LOCK, "checkpoints")):
        raise UserError(f"{out} is a model, not a run that can continue: start from its weights with --init {out}")
    for path in (*out.iterdir(), *(out / "tokens").rglob("*")):
        if path.exists() and not (path.is_file() or path.is_dir()):  # opening it could wait forever
            raise UserError(f"{path} is a pipe or a device, not a file of this run: delete it")


def _stop_message(out: Path) -> str:
    if not (out / "config.toml").is_file():
        return "stopped before the first step: repeat the command to start again; tokens already on disk are reused"
    saved = CheckpointManager(out / "checkpoints").list_files("step")
    return f"stopped at step {saved[0].step if saved else 0:,}; to continue: seq2see train --resume {out}"


def _require_simple_framing(tokenizers: tuple[Tokenizer, Tokenizer]) -> None:
    """Training puts one token before a target and one after a source; some models of other libraries expect more."""
    source, target = (tokenizer.framing for tokenizer in tokenizers)
    if source.before or len(source.after) > 1 or len(target.prompt) > 1:
        raise UserError(
            "this model expects language or other special tokens around a text, and cannot be trained further"
        )


def _run(config: Config, context: RunContext, resumed: bool) -> None:
    out, world, display = context.out, context.world, context.display
    count = world.broadcast(lambda: _check_data(config, display, quiet=resumed))
    # The main process tokenizes first; the others then find the tokens on disk.
    if not world.is_main:
        world.barrier()
    has_checkpoint = resumed and bool(CheckpointManager(out / "checkpoints").list_files("step"))
    initial = load_pipeline(config.train.init, "cpu") if config.train.init and not has_checkpoint else None
    tokenizers = load_tokenizers(out) if resumed or not world.is_main else initial.tokenizers if initial else None
    if tokenizers:
        _require_simple_framing(tokenizers)
    static = world.device.type == "cuda" and config.model.source == "tokens"
    if is_translation(config.data):
        data = prepare_translation(config, out / "tokens", tokenizers, count, static, display.task)
    else:
        data = prepare_text(config, out / "tokens", tokenizers[1] if tokenizers else None, static, display.task)
    config = with_vocab_sizes(config, data.tokenizers)
    if data.valid_pairs and validation_pairs(config.data) is None and not resumed:
        display.message(f"held out {len(data.valid_pairs):,} of {count:,} pairs for validation")
    if data.dropped:
        display.message(f"left out {data.dropped:,} sentence pairs that are too long for the model or for a batch")
    if world.is_main:
        remove_manifest(out)  # of an earlier run; written again when this one ends
        save_tokenizers(out, data.tokenizers)
        if not has_checkpoint and config.model.source == "tokens":
            store_known_words(out, data.source_texts(), data.tokenizers[0], initial)
        save_config(out, config)
        world.barrier()

    torch.manual_seed(config.train.seed)
    model = model_class(config.model)(config.model).to(world.device)
    if initial is not None:
        model.load_state_dict(initial.network.state_dict())
    with closing(data):
        run = Run(config, context, data, Trainer(config, model, data.batches, world))
        if resumed:
            run.restore()
        run.train()


def _check_data(config: Config, display: Display, quiet: bool) -> int:
    """Checks the training pairs, prints a summary and returns their number; 0 for plain text."""
    if not is_translation(config.data):
        return 0
    pairs, valid = open_pairs(config.data), validation_pairs(config.data)
    check = load_extension("checks", "training")
    count, summary = check(pairs, valid, config.model.max_positions, display.task)
    if not quiet:
        display.message(summary)
    return count


@contextmanager
def _report_write_errors(out: Path) -> Iterator[None]:
    """Turns write errors, such as a full disk, into a one-line error; files written before stay intact."""
    try:
        yield
    except OSError as error:
        outside = error.filename and out not in Path(error.filename).parents
        if error.errno not in _WRITE_ERRORS or (error.errno == errno.ENOENT and outside):
            raise
        started = (out / "config.toml").is_file()
        remedy = f"free some space, then run: seq2see train --resume {out}" if started else "choose another --out"
        raise UserError(f"cannot write {error.filename or f'to {out}'}: {error.strerror}; {remedy}") from error


_WRITE_ERRORS = {
    errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EEXIST,
    errno.EIO, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP, errno.ENOENT, errno.ENOTEMPTY,
}  # fmt: skip
