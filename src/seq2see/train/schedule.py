"""How the learning rate rises and falls."""

import math

from seq2see.config import TrainConfig

FLOOR = 0.1  # what cosine and linear decay end at, as a share of the highest rate
DECAY = 0.3  # the part of the training in which the constant-linear rate falls


def learning_rate(config: TrainConfig, width: int, step: int, progress: float) -> float:
    """The rate of a step, counted from 1. `progress` is the share of the training that is over, by whichever limit
    comes first; only the schedules that know an end use it.
    """
    if config.schedule == "paper":  # d^-0.5 · min(step^-0.5, step · warmup^-1.5)
        return config.lr * width**-0.5 * min(step**-0.5, step * config.warmup**-1.5)
    warm = min(1.0, step / config.warmup)
    if config.schedule == "inverse-sqrt":
        return config.lr * min(warm, math.sqrt(config.warmup / step))
    if config.schedule == "cosine":
        return config.lr * warm * (FLOOR + (1 - FLOOR) * (1 + math.cos(math.pi * min(progress, 1))) / 2)
    if config.schedule == "constant-linear":
        left = max(0.0, min(1.0, (1 - progress) / DECAY))
        return config.lr * warm * (FLOOR + (1 - FLOOR) * left)
    return config.lr * warm
