"""Chooses training settings for the time available.

Most presets assume many steps on a GPU: a few minutes on a CPU would end before their warm-up does. The speed is therefore
measured first. A short training gets a smaller preset, smaller batches, and so more steps, and a shorter warm-up. Settings
given by the user are never changed. The result is written to config.toml.
"""

import math
from collections.abc import Collection, Iterable
from dataclasses import replace

from seq2see.config import Config
from seq2see.train.display import Display
from seq2see.train.estimates import seconds_per_token
from seq2see.train.parallel import World
from seq2see.train.presets import SMALLER_PRESETS, preset_config

LIMITS = ("train.steps", "train.epochs", "train.minutes")
DEFAULT_MINUTES = 60.0  # limit on a CPU if the user sets none
TRAINING_SHARE = 0.85  # fraction of the time spent in training steps; the rest is validation and checkpoints
MIN_SHARE = 0.1  # of a preset's full training tokens; with fewer, a smaller preset learns more
MIN_STEPS = 2000  # with fewer steps, smaller batches learn more
MIN_BATCH_TOKENS = 256
VALIDATIONS = 8
SHORT_MINUTES = 10.0  # in shorter runs, validation takes a noticeable fraction of the time
ADAPTED = ("batch_tokens", "warmup_steps", "lr", "validate_every", "validation_sentences", "average_checkpoints")


def setting_keys(settings: Iterable[str]) -> set[str]:
    """Returns the keys of settings such as `train.lr=3e-4`."""
    return {setting.partition("=")[0].strip() for setting in settings}


def time_limit(config: Config, given: Collection[str], world: World) -> float:
    """Returns the time limit in minutes: the given one, or DEFAULT_MINUTES if the user set no limit at all; 0: no limit.

    Always 0 on a GPU, where steps must be compiled before they can be timed, and where the presets need no change.
    """
    if world.device.type == "cuda":
        return 0.0
    return config.train.minutes if any(key in given for key in LIMITS) else DEFAULT_MINUTES


def shorter_preset(name: str, minutes: float, world: World) -> str:
    """Returns the preset, or the largest smaller one that can be trained in the time."""
    while smaller := SMALLER_PRESETS.get(name):
        preset = preset_config(name)
        if tokens_in(minutes, preset, world) >= MIN_SHARE * preset.train.steps * preset.train.batch_tokens:
            break
        name = smaller
    return name


def tokens_in(minutes: float, config: Config, world: World) -> float:
    return TRAINING_SHARE * minutes * 60 * world.size / seconds_per_token(config, world.device)


def fit_to_length(
    config: Config, preset: str, given: Collection[str], world: World, corpus_tokens: float, display: Display
) -> Config:
    """Returns the configuration with settings adapted to the training length; keys in `given`, set by the user, stay."""
    if all(f"train.{name}" in given for name in ADAPTED):
        return config
    full_steps, minutes = preset_config(preset).train.steps, time_limit(config, given, world)
    tokens = tokens_in(minutes, config, world) if minutes else math.inf
    if not any(key in given for key in LIMITS) and minutes:
        config = _limit_minutes(config, tokens, minutes, display)
        tokens = tokens if config.train.minutes else math.inf
    train = config.train
    if train.epochs:
        tokens = min(tokens, train.epochs * corpus_tokens)
    batch_tokens, steps = train.batch_tokens, train.steps or math.inf
    if tokens < math.inf and "train.batch_tokens" not in given:
        batch_tokens = _batch_tokens(config, tokens)
    steps = min(steps, max(1.0, tokens / batch_tokens))
    if steps >= full_steps and batch_tokens == train.batch_tokens:
        return config
    config = _adapt(config, full_steps, batch_tokens, steps, given)
    display.message(
        f"set for about {steps:,.0f} steps: {config.train.batch_tokens:,} target tokens per step, learning rate "
        f"{config.train.lr:g}, warm-up of {config.train.warmup_steps:,} steps (override with --set)"
    )
    return config


def _limit_minutes(config: Config, tokens: float, minutes: float, display: Display) -> Config:
    """Reports how long the preset takes on this machine; limits the training to `minutes`, enough for `tokens`, if longer."""
    train = config.train
    needed = minutes * train.steps * train.batch_tokens / tokens
    duration = f"{needed:,.0f} minutes" if needed < 120 else f"{needed / 60:,.1f} hours"
    message = (
        f"{train.steps:,} steps of {train.batch_tokens:,} target tokens would take about {duration} on this machine"
    )
    if needed <= minutes:
        display.message(message)
        return config
    display.message(f"{message}: limited to {minutes:g} minutes (change it with --minutes, --epochs or --steps)")
    return replace(config, train=replace(train, steps=0, minutes=minutes))


def _batch_tokens(config: Config, tokens: float) -> int:
    """Returns the largest power of two that divides `tokens` into at least MIN_STEPS steps; at most the preset's batch."""
    floor = max(MIN_BATCH_TOKENS, config.model.max_positions if config.model.shape == "decoder" else 0)
    wanted = 2 ** int(math.log2(max(tokens / MIN_STEPS, 1)))
    return min(max(wanted, floor), config.train.batch_tokens)


def _adapt(config: Config, full_steps: int, batch_tokens: int, steps: float, given: Collection[str]) -> Config:
    train = config.train
    warmup_steps = max(1, round(train.warmup_steps * min(1.0, steps / full_steps)))
    lr = train.lr * math.sqrt(batch_tokens / train.batch_tokens)  # smaller batches have noisier gradients
    if train.schedule == "paper":
        lr *= math.sqrt(warmup_steps / train.warmup_steps)  # keeps the peak
    chosen = {"batch_tokens": batch_tokens, "warmup_steps": warmup_steps, "lr": float(f"{lr:.2g}")}
    interval = math.ceil(steps / VALIDATIONS)
    if not train.validate_every or train.validate_every > interval:
        chosen |= {"validate_every": interval, "average_checkpoints": min(train.average_checkpoints, VALIDATIONS // 2)}
    if train.minutes and train.minutes < SHORT_MINUTES:
        chosen["validation_sentences"] = min(train.validation_sentences, 100)
    free = {name: value for name, value in chosen.items() if f"train.{name}" not in given}
    return replace(config, train=replace(train, **free))  # type: ignore[arg-type]
