"""A model whose translations are known, for the tests of what is around a model."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

from seq2see.api import Model
from seq2see.config import Config, ModelConfig
from seq2see.text.tokenizer import Tokenizer
from seq2see.translate.notices import Notes
from seq2see.translate.translator import Translator

WORDS = Tokenizer.train(["The boy drinks tea. मैं चाय पीता हूँ।"] * 10, vocabulary=300)


@dataclass(frozen=True)
class StandIn:
    """A model whose translations are known."""

    says: Callable[[str], str]
    longest: int = 64
    tokenizers: tuple[Tokenizer, Tokenizer] = (WORDS, WORDS)

    @property
    def config(self) -> Config:
        return Config(model=ModelConfig(longest=self.longest))

    def translate(self, texts: Sequence[str], *, beam: int = 1) -> list[str]:
        return [self.says(text) for text in texts]

    def hypotheses(self, texts: Sequence[str], *, beam: int = 1, nbest: int = 1) -> list[list[Any]]:
        tokens = [tuple(WORDS.encode(self.says(text))) for text in texts]
        return [[SimpleNamespace(tokens=ids, score=-float(n)) for n in range(nbest)] for ids in tokens]


def translator(says: Callable[[str], str], longest: int = 64, keep: re.Pattern[str] | None = None) -> Translator:
    return Translator(cast(Model, StandIn(says, longest)), Notes(told.append), keep=keep)


def same(text: str) -> str:
    return text


told: list[str] = []
