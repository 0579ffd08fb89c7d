"""Pipelines from text to text: search options, streaming, chat templates, memory layouts and precisions."""

import platform
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from seq2see.api import Model, load
from seq2see.config import Config, InferencePrecision, ModelConfig
from seq2see.config.search import Search, SearchOptions
from seq2see.data.layout import Packed
from seq2see.data.token_spans import grapheme_boundaries
from seq2see.data.tokenizer import Tokenizer
from seq2see.decode import optimize
from seq2see.decode.generate import generate_tokens, translate_tokens
from seq2see.decode.int8 import quantize_int8
from seq2see.decode.optimize import BlockedLinear, block_weights, optimize_for_decoding
from seq2see.decode.streaming import stream_text
from seq2see.errors import UsageError, UserError
from seq2see.inspect.interventions import ablate_head, intervene
from seq2see.storage.chat import ChatTemplate
from seq2see.storage.directory import save_config, save_tokenizers, save_weights
from seq2see.tensors.device import bf16_supported
from tests.decoders import (
    LANGUAGE_MODEL,
    PAPER,
    SPECIAL_TOKENS,
    START,
    TRANSLATORS,
    exact_model,
    random_model,
    random_sentences,
)

pytestmark = pytest.mark.avx2


def save_model(folder: Path, config: ModelConfig, texts: Sequence[str], roles: Sequence[str] = ()) -> Path:
    tokenizer = Tokenizer.train(texts, vocab_size=300, roles=roles)
    config = replace(config, vocab_size=len(tokenizer))
    save_config(folder, Config(model=config))
    save_tokenizers(folder, (tokenizer, tokenizer))
    save_weights(folder / "model.safetensors", random_model(config, end_bias=1.0).state_dict())
    return folder


HINDI = "मुझे आइसक्रीम खाना पसंद है। क्षत्रिय, ज्ञान, श्री 👩‍👩‍👧 और é थे"


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return load(save_model(tmp_path_factory.mktemp("translator"), PAPER, [HINDI, "I like eating ice-cream"]))


@pytest.fixture(scope="module")
def language_model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    config = replace(LANGUAGE_MODEL, max_positions=64)
    return load(save_model(tmp_path_factory.mktemp("language_model"), config, [HINDI], ["user", "model"]))


def test_translate_takes_search_options(translator: Model) -> None:
    texts = ["I like ice", "eating"]
    found = translator.hypotheses(texts, beam=3, nbest=2, length_penalty=0.6)
    assert [len(hypotheses) for hypotheses in found] == [2, 2]
    best = [translator.text(best) for best, *_ in found]
    assert translator.translate_sentences(texts, beam=3, length_penalty=0.6) == best
    prefixed = translator.translate_sentences(texts, prefixes=["मुझे", "है"])
    assert prefixed[0].startswith("मुझे") and prefixed[1].startswith("है")
    assert set(SearchOptions.__annotations__) == {field.name for field in fields(Search)}
    with pytest.raises(UserError, match="only a decoder continues a prompt"):
        translator.generate("I")


def test_ablated_copy_leaves_the_model_unchanged(translator: Model) -> None:
    plain = translator.hypotheses(["I like ice"])
    with translator.ablate_head("decoder.1.cross", head=2) as ablated:
        assert ablated.hypotheses(["I like ice"]) != plain
        assert translator.hypotheses(["I like ice"]) == plain
    assert ablated.hypotheses(["I like ice"]) == plain


def test_streamed_pieces_join_to_the_generated_text(language_model: Model, translator: Model) -> None:
    for seed in range(5):
        options: SearchOptions = {"max_new_tokens": 80, "temperature": 1.5, "seed": seed}
        pieces = list(language_model.stream("मुझे", **options))
        assert ["".join(pieces)] == language_model.generate("मुझे", **options)
    (translation,) = translator.translate_sentences(["I like ice"], max_new_tokens=30)
    assert "".join(translator.stream("I like ice", max_new_tokens=30)) == translation
    with pytest.raises(UsageError, match="beam of 2"):
        language_model.stream("a", beam=2)


@pytest.mark.parametrize("text", [HINDI, "🇮🇳🇮🇳 flags", "e\u0301e\u0301", "क्ष त्र", "👩‍👩‍👧👩", "plain"])
def test_stream_never_splits_a_grapheme(text: str, language_model: Model) -> None:
    """One token per byte is the worst case: every piece must end at a grapheme boundary of the whole text."""
    tokenizer = language_model.tokenizers[1]
    single = {content: id for id, content in enumerate(tokenizer._token_contents) if len(content) == 1}
    ids = [single[bytes([byte])] for byte in text.encode()]
    pieces = list(stream_text(tokenizer, ids))
    assert "".join(pieces) == text
    ends = [len("".join(pieces[: i + 1])) for i in range(len(pieces))]
    assert set(ends) <= grapheme_boundaries(text)
    assert len(pieces) > 1


def test_generation_ends_before_a_stop_string(language_model: Model) -> None:
    tokenizer = language_model.tokenizers[1]
    whole = language_model.generate("मुझे", max_new_tokens=60)[0]
    stop = whole[10:13]
    expected = whole[: whole.index(stop)]
    assert language_model.generate("मुझे", max_new_tokens=60, stop=[stop, "not generated"]) == [expected]
    assert "".join(language_model.stream("मुझे", max_new_tokens=60, stop=[stop])) == expected
    (found,) = generate_tokens(
        language_model.network,
        [tokenizer.encode("मुझे")],
        tokenizer.framing,
        Search(max_new_tokens=60),
        lambda ids: stop in tokenizer.decode(ids),
    )
    assert found[0].finished and len(found[0].logprobs) == len(found[0].tokens)


def test_chat_template_formats_a_conversation(language_model: Model, tmp_path: Path) -> None:
    tokenizer = language_model.tokenizers[1]
    messages = [("system", "Be kind."), ("user", "What is <user>?"), ("model", "A sign."), ("user", "And é?")]
    plain = "Be kind.\n\nUser: What is <user>?\nModel: A sign.\nUser: And é?\nModel:"
    assert tokenizer.decode(ChatTemplate().prompt(tokenizer, messages)) == plain

    (tmp_path / "chat.toml").write_text('user = "<user>{text}"\nmodel = "<model>{text}"\n', encoding="utf-8")
    template = ChatTemplate.load(tmp_path / "chat.toml")
    tokens = template.prompt(tokenizer, messages[1:])
    roles = tokenizer.roles
    assert [token for token in tokens if token in roles.values()] == [
        roles["user"],
        roles["model"],
        roles["user"],
        roles["model"],
    ]
    assert tokenizer.decode(tokens) == "What is <user>?A sign.And é?"
    assert isinstance(replace(language_model, chat_template=template).chat(messages[1:], max_new_tokens=5), str)

    (tmp_path / "chat.toml").write_text('usr = "{text}"')
    with pytest.raises(UserError, match='did you mean "user"'):
        ChatTemplate.load(tmp_path / "chat.toml")
    with pytest.raises(UserError, match=r"\{text\} 0 times instead of once"):
        ChatTemplate(user="User:")
    with pytest.raises(UserError, match='unknown chat role "usr"'):
        ChatTemplate().prompt(tokenizer, [("usr", "hello")])


def test_invalid_search_options_are_errors() -> None:
    for wrong, message in (
        ({"beam": 0}, "beam = 0 must be at least 1"),
        ({"beam": 2, "nbest": 3}, "nbest = 3 exceeds beam = 2"),
        ({"beam": 2, "temperature": 1.0}, "requires beam = 1, not 2"),
        ({"samples": 2}, "would all be identical"),
        ({"top_p": 0.0}, "top_p"),
    ):
        with pytest.raises(UsageError, match=message):
            Search(**wrong)
    with pytest.raises(UsageError, match="beam of 40 needs 80 candidate tokens"):
        translate_tokens(random_model(), [[5]], SPECIAL_TOKENS, Search(beam=40))


# Memory layout


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", TRANSLATORS)
def test_optimized_model_equals_the_original(name: str, dtype: torch.dtype) -> None:
    if dtype == torch.bfloat16 and not bf16_supported():
        pytest.skip("bf16 is not supported")
    m = random_model(TRANSLATORS[name]).to(dtype)
    sources, targets = (
        Packed.from_sequences(random_sentences(8)),
        Packed.from_sequences([[START, *sentence[:-1]] for sentence in random_sentences(8, seed=1)]),
    )
    with torch.inference_mode():
        before = m(sources, targets)
        weights = {name: weight.clone() for name, weight in m.state_dict().items()}
        optimized = optimize_for_decoding(m)
        after = optimized(sources, targets)
    assert (optimized is m) == (dtype == torch.float32)  # in bf16, a copy with blocked weights
    error = (after - before).float().square().mean().sqrt() / before.float().std()
    assert error < (1e-5 if dtype == torch.float32 else 0.03)  # the error of bf16 itself is 0.01
    assert all(torch.equal(weight, weights[name]) for name, weight in m.state_dict().items())


def test_blocked_model_equals_the_original(monkeypatch: pytest.MonkeyPatch) -> None:
    """And only a wide float32 model is copied into blocks."""
    if platform.machine() not in ("x86_64", "AMD64"):
        pytest.skip("blocks are for x86")
    m = random_model()
    assert block_weights(m) is m
    monkeypatch.setattr(optimize, "MIN_BLOCKED_WIDTH", m.config.width)
    sources, targets = (Packed.from_sequences(random_sentences(8, seed=seed)) for seed in (0, 1))
    blocked, int8 = block_weights(m), quantize_int8(m)
    with torch.inference_mode():
        assert_close(blocked(sources, targets), m(sources, targets), rtol=1e-4, atol=1e-4)
    up, original = (each.get_submodule("decoder.blocks.0.feed_forward.up") for each in (blocked, m))
    assert isinstance(up, BlockedLinear) and torch.equal(up.weight, original.get_parameter("weight"))
    assert block_weights(blocked) is blocked and block_weights(int8) is int8
    assert block_weights(double := random_model().double()) is double


def test_loaded_matrices_are_column_major(tmp_path: Path) -> None:
    save_model(tmp_path, PAPER, [HINDI])
    weights = load(tmp_path).network.state_dict()
    for name in ("decoder.blocks.0.feed_forward.up.weight", "embedding.weight"):  # the latter is the output layer
        assert weights[name].T.is_contiguous()


# Precision


@pytest.mark.parametrize("name", TRANSLATORS)
def test_int8_logits_are_close_and_independent_of_the_batch(name: str) -> None:
    m = exact_model(TRANSLATORS[name])  # in float32, rounding can move an activation to the next int8 value
    quantized = quantize_int8(m)
    sources, targets = random_sentences(8), [[START, *sentence[:-1]] for sentence in random_sentences(8, seed=1)]
    target = Packed.from_sequences(targets)
    with torch.inference_mode():
        exact, rounded = m(Packed.from_sequences(sources), target), quantized(Packed.from_sequences(sources), target)
        for i in range(8):
            alone = quantized(Packed.from_sequences(sources[i : i + 1]), Packed.from_sequences(targets[i : i + 1]))
            torch.testing.assert_close(alone, rounded[target.layout.slice(i)], rtol=0, atol=1e-9)
        assert torch.equal(m(Packed.from_sequences(sources), target), exact)  # the original is unchanged
    error = (rounded - exact).square().mean().sqrt() / exact.std()
    assert 0 < error < 0.06


def test_int8_batched_translation_equals_single() -> None:
    quantized = quantize_int8(exact_model())  # in float32, rounding can move an activation to the next int8 value
    sources = random_sentences(20)
    together = translate_tokens(quantized, sources, SPECIAL_TOKENS, Search(beam=2))
    for source, (best, *_) in zip(sources, together, strict=True):
        (alone, *_), *_ = translate_tokens(quantized, [source], SPECIAL_TOKENS, Search(beam=2))
        assert alone.tokens == best.tokens and alone.score == pytest.approx(best.score, abs=1e-5)
    with intervene(quantized, ablate_head("decoder.1.cross", head=2)):
        assert translate_tokens(quantized, sources, SPECIAL_TOKENS, Search(beam=2)) != together


def test_load_in_each_precision(tmp_path: Path) -> None:
    save_model(tmp_path, PAPER, [HINDI])
    before = (tmp_path / "model.safetensors").read_bytes()
    precisions: list[InferencePrecision] = ["float32", "int8", "bf16"]
    if not bf16_supported():
        with pytest.raises(UserError, match="this CPU does not support bf16"):
            load(tmp_path, precision=precisions.pop())
    models = [load(tmp_path, precision=precision) for precision in precisions]
    scores = [model.hypotheses([HINDI], max_new_tokens=5)[0][0].logprobs[0] for model in models]
    assert len(set(scores)) == len(models)
    assert scores == pytest.approx([scores[0]] * len(models), abs=0.3)
    assert (tmp_path / "model.safetensors").read_bytes() == before
