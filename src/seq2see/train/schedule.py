"""Learning-rate schedules."""

import math

from seq2see.config import TrainConfig

MIN_LR_RATIO = 0.1  # final learning rate of the cosine and constant-linear schedules, relative to the peak
DECAY_FRACTION = 0.3  # of the training, at its end, over which constant-linear decays


def learning_rate(config: TrainConfig, width: int, step: int, progress: float) -> float:
    """Returns the learning rate of a step, counted from 1. `progress` is the fraction of the training that is done; only
    the cosine and constant-linear schedules use it.
    """
    if config.schedule == "paper":  # d^-0.5 · min(step^-0.5, step · warmup^-1.5)
        return config.lr * width**-0.5 * min(step**-0.5, step * config.warmup_steps**-1.5)
    warmup = min(1.0, step / config.warmup_steps)
    if config.schedule == "inverse-sqrt":
        return config.lr * min(warmup, math.sqrt(config.warmup_steps / step))
    if config.schedule == "cosine":
        return config.lr * warmup * (MIN_LR_RATIO + (1 - MIN_LR_RATIO) * (1 + math.cos(math.pi * min(progress, 1))) / 2)
    if config.schedule == "constant-linear":
        decay = max(0.0, min(1.0, (1 - progress) / DECAY_FRACTION))
        return config.lr * warmup * (MIN_LR_RATIO + (1 - MIN_LR_RATIO) * decay)
    return config.lr * warmup
