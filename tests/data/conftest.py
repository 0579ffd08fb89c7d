"""What several tests of data need."""

import pytest

from seq2see.data.tokenizer import Tokenizer
from tests.data.texts import CORPUS


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(["a b c d"], kind="word")


@pytest.fixture(scope="module")
def bpe() -> Tokenizer:
    return Tokenizer.train(CORPUS, vocab_size=400, roles=["user", "assistant"])
