"""What the tests of the lessons share: results that are computed once, a small model that knows their words, and NumPy."""

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from seq2see.api import Model
from seq2see.config import ModelConfig, TextConfig
from seq2see.course.lessons import LESSONS, heads, senses
from tests.models import GRAMMAR_MODEL, TINY, tiny_model
from tests.numpy_transformer import NumpyTransformer

Array = NDArray[np.float64]
TOLERANCE = 2e-4  # of float32 against float64

bundled = pytest.mark.skipif(
    not (GRAMMAR_MODEL / "config.toml").is_file(), reason="create the bundled model with python recipes/bundled.py"
)

# Settings with which the lessons that train end soon.
SHORT: dict[str, dict[str, Any]] = {
    "directions": {"sentences": 1500},
    "words": {"sentences": 300},
    "cross": {"steps": 90},
    **{name: {"steps": 10} for name in ("saturation", "order", "leak", "patches", "learning")},
}


@cache
def computed(name: str) -> Any:
    """The result of a lesson, computed once per process."""
    return LESSONS[name].compute(SHORT.get(name, {}))


def word_model(config: ModelConfig = TINY, norm_first: bool = False) -> Model:
    """A small untrained model whose vocabulary has the words of the lessons."""
    texts = [
        "How are you? We are friends I am good an apple phone The money in the bank grows. Thank you",
        "The man saw the astronomer with a telescope. Apple is healthy. Nithish killed the lion. Nithish saw the lion.",
        "मैं बढ़िया हूँ हम दोस्त हैं आप कैसे हैं?",
    ]
    texts += [*heads.QUESTIONS, *heads.OTHER_SENTENCES, *(each for group in senses.SENSES.values() for each in group)]
    texts += ["piece of cake This is a piece of cake. I ate a piece of cake. Nithish killed lion", "Take one"]
    return tiny_model(texts, replace(config, norm_first=norm_first), TextConfig(tokenizer="word"))


def run(model: Any, source: str, target: str = "") -> tuple[NumpyTransformer, Array]:
    """Runs a sentence, one token per word, through the weights; returns the reference and its logits."""
    tokenizer = model.tokenizers[0]
    weights = {name: value.double().numpy() for name, value in model.network.state_dict().items()}
    reference = NumpyTransformer(model.config.model, weights)
    inputs = [tokenizer.start, *tokenizer.encode(target)]
    return reference, reference.run([*tokenizer.encode(source), tokenizer.end], inputs)


def close(found: Any, expected: Any, tolerance: float = TOLERANCE) -> bool:
    return np.allclose(np.array(found, dtype=float), np.array(expected, dtype=float), atol=tolerance, rtol=tolerance)


def cosine(a: Array, b: Array) -> float:
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def relative(before: Array, after: Array) -> Array:
    return np.linalg.norm(after - before, axis=1) / np.linalg.norm(before, axis=1)
