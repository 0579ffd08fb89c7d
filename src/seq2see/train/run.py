"""Training from start to finish: from data files to a scored model in a directory.

    check data → tokenizers → tokens on disk → steps, validations, checkpoints → average weights → scores → model card

A run can be killed at any moment and resumed: config.toml and tokenizer.json hold what was decided at the start, the newest
checkpoint everything that changes.
"""

import errno
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch

from seq2see.config import Config, DataConfig
from seq2see.directory import load_pipeline, load_tokenizers, save_config, save_tokenizers
from seq2see.errors import UsageError, UserError
from seq2see.model.registry import model_class
from seq2see.pipeline import Pipeline, with_article
from seq2see.presets import preset_config, preset_for_size
from seq2see.text.check.pairs import CheckSettings, check_pairs
from seq2see.text.check.report import summary
from seq2see.text.corpus import is_translation, training_pairs, validation_pairs
from seq2see.train.display import Display
from seq2see.train.estimates import min_micro_batches
from seq2see.train.loop import Trainer
from seq2see.train.parallel import World, init_distributed
from seq2see.train.prepare_data import open_documents, prepare_text, prepare_translation, with_vocab_sizes
from seq2see.train.runner import Runner


def train(
    data: DataConfig, out: Path | str, *, preset: str = "", settings: Sequence[str] = (), init: Path | str | None = None,
    config: Config | None = None, device: str = "",
) -> None:  # fmt: skip
    """Trains a new model into an empty directory.

    `config` is a complete configuration, for example that of another run, and replaces `preset`. `init` is a model directory
    whose weights and tokenizers the training starts from.
    """
    out = Path(out)
    with init_distributed(device) as world, _report_write_errors(out), Display(out, world.is_main) as display:
        if world.is_main:
            _create_directory(out)
        chosen = world.broadcast(lambda: _choose_config(data, preset, settings, init, config, display))
        chosen = _choose_micro_batches(chosen, world, display)
        initial = load_pipeline(init, "cpu") if init else None
        _run(chosen, out, world, display, initial, resumed=False)


def _choose_micro_batches(config: Config, world: World, display: Display) -> Config:
    """Sets the number of micro-batches per step: as few as fit in memory if unset, and at least one per process."""
    micro_batches = config.train.gradient_accumulation
    step = f"each step of {config.train.batch_tokens:,} target tokens"
    if not micro_batches:
        micro_batches = world.broadcast(lambda: min_micro_batches(config, world.device))
        split = "" if micro_batches == 1 else f" in {micro_batches} micro-batches"
        display.message(f"{step} fits in memory{split}")
    if world.size > micro_batches:
        micro_batches = world.size
        display.message(f"{step} is divided among {world.size} processes")
    return replace(config, train=replace(config.train, gradient_accumulation=micro_batches))


def resume(out: Path | str, settings: Sequence[str] = (), device: str = "") -> None:
    """Continues the run in `out` from its newest valid checkpoint."""
    out = Path(out)
    with init_distributed(device) as world, _report_write_errors(out), Display(out, world.is_main) as display:
        config = world.broadcast(lambda: _override_config(out, settings, display))
        if world.size > config.train.gradient_accumulation:
            display.message(
                f"only {config.train.gradient_accumulation} of {world.size} processes have work, one per micro-batch of a "
                f"step: use all with --set train.gradient_accumulation={world.size}"
            )
        _run(config, out, world, display, None, resumed=True)


def _create_directory(out: Path) -> None:
    if (out / "config.toml").exists():
        raise UserError(f"{out} already contains a run: continue it with --resume {out}, or choose another --out")
    out.mkdir(parents=True, exist_ok=True)  # fail before tokenizing, not an hour later


def _override_config(out: Path, settings: Sequence[str], display: Display) -> Config:
    """Returns the run's configuration with changed settings; refuses changes of the data, tokenizers or model."""
    original = Config.load(out / "config.toml")
    config = original.override(settings)
    for section in ("data", "text", "model", "train"):
        for name, value in vars(getattr(original, section)).items():
            new = getattr(getattr(config, section), name)
            if new == value:
                continue
            if section != "train" and name not in ("dropout", "attention_dropout", "activation_dropout", "bpe_dropout"):
                raise UsageError(
                    f"{section}.{name} = {new} conflicts with the run in {out}, which has {value}: start a new run, "
                    f"or start from its weights with --init {out}"
                )
            display.message(f"{section}.{name} changed from {value} to {new}")
    return config


def _choose_config(
    data: DataConfig, preset: str, settings: Sequence[str], init: Path | str | None, config: Config | None,
    display: Display,
) -> Config:  # fmt: skip
    """Returns the given configuration, or that of a preset: the named one, or else chosen by the size of the corpus."""
    if config is not None:
        given = {name: value for name, value in vars(data).items() if value != getattr(DataConfig(), name)}
        return replace(config, data=replace(config.data, **given)).override(settings)
    name = preset or _preset_by_size(data, display)
    chosen = preset_config(name)
    if init:
        other = Config.load(Path(init) / "config.toml")
        chosen = replace(chosen, model=other.model, text=other.text)
    shape = "encoder-decoder" if is_translation(data) else "decoder"
    if chosen.model.shape != shape:
        raise UsageError(
            f'preset "{name}" is {with_article(chosen.model.shape)} model, but this data needs {with_article(shape)}'
        )
    return replace(chosen, data=data).override(settings)


def _preset_by_size(data: DataConfig, display: Display) -> str:
    if is_translation(data):
        count = sum(1 for _ in training_pairs(data))
        name = preset_for_size(pairs=count)
        display.message(f"preset [bold]{name}[/], chosen for {count:,} sentence pairs (override with --preset)")
    elif data.text:
        size = open_documents(data).size
        name = preset_for_size(text_bytes=size)
        display.message(f"preset [bold]{name}[/], chosen for {size / 1e6:,.1f} MB of text (override with --preset)")
    else:
        raise UsageError("missing training data: use --src FILE and --tgt FILE, --pairs FILE, or --text FILE")
    return name


def _run(config: Config, out: Path, world: World, display: Display, initial: Pipeline | None, resumed: bool) -> None:
    count = world.broadcast(lambda: _check_data(config, display, quiet=resumed))
    # The main process tokenizes first; the others then find the tokens on disk.
    if not world.is_main:
        world.barrier()
    tokenizers = load_tokenizers(out) if resumed or not world.is_main else initial.tokenizers if initial else None
    static = world.device.type == "cuda"
    if is_translation(config.data):
        data = prepare_translation(config, out / "tokens", tokenizers, count, static)
    else:
        data = prepare_text(config, out / "tokens", tokenizers[1] if tokenizers else None, static)
    config = with_vocab_sizes(config, data.tokenizers)
    if data.dropped:
        display.message(f"left out {data.dropped:,} sentence pairs that are too long for the model or for a batch")
    if world.is_main:
        save_tokenizers(out, data.tokenizers)
        save_config(out, config)
        world.barrier()

    torch.manual_seed(config.train.seed)
    model = model_class(config.model)(config.model).to(world.device)
    if initial is not None:
        model.load_state_dict(initial.network.state_dict())
    trainer = Trainer(config, model, data.batches, world)
    runner = Runner(config, out, world, display, data, trainer)
    if resumed:
        runner.restore()
    runner.run()


def _check_data(config: Config, display: Display, quiet: bool) -> int:
    """Checks the training pairs, prints a summary and returns their number; 0 for plain text."""
    if not is_translation(config.data):
        return 0
    checked = check_pairs(
        training_pairs(config.data), CheckSettings(max_length=config.model.max_positions), validation_pairs(config.data)
    )
    if not checked.report.trainable:
        raise UserError(summary(checked.report).replace("\n", "; "))
    if not quiet:
        display.message(summary(checked.report))
    return checked.report.count


@contextmanager
def _report_write_errors(out: Path) -> Iterator[None]:
    """Turns write errors, such as a full disk, into a one-line error; files written before stay intact."""
    try:
        yield
    except OSError as error:
        if error.errno not in _WRITE_ERRORS:
            raise
        started = (out / "config.toml").is_file()
        remedy = f"free some space, then run: seq2see train --resume {out}" if started else "choose another --out"
        raise UserError(f"cannot write {error.filename or f'to {out}'}: {error.strerror}; {remedy}") from error


_WRITE_ERRORS = {
    errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EEXIST,
    errno.EIO,
}  # fmt: skip
