"""A training from beginning to end: from files to a scored model in a directory.

    data checked → tokenizers → tokens on disk → steps, validations, checkpoints → weights averaged → scores → card

A run can be killed at any moment and resumed: everything that it decided stands in config.toml and tokenizer.json, and
everything that changes in the newest checkpoint.
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
from seq2see.model.registry import kind_of
from seq2see.pipeline import Pipeline
from seq2see.presets import by_size, configuration
from seq2see.text.check.pairs import Settings, check_pairs
from seq2see.text.check.report import summary
from seq2see.text.corpus import is_translation, training_pairs, validation_pairs
from seq2see.train.display import Display
from seq2see.train.estimates import fewest_micro_batches
from seq2see.train.loop import Trainer
from seq2see.train.parallel import World, join_world
from seq2see.train.prepare_data import (
    documents,
    prepare_text,
    prepare_translation,
    with_vocabularies,
)  # fmt: skip
from seq2see.train.runner import Course


def train(
    data: DataConfig, out: Path | str, *, preset: str = "", settings: Sequence[str] = (), init: Path | str | None = None,
    config: Config | None = None, device: str = "",
) -> None:  # fmt: skip
    """Trains a new model into an empty directory. `config` is a whole configuration, of another run say; `init` a model
    whose weights and tokenizer are the beginning.
    """
    out = Path(out)
    with join_world(device) as world, _writing_to(out), Display(out, world.leads) as display:
        if world.leads:
            _claim(out)
        chosen = world.told(lambda: _choose(data, preset, settings, init, config, display))
        chosen = _cut(chosen, world, display)
        begun = load_pipeline(init, "cpu") if init else None
        _run(chosen, out, world, display, begun, resumed=False)


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


def resume(out: Path | str, settings: Sequence[str] = (), device: str = "") -> None:
    """Goes on where the newest sound checkpoint stands, as if nothing had happened."""
    out = Path(out)
    with join_world(device) as world, _writing_to(out), Display(out, world.leads) as display:
        config = world.told(lambda: _changed(out, settings, display))
        if world.size > config.train.accumulate:
            display.say(
                f"a step of this run has {config.train.accumulate} micro-batches, so only as many of {world.size} "
                f"processes have work: give each one with --set train.accumulate={world.size}"
            )
        _run(config, out, world, display, None, resumed=True)


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


def _run(config: Config, out: Path, world: World, display: Display, begun: Pipeline | None, resumed: bool) -> None:
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
        model.load_state_dict(begun.network.state_dict())
    trainer = Trainer(config, model, data.batches, world)
    course = Course(config, out, world, display, data, trainer)
    if resumed:
        course.restore()
    course.go()


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
