"""The configuration of a run: from the data, a preset and the user's settings, or from an earlier run.

Every choice is made before anything is written, and what cannot be trained is refused.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from seq2see.config import Config, DataConfig, ModelConfig, differences
from seq2see.data.corpus import is_translation, media_kind, open_documents, open_pairs, validation_pairs
from seq2see.errors import UsageError
from seq2see.storage.directory import load_files
from seq2see.storage.pipeline import with_article
from seq2see.train.display import Display
from seq2see.train.estimates import min_micro_batches
from seq2see.train.parallel import World
from seq2see.train.presets import preset_config, preset_for_media, preset_for_size
from seq2see.train.time_budget import fit_to_length, setting_keys, shorter_preset, time_limit

CHARACTERS_PER_TOKEN = 4  # a rough mean


def repeat_config(config: Config, data: DataConfig, settings: Sequence[str]) -> Config:
    """Returns the configuration of another run with the given data files, if any, and settings."""
    given = {name: value for name, value in vars(data).items() if value != getattr(DataConfig(), name)}
    return replace(config, data=replace(config.data, **given)).override(settings)


def choose_config(
    data: DataConfig, preset: str, settings: Sequence[str], init: str, world: World, display: Display
) -> Config:
    """Returns the configuration of the named preset, or of the preset for the corpus and the time."""
    name = preset or _choose_preset(data, settings, world, display, fixed=bool(init))
    chosen = preset_config(name)
    if init:
        other = load_files(Path(init)).config
        chosen = replace(chosen, model=other.model, text=other.text)
    if not _fits(chosen.model, data):
        origin, remedy = (init, "--init") if init else (f'preset "{name}"', "--preset")
        raise UsageError(
            f"{origin} is {with_article(chosen.model.shape)} model, but this data needs {_needed_shape(data)}: "
            f"choose another {remedy}, or omit it"
        )
    chosen = replace(chosen, data=data).override(settings)
    _require_shape(chosen.model, data)
    return fit_to_length(chosen, name, setting_keys(settings), world, _corpus_tokens(chosen), display)


def _choose_preset(data: DataConfig, settings: Sequence[str], world: World, display: Display, fixed: bool) -> str:
    """Returns the preset for the size of the corpus, or a smaller one if the time is short, unless the model is fixed."""
    name = reason = ""
    if kind := media_kind(data):
        name, reason = preset_for_media(kind), kind
    elif is_translation(data):
        pairs = open_pairs(data)
        count = sum(1 for _ in pairs.read(display.task("reading", pairs.size)))
        name, reason = preset_for_size(pairs=count), f"{count:,} sentence pairs"
    elif data.text:
        size = open_documents(data).size
        name, reason = preset_for_size(text_bytes=size), f"{size / 1e6:,.1f} MB of text"
    else:
        raise UsageError(
            "missing training data: use --src FILE and --tgt FILE, --pairs FILE, --text FILE, --pictures LIST or --sounds LIST"
        )
    minutes = time_limit(preset_config(name).override(settings), setting_keys(settings), world)
    if minutes and not fixed:
        name = shorter_preset(name, minutes, world)
        reason += f" and {minutes:g} minutes on this machine"
    display.message(f"preset {name}, chosen for {reason} (override with --preset)")
    return name


def _corpus_tokens(config: Config) -> float:
    """Estimates the number of target tokens in the corpus, if its length is given in epochs."""
    if not config.train.epochs:
        return 0.0
    if is_translation(config.data):
        return sum(len(target) for _, target in open_pairs(config.data)) / CHARACTERS_PER_TOKEN
    return open_documents(config.data).size / CHARACTERS_PER_TOKEN


def changed_config(out: Path, settings: Sequence[str], display: Display) -> Config:
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


def choose_micro_batches(config: Config, world: World, display: Display) -> Config:
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


def check_config(config: Config) -> None:
    """Refuses what cannot be trained, before anything is written."""
    data, train = config.data, config.train
    check_files(data)
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


def check_files(data: DataConfig) -> None:
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


def _needed_shape(data: DataConfig) -> str:
    return with_article("encoder-decoder" if is_translation(data) else "decoder")


def _fits(model: ModelConfig, data: DataConfig) -> bool:
    """Whether a model of this shape can be trained on the data; a classifier, like an encoder-decoder, needs pairs."""
    return model.writes_text if is_translation(data) else model.shape == "decoder"


def _require_shape(model: ModelConfig, data: DataConfig) -> None:
    if not _fits(model, data):
        alternative = ", or model.classifier=true" * (model.shape == "encoder" and model.source != "tokens")
        raise UsageError(f'model.shape = "{model.shape}", but this data needs {_needed_shape(data)}{alternative}')
