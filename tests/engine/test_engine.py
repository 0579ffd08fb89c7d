"""The engine gives what the torch model and its search give: the same bits on every processor and in every batch."""

import ctypes
import random
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seq2see.config import ModelConfig
from seq2see.config.search import Search
from seq2see.data.framing import Framing
from seq2see.data.layout import Packed
from seq2see.decode.generate import decode_requests
from seq2see.decode.int8 import quantize_int8
from seq2see.decode.request import Request
from seq2see.decode.search import Hypothesis
from seq2see.engine import build, library
from seq2see.engine.build import BuildError
from seq2see.engine.model import EngineBatch, EngineModel, Found, Rules
from seq2see.model.transformer import Transformer
from tests.engine.decoding import FRAMING, Texts, engine_search, packed, random_model, random_texts

try:
    PROCESSORS = library.processors()
except (BuildError, OSError) as error:
    pytest.skip(f"the engine cannot be compiled here: {error}", allow_module_level=True)

SMALL = ModelConfig(vocab_size=150, width=48, heads=4, encoder_layers=2, decoder_layers=2, feed_forward=80, dropout=0.0)
LIMIT = 20

OPTIONS: dict[str, list[dict[str, Any]]] = {
    "shape": [{"shape": "encoder-decoder"}, {"shape": "decoder"}],
    "norm": [{"norm": "layer"}, {"norm": "rms"}],
    "order": [
        {"norm_first": True},
        {"norm_first": False},
        {"norm_first": True, "output_norm": True},
        {"output_norm": True},
    ],
    "activation": [{"activation": each} for each in ("relu", "gelu", "gelu-tanh", "silu", "swiglu", "geglu")],
    "positions": [
        {"positions": "sinusoidal"},
        {"positions": "sinusoidal-halves"},
        {"positions": "learned", "max_positions": 64},
        {"positions": "rotary"},
        {"positions": "rotary", "rotary_magnitude": 1.2, "rotary_base": 500.0},
        {"positions": "relative", "relative_buckets": 8, "relative_distance": 12},
        {"positions": "none"},
    ],
    "heads": [{}, {"key_value_heads": 2}, {"key_value_heads": 1, "head_width": 10}, {"heads": 3, "head_width": 34}],
    "scores": [{}, {"attention_cap": 2.0}, {"attention_scale": 0.3}, {"query_key_norm": True}],
    "window": [{}, {"attention_window": 5}, {"attention_window": 3, "local_layers": (1,)}],
    "embeddings": [
        {},
        {"tie_embeddings": "target", "source_vocab_size": 131},
        {"tie_embeddings": "none", "output_bias": True},
        {"scale_embeddings": False, "embedding_norm": True},
        {"output_bias": True},
    ],
    "logits": [{}, {"logit_cap": 3.0}, {"logit_scale": 0.7}],
    "bias": [{"bias": each} for each in ("everywhere", "attention", "qkv", "feed-forward", "nowhere")],
    "width": [{}, {"width": 40}, {"width": 64, "heads": 2}, {"feed_forward": 33}, {"vocab_size": 65}],
}


def random_config(seed: int) -> ModelConfig:
    """Every choice of every option occurs in a few seeds: seed i starts with choice i of each."""
    generator = random.Random(seed)
    options: dict[str, Any] = {}
    for choices in OPTIONS.values():
        options |= choices[(seed * generator.choice([1, 1, 3, 5])) % len(choices)]
    if options["shape"] == "decoder":
        options.pop("source_vocab_size", None)
    if options.get("local_layers") or options.get("attention_window"):
        options["local_rotary_base"] = 100.0 * (options["positions"] == "rotary" and seed % 2)
    return replace(SMALL, **options)


def reference(
    network: Transformer, sources: Texts, prompts: Texts, search: Search, framing: Framing = FRAMING
) -> list[list[Hypothesis]]:
    requests = [
        Request(i, source, prompt, LIMIT) for i, (source, prompt) in enumerate(zip(sources, prompts, strict=True))
    ]
    return decode_requests(network, requests, search, framing)


def assert_equal(found: Sequence[Found], expected: Sequence[Hypothesis], end: int = FRAMING.end) -> bool:
    """Asserts that two n-best lists are the same, but for ties; returns whether there was none."""
    tokens = [tuple(each.tokens[: len(each.tokens) - (each.tokens[-1] == end)]) for each in found]
    if tokens != [each.tokens for each in expected]:
        close = [abs(a.score - b.score) < 1e-4 for a, b in pairwise(expected)]
        assert any(close) or abs(found[0].score - expected[0].score) < 1e-4, "other tokens without a tie"
        return False
    for one, other in zip(found, expected, strict=True):
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-4)
    return True


@pytest.mark.parametrize("seed", range(24))
def test_every_option_of_a_model_gives_what_the_reference_gives(seed: int) -> None:
    config = random_config(seed)
    network = random_model(config, seed)
    translates = config.shape == "encoder-decoder"
    sources = random_texts(6, config.source_vocab_size or config.vocab_size, seed) if translates else [[]] * 6
    prompts = [[1, *text] for text in random_texts(6, config.vocab_size, seed + 100, 4 if translates else 25)]
    search = Search(beam=1 + seed % 4 * (seed % 3 > 0), nbest=1)
    found = engine_search(packed(network), sources, prompts, [LIMIT] * 6, search)
    expected = reference(network, sources, prompts, search)
    if search.beam == 1:
        found = [[replaced._replace(score=each[0].score)] for (replaced,), each in zip(found, expected, strict=True)]
    exact = [assert_equal(*pair) for pair in zip(found, expected, strict=True)]
    assert sum(exact) >= 5


@pytest.mark.parametrize(
    "search",
    [
        Search(beam=4, nbest=4),
        Search(beam=2, nbest=2, length_penalty=0.0),
        Search(beam=5, nbest=5, early_stopping=True),
        Search(beam=3, nbest=3, penalty="gnmt", length_penalty=0.6),
        Search(beam=3, early_stopping="never"),
        Search(beam=16, nbest=8, length_penalty=2.0),
        Search(beam=4, nbest=4, length_penalty=-1.0, early_stopping="never"),
    ],
)
def test_every_rule_of_the_beam_gives_what_the_reference_gives(search: Search) -> None:
    network = random_model(replace(SMALL, norm_first=True), 3)
    sources = random_texts(8, SMALL.vocab_size, 5)
    framing = replace(FRAMING, forced=1, banned_first=(2, 7))
    found = engine_search(packed(network), sources, [[1]] * 8, [LIMIT] * 8, search, framing)
    expected = reference(network, sources, [[1]] * 8, search, framing)
    assert sum(assert_equal(*pair) for pair in zip(found, expected, strict=True)) >= 7
    for one, other in zip(found, expected, strict=True):
        assert [each.score for each in one] == pytest.approx([each.score for each in other], rel=1e-6, abs=1e-4)


@pytest.mark.parametrize("int8", [False, True])
def test_all_processors_and_all_batches_give_the_same_bits(int8: bool) -> None:
    config = replace(SMALL, norm_first=True, activation="gelu", width=80, attention_cap=20.0)
    network = random_model(config, 4)
    models = [packed(quantize_int8(network) if int8 else network, each) for each in PROCESSORS]  # type: ignore[arg-type]
    sources = random_texts(12, SMALL.vocab_size, 6, 50)
    for search in (Search(), Search(beam=3, nbest=3)):
        results = [
            engine_search(model, sources, [[1]] * 12, [LIMIT] * 12, search, together=together)
            for together in (1, 5, 12)
            for model in models
        ]
        assert all(each == results[0] for each in results)


def test_int8_is_as_near_to_the_model_as_the_reference_in_int8() -> None:
    network = random_model(replace(SMALL, norm_first=True), 7)
    quantized = quantize_int8(network)
    sources = random_texts(20, SMALL.vocab_size, 8)
    found = engine_search(packed(quantized), sources, [[1]] * 20, [LIMIT] * 20)  # type: ignore[arg-type]
    expected = reference(quantized, sources, [[1]] * 20, Search())  # type: ignore[arg-type]
    first = [(one.logprobs[0], other.logprobs[0]) for (one,), (other,) in zip(found, expected, strict=True)]
    assert np.mean([abs(a - b) for a, b in first]) < 0.02


def test_the_caller_may_choose_the_tokens() -> None:
    network = random_model(SMALL, 9)
    model, sources, k = packed(network), random_texts(3, SMALL.vocab_size, 9), 2
    batch = EngineBatch(model, Rules(beam=k), 3)
    batch.join(sources, [[1]] * 3, [LIMIT] * 3)
    outputs = [[[1]] * k for _ in sources]
    generator = np.random.default_rng(0)
    rows = 3
    for _ in range(LIMIT - 1):  # hypotheses part, meet and are replaced, and the cache is compacted
        logits = batch.logits(rows).reshape(3, -1, SMALL.vocab_size)
        for i, source in enumerate(sources):
            for j in range(logits.shape[1]):
                expected = network(Packed.from_sequences([source]), Packed.from_sequences([outputs[i][j]]))[-1]
                assert logits[i, j] == pytest.approx(expected.detach().numpy(), abs=2e-4)
        tokens = generator.integers(3, SMALL.vocab_size, (3, k)).astype(np.int32)
        parents = generator.integers(0, logits.shape[1], (3, k)).astype(np.int32)
        outputs = [[[*outputs[i][parents[i, j]], int(tokens[i, j])] for j in range(k)] for i in range(3)]
        batch.advance(tokens, parents)
        rows = 3 * k


def test_an_encoder_gives_the_vectors_of_the_reference() -> None:
    config = replace(SMALL, shape="encoder", positions="learned", max_positions=64, embedding_norm=True, segments=2)
    network = random_model(config, 10)
    sources = random_texts(7, config.vocab_size, 11)
    expected = network.encode(Packed.from_sequences(sources)).detach().numpy()
    assert packed(network).encode(sources) == pytest.approx(expected, abs=1e-4)


def test_sessions_in_several_threads_share_a_model() -> None:
    model = packed(random_model(SMALL, 12))
    sources = random_texts(8, SMALL.vocab_size, 13)

    def search(_: int) -> list[list[Found]]:
        return engine_search(model, sources, [[1]] * 8, [LIMIT] * 8, Search(beam=3), together=3)

    with ThreadPoolExecutor(4) as pool:
        first, *others = pool.map(search, range(8))
    assert all(each == first for each in others)


def test_what_is_out_of_bounds_is_refused_and_changes_nothing() -> None:
    model = packed(random_model(replace(SMALL, positions="learned", max_positions=32), 14))
    batch = EngineBatch(model, Rules(divisors=np.ones(40, np.float32), end=2), 2)
    sources, prompts = [[5, 6]], [[1]]
    refused: list[tuple[Texts, Texts, list[int]]] = [
        ([[5, SMALL.vocab_size]], prompts, [5]),
        ([[-1]], prompts, [5]),
        ([[]], prompts, [5]),
        ([[5] * 33], prompts, [5]),
        (sources, [[SMALL.vocab_size]], [5]),
        (sources, [[]], [5]),
        (sources, prompts, [0]),
        (sources, prompts, [33]),
        (sources, [[1] * 30], [4]),
        (sources * 3, prompts * 3, [5] * 3),
    ]
    for bad in refused:
        with pytest.raises(ValueError, match="bad argument"):
            batch.join(*bad)
    batch.join(sources, prompts, [32])
    calls: list[Callable[[], object]] = [
        lambda: batch.is_done(1),
        lambda: batch.leave(-1),
        lambda: batch.hypotheses(0, 2),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="bad argument"):
            call()
    with pytest.raises(ValueError, match="bad argument"):
        batch.advance(np.zeros((1, 1), np.int32), np.zeros((1, 1), np.int32))
    batch.run()
    assert batch.hypotheses(0)


def test_damaged_weights_are_refused() -> None:
    network = random_model(SMALL, 15)
    model = packed(network)
    functions, index = model.library, 0
    array = np.zeros((2, 2), np.float32)
    with pytest.raises(ValueError, match="wrong shape"):
        functions.check("set_tensor", model.handle, index, array.ctypes.data, 2, 2)
    with pytest.raises(ValueError, match="bad argument"):
        functions.check("set_tensor", model.handle, 10_000, array.ctypes.data, 2, 2)
    empty = functions("create_model", ctypes.byref(library.Config(vocab_size=0)))
    assert not empty


def test_nan_has_no_output() -> None:
    network = random_model(replace(SMALL, norm_first=True), 16)
    dict(network.named_parameters())["decoder.blocks.0.feed_forward.up.bias"].data[:] = float("nan")
    for each in (network, quantize_int8(network)):
        for search in (Search(), Search(beam=3)):
            found = engine_search(packed(each), [[5, 6]], [[1]], [LIMIT], search)  # type: ignore[arg-type]
            assert found == [[]]


def test_the_model_outlives_what_refers_to_it() -> None:
    def open_batch() -> EngineBatch:
        model: EngineModel = packed(random_model(SMALL, 17))
        return EngineBatch(model, Rules(divisors=np.ones(40, np.float32), end=2), 1)

    batch = open_batch()
    batch.join([[5, 6]], [[1]], [LIMIT])
    batch.run()
    assert batch.hypotheses(0)


def test_the_engine_is_compiled_wherever_it_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "100% [a]* $x 'हिन्दी'"
    monkeypatch.setenv("HOME", "/nonexistent")
    folder.mkdir()
    library = build.build(flags=["-O0"], to=folder / "engine.so")
    assert library.stat().st_size > 10_000 and list(folder.iterdir()) == [library]


def test_the_engine_is_imported_without_torch() -> None:
    code = "import sys; sys.modules['torch'] = None; from seq2see.engine import model, library; library.processors()"
    subprocess.run([sys.executable, "-c", code], check=True)
