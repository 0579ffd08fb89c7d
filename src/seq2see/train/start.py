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

from seq2see.config import Config, DataConfig, ModelConfig, differences
from seq2see.config.extensions import load_extension
from seq2see.data.corpus import is_translation, media_kind, open_documents, training_pairs, validation_pairs
from seq2see.data.tokenizer import Tokenizer
from seq2see.errors import UsageError, UserError
from seq2see.model.registry import model_class
from seq2see.storage.directory import load_files, load_pipeline, load_tokenizers, save_config, save_tokenizers
from seq2see.storage.manifest import remove_manifest
from seq2see.storage.pipeline import with_article
from seq2see.train.calibration import store_known_words
from seq2see.train.checkpoint import CheckpointManager
from seq2see.train.display import Display
from seq2see.train.estimates import min_micro_batches
from seq2see.train.parallel import World, init_distributed
from seq2see.train.prepare_data import prepare_text, prepare_translation, with_vocab_sizes
from seq2see.train.presets import preset_config, preset_for_media, preset_for_size
from seq2see.train.run import Run, RunContext
from seq2see.train.run_lock import LOCK, is_locked, lock_run
from seq2see.train.stop_signals import StopSignals
from seq2see.train.time_budget import fit_to_length, setting_keys, shorter_preset, time_limit
from seq2see.train.trainer import Trainer

CHARACTERS_PER_TOKEN = 4  # a rough mean


def train(
    data: DataConfig, out: Path | str, *, preset: str = "", settings: Sequence[str] = (), init: Path | str | None = None,
    config: Config | None = None, device: str = "",
) -> None:  # fmt: skip
    """Trains a new model into an empty directory.

    `config` is a complete configuration, for example that of another run, and replaces `preset`. `init` is a model directory
    whose weights and tokenizers the training starts from.
    """
    if config is None:
        _check_files(data)
    with _run_context(Path(out), device, new=True) as context:
        world, display = context.world, context.display
        chosen = world.broadcast(lambda: _choose_config(data, preset, settings, init, config, context))
        _check_config(chosen)
        chosen = _choose_micro_batches(chosen, world, display)
        _run(chosen, context, resumed=False)


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
    with _run_context(Path(out), device, new=False) as context:
        world, display = context.world, context.display
        config = world.broadcast(lambda: _override_config(context.out, settings, display))
        _check_config(config)
        if world.size > config.train.gradient_accumulation:
            display.message(
                f"only {config.train.gradient_accumulation} of {world.size} processes have work, one per micro-batch of a "
                f"step: use all with --set train.gradient_accumulation={world.size}"
            )
        _run(config, context, resumed=True)


def _check_config(config: Config) -> None:
    """Refuses what cannot be trained, before anything is written."""
    data, train = config.data, config.train
    _check_files(data)
    kind = media_kind(data) or "tokens"
    if config.model.source != kind:
        given = "text" if kind == "tokens" else kind
        raise UsageError(f'the data are {given}, but model.source is "{config.model.source}": choose another --preset')
    _require_shape(config.model, data)
    if train.metric == "cer" and kind == "tokens":
        raise UsageError("train.metric=cer is for pictures and sounds: use bleu, chrf or loss")
    if kind != "tokens" and config.text.bpe_dropout:
        raise UsageError("text.bpe_dropout would decode every file again in each epoch: set it to 0")
    if not (train.steps or train.epochs or train.minutes or train.patience):
        raise UsageError("no stopping condition: set --steps, --epochs, --minutes, or --set train.patience=10")


def _check_files(data: DataConfig) -> None:
    """Refuses files of several kinds, and validation files of another kind than those to train on."""
    options = {"--text": ["text"], "--src and --tgt or --pairs": ["src", "tgt", "pairs"]}
    options |= {"--pictures": ["pictures"], "--sounds": ["sounds"]}
    given, validated = (
        [option for option, names in options.items() if any(getattr(data, prefix + name) for name in names)]
        for prefix in ("", "valid_")
    )
    if len(given) > 1:
        raise UsageError(f"use either {given[0]}, or {given[1]}: one run trains one kind of model")
    for option in validated:
        if given and option not in given:
            raise UsageError(f"validation files for {option} do not fit a training on {given[0]}: leave them out")
    if not media_kind(data):
        validation_pairs(data)  # refuses one side without the other


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


def _stop_message(out: Path) -> str:
    if not (out / "config.toml").is_file():
        return "stopped before the first step: repeat the command to start again; tokens already on disk are reused"
    saved = CheckpointManager(out / "checkpoints").list_files("step")
    return f"stopped at step {saved[0].step if saved else 0:,}; to continue: seq2see train --resume {out}"


def _override_config(out: Path, settings: Sequence[str], display: Display) -> Config:
    """Returns the run's configuration with changed settings; refuses changes of the data, tokenizers or model."""
    original = Config.load(out / "config.toml", training=True)
    config = original.override(settings)
    for name, (value, new) in differences([original, config]).items():
        if not name.startswith("train.") and not name.endswith("dropout"):
            raise UsageError(
                f"{name} = {new} conflicts with the run in {out}, which has {value}: start a new run, or start from its "
                f"weights with --init {out}"
            )
        display.message(f"{name} changed from {value} to {new}")
    return config


def _choose_config(
    data: DataConfig, preset: str, settings: Sequence[str], init: Path | str | None, config: Config | None,
    context: RunContext,
) -> Config:  # fmt: skip
    """Returns the given configuration, or that of the named preset, or of the preset for the corpus and the time."""
    if config is not None:
        given = {name: value for name, value in vars(data).items() if value != getattr(DataConfig(), name)}
        config = replace(config, data=replace(config.data, **given)).override(settings)
        return _with_init(config, init) if init else config
    name = preset or _choose_preset(data, settings, context, fixed=bool(init))
    chosen = preset_config(name)
    if init:
        other = load_files(Path(init)).config
        chosen = _with_init(replace(chosen, model=other.model, text=other.text), init)
    if not _fits(chosen.model, data):
        origin, remedy = (f"{init}", "--init") if init else (f'preset "{name}"', "--preset")
        raise UsageError(
            f"{origin} is {with_article(chosen.model.shape)} model, but this data needs {with_article(_shape(data))}: "
            f"choose another {remedy}, or omit it"
        )
    chosen = replace(chosen, data=data).override(settings)
    _require_shape(chosen.model, data)
    return fit_to_length(chosen, name, setting_keys(settings), context.world, _corpus_tokens(chosen), context.display)


def _shape(data: DataConfig) -> str:
    return "encoder-decoder" if is_translation(data) else "decoder"


def _fits(model: ModelConfig, data: DataConfig) -> bool:
    """Whether a model of this shape can be trained on the data; a classifier, like an encoder-decoder, needs pairs."""
    return model.writes_text if is_translation(data) else model.shape == "decoder"


def _require_shape(model: ModelConfig, data: DataConfig) -> None:
    if not _fits(model, data):
        alternative = ", or model.classifier=true" * (model.shape == "encoder" and model.source != "tokens")
        raise UsageError(
            f'model.shape = "{model.shape}", but this data needs {with_article(_shape(data))}{alternative}'
        )


def _require_simple_framing(tokenizers: tuple[Tokenizer, Tokenizer]) -> None:
    """Training puts one token before a target and one after a source; some models of other libraries expect more."""
    source, target = (tokenizer.framing for tokenizer in tokenizers)
    if source.before or len(source.after) > 1 or len(target.prompt) > 1:
        raise UserError(
            "this model expects language or other special tokens around a text, and cannot be trained further"
        )


def _with_init(config: Config, init: Path | str) -> Config:
    return replace(config, train=replace(config.train, init=str(init)))


def _choose_preset(data: DataConfig, settings: Sequence[str], context: RunContext, fixed: bool) -> str:
    """Returns the preset for the size of the corpus, or a smaller one if the time is short, unless the model is fixed."""
    name = reason = ""
    if kind := media_kind(data):
        name, reason = preset_for_media(kind), kind
    elif is_translation(data):
        pairs = training_pairs(data)
        count = sum(1 for _ in pairs.read(context.display.task("reading", pairs.size)))
        name, reason = preset_for_size(pairs=count), f"{count:,} sentence pairs"
    elif data.text:
        size = open_documents(data).size
        name, reason = preset_for_size(text_bytes=size), f"{size / 1e6:,.1f} MB of text"
    else:
        raise UsageError(
            "missing training data: use --src FILE and --tgt FILE, --pairs FILE, --text FILE, --pictures LIST or --sounds LIST"
        )
    minutes = time_limit(preset_config(name).override(settings), setting_keys(settings), context.world)
    if minutes and not fixed:
        name = shorter_preset(name, minutes, context.world)
        reason += f" and {minutes:g} minutes on this machine"
    context.display.message(f"preset [bold]{name}[/], chosen for {reason} (override with --preset)")
    return name


def _corpus_tokens(config: Config) -> float:
    """Estimates the number of target tokens in the corpus, if its length is given in epochs."""
    if not config.train.epochs:
        return 0.0
    if is_translation(config.data):
        return sum(len(target) for _, target in training_pairs(config.data)) / CHARACTERS_PER_TOKEN
    return open_documents(config.data).size / CHARACTERS_PER_TOKEN


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
    pairs, valid = training_pairs(config.data), validation_pairs(config.data)
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
