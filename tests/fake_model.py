"""A fake model with known translations, for testing the code around a model."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import SimpleNamespace
from typing import Any, cast

import torch

from seq2see.api import Model
from seq2see.config import Config, ModelConfig
from seq2see.config.search import Search
from seq2see.data.tokenizer import Tokenizer
from seq2see.data.word_spans import split_words
from seq2see.formats.protected import protect
from seq2see.storage.assessment import Assessment
from seq2see.translate.translator import Translator
from seq2see.translate.warning_log import WarningLog

TOKENIZER = Tokenizer.train(["The boy drinks tea. मैं चाय पीता हूँ।"] * 10, vocab_size=300)


@dataclass(frozen=True)
class FakeModel:
    """Translates every sentence with the given function."""

    function: Callable[[str], str]
    max_positions: int = 64
    tokenizers: tuple[Tokenizer, Tokenizer] = (TOKENIZER, TOKENIZER)

    @cached_property
    def config(self) -> Config:
        return Config(model=ModelConfig(max_positions=self.max_positions))

    def search_sentences(self, sentences: Sequence[str], search: Search) -> list[list[Any]]:
        translations = [self.function(sentence) for sentence in sentences]
        return [
            [SimpleNamespace(text=text, score=-float(n), confidence=0.0) for n in range(search.nbest)]
            for text in translations
        ]

    def text(self, hypothesis: Any) -> str:
        return str(hypothesis.text)

    def assess(self, source: str, confidence: float) -> Assessment:
        return Assessment(None, confidence, None)


class FakeTranslator(Translator):
    def word_attention(self, pairs: Sequence[tuple[str, str]]) -> list[torch.Tensor]:
        """Returns attention of each word to the word in its place."""
        return [torch.eye(len(split_words(target)), len(split_words(source))) for source, target in pairs]


def fake_translator(
    function: Callable[[str], str], max_positions: int = 64, placeholders: re.Pattern[str] | None = None
) -> Translator:
    model = cast(Model, FakeModel(function, max_positions))
    return protect(FakeTranslator(model, WarningLog(warnings.append)), placeholders)


def identity(text: str) -> str:
    return text


warnings: list[str] = []  # everything that fake translators emitted
