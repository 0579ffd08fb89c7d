"""The settings of Word2Vec, with the defaults of the original implementation; the command line takes them as options."""

from dataclasses import dataclass
from typing import Literal, get_args

from seq2see.config import option
from seq2see.config.toml import check_limits
from seq2see.errors import UserError, did_you_mean

Objective = Literal["skip-gram", "cbow"]
MAXIMA = {"width": 10_000, "window": 1_000, "negatives": 1_000, "seed": (1 << 63) - 1}


@dataclass(frozen=True)
class Word2VecConfig:
    objective: Objective = option("skip-gram", "Predict a word from each context word, or (cbow) from their mean.")
    width: int = option(100, "Dimension of the vectors.", min=1)
    window: int = option(5, "Maximum distance of context words.", min=1)
    negatives: int = option(5, "Negative samples per pair.", min=1)
    epochs: int = option(5, "Passes over the text.", min=1)
    min_count: int = option(5, "Drop rarer words.", min=1)
    sample: float = option(1e-3, "Subsample words above this relative frequency; 0: none.", min=0)
    lr: float = option(0.025, "Initial learning rate, which decays linearly.", above=0)
    seed: int = option(1, "Random seed.")
    lowercase: bool = option(True, "Treat Apple as apple.")

    def __post_init__(self) -> None:
        if self.objective not in get_args(Objective):
            hint = did_you_mean(self.objective, get_args(Objective))
            raise UserError(f'unknown objective "{self.objective}": {hint}')
        check_limits(self)
        for name, limit in MAXIMA.items():
            if abs(getattr(self, name)) > limit:
                raise UserError(f"{name} = {getattr(self, name)} must be at most {limit:,}")
