"""The key figures of the lessons that train or need no model, recomputed with NumPy as in test_recomputed.py."""

import math

import numpy as np
import pytest
import torch

from seq2see.config import ModelConfig
from seq2see.course.lessons import (
    LESSONS,
    leak,
    learning,
    order,
    patches,
    saturation,
)
from seq2see.course.lessons.toy_language import toy_corpus
from seq2see.course.recurrent.network import Recurrent
from seq2see.data.layout import Packed
from tests.course.lessons import close, relative
from tests.numpy_transformer import softmax


def test_saturation_is_recomputed() -> None:
    found = saturation.compute(steps=10)
    for spread in found.spreads:
        assert spread.score / spread.scaled == pytest.approx(spread.head_width, rel=1e-3)
    derivative = [exercise.answer for exercise in LESSONS["saturation"].exercises()[:2]]
    p = softmax(np.array([8.0, 0.0]))[0]
    assert close(derivative, [0.25, p * (1 - p)], 1e-9)


def test_order_is_recomputed() -> None:
    found, corpus = order.compute(steps=10), toy_corpus(1)
    tokens = sum(len(sentence.hindi.split()) + 1 for sentence in corpus.test)  # with <end>
    assert found.floor == pytest.approx(math.log(2) * len(corpus.test) / tokens)
    one, other = (np.array(vectors) for vectors in found.with_positions.vectors)
    assert close(found.with_positions.change, relative(one, other[[2, 1, 0, 3]]))


def test_recurrent_is_recomputed() -> None:
    assert LESSONS["recurrent"].exercises()[0].answer == pytest.approx(0.8**30)
    torch.manual_seed(3)
    network = Recurrent(
        ModelConfig(kind="rnn", vocab_size=9, width=4, heads=1, encoder_layers=1, decoder_layers=1)
    ).eval()
    w = {name: value.detach().double().numpy() for name, value in network.state_dict().items()}
    ids = [1, 5, 2, 7]
    with torch.no_grad():
        state = network.encode(Packed.from_sequences([ids])).double().numpy()[0, 0]  # [2, width]: h and c
    scale = state.shape[1] ** 0.5 if network.config.scale_embeddings else 1.0
    lstm = {part: w[f"encoder.layers.0.{part}_l0"] for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")}
    h, c = np.zeros(4), np.zeros(4)
    for token in ids[::-1]:  # from the end
        x = w["embedding.weight"][token] * scale
        gates = lstm["weight_ih"] @ x + lstm["bias_ih"] + lstm["weight_hh"] @ h + lstm["bias_hh"]
        i, f, g, o = np.split(gates, 4)
        c = c / (1 + np.exp(-f)) + np.tanh(g) / (1 + np.exp(-i))
        h = np.tanh(c) / (1 + np.exp(-o))
    assert close(state, [h, c])


def test_patches_is_recomputed() -> None:
    found = patches.compute(steps=10)
    pixels = np.array(found.picture.pixels)
    book = {"empty": np.zeros((4, 4))} | {
        name: np.array([[float(pixel == "#") for pixel in row] for row in rows])
        for name, rows in patches.SHAPES.items()
    }
    for i, code in enumerate(found.picture.codes):
        y, x = 4 * (i // 3), 4 * (i % 3)
        patch = pixels[y : y + 4, x : x + 4]
        assert code == "patch" + min(book, key=lambda name: float(((patch - book[name]) ** 2).sum()))
    frames = np.array(found.sound.samples).reshape(-1, 80)
    assert close(found.sound.frequencies, abs(np.fft.rfft(frames)).argmax(1) * 10)


def test_learning_is_recomputed() -> None:
    found = learning.compute(steps=10)
    assert found.references == (
        "la pizza sortit du four et elle était bonne",
        "la pizza sortit du four et il fut fermé",
    )
    assert found.examples == 8 * 8 * 3 * 6 - 100 and found.moments[0].accuracy < 0.6
    assert [exercise.answer for exercise in LESSONS["learning"].exercises()[:2]] == pytest.approx(
        [2 * (2 - 5), 2 - 0.1 * 2 * (2 - 5)]
    )


def test_leak_is_recomputed() -> None:
    found, corpus = leak.compute(steps=10), toy_corpus(1)
    choices = [math.log(4 if sentence.english.split()[0] in ("yesterday", "today") else 2) for sentence in corpus.test]
    # Tokens depend on which translation was drawn: a compound past has one word more.
    shortest = sum(min(len(text.split()) for text in sentence.references) + 1 for sentence in corpus.test)
    longest = sum(max(len(text.split()) for text in sentence.references) + 1 for sentence in corpus.test)
    assert sum(choices) / longest <= found.floor <= sum(choices) / shortest
