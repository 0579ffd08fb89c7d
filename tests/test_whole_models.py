"""Whole models: from text to text, with weights as decoding likes them, in the precision asked for."""

from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path

import pytest
import torch

from seq2see.api import Model, load
from seq2see.config import Config, ModelConfig
from seq2see.decode.engine import continuations, translations
from seq2see.decode.int8 import quantised
from seq2see.decode.optimize import ready
from seq2see.decode.search import Search, SearchOptions
from seq2see.decode.session import Vocabulary
from seq2see.decode.text import Chat, readable
from seq2see.directory import save_config, save_tokenizers, save_weights
from seq2see.errors import UsageError, UserError
from seq2see.inspect.interventions import intervene, without
from seq2see.layout import Packed
from seq2see.precision import bf16_works
from seq2see.text.token_spans import cut_points
from seq2see.text.tokenizer import Tokenizer
from tests.decoders import PAPER, START, TRANSLATORS, WORDS, WRITER, model, sentences


def saved(folder: Path, config: ModelConfig, texts: Sequence[str], roles: Sequence[str] = ()) -> Path:
    tokenizer = Tokenizer.train(texts, vocabulary=300, roles=roles)
    config = replace(config, vocabulary=len(tokenizer))
    save_config(folder, Config(model=config))
    save_tokenizers(folder, (tokenizer, tokenizer))
    save_weights(folder / "model.safetensors", model(config, ends=1.0).state_dict())
    return folder


HINDI = "मुझे आइसक्रीम खाना पसंद है। क्षत्रिय, ज्ञान, श्री 👩‍👩‍👧 और é थे"


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return load(saved(tmp_path_factory.mktemp("translator"), PAPER, [HINDI, "I like eating ice-cream"]))


@pytest.fixture(scope="module")
def writer(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return load(saved(tmp_path_factory.mktemp("writer"), replace(WRITER, longest=64), [HINDI], ["user", "model"]))


def test_a_model_translates_text_with_the_fields_of_search(translator: Model) -> None:
    texts = ["I like ice", "eating"]
    found = translator.hypotheses(texts, beam=3, nbest=2, length_penalty=0.6)
    assert [len(hypotheses) for hypotheses in found] == [2, 2]
    assert translator.translate(texts, beam=3, length_penalty=0.6) == [translator.text(best) for best, *_ in found]
    begun = translator.translate(texts, prefixes=["मुझे", "है"])
    assert [text[:4] for text in begun] == ["मुझे", "है" + begun[1][2:4]]
    assert set(SearchOptions.__annotations__) == {field.name for field in fields(Search)}
    with pytest.raises(UserError, match="shape decoder"):
        translator.generate("I")


def test_without_a_head_a_model_translates_otherwise_and_the_model_itself_stays(translator: Model) -> None:
    plain = translator.hypotheses(["I like ice"])
    with translator.without("decoder.1.cross", head=2) as less:
        assert less.hypotheses(["I like ice"]) != plain
        assert translator.hypotheses(["I like ice"]) == plain
    assert less.hypotheses(["I like ice"]) == plain


def test_streamed_text_is_the_whole_text_in_whole_letters(writer: Model, translator: Model) -> None:
    for seed in range(5):
        options: SearchOptions = {"temperature": 1.5, "seed": seed}
        pieces = list(writer.stream("मुझे", tokens=80, **options))
        assert ["".join(pieces)] == writer.generate("मुझे", tokens=80, **options)
    assert "".join(translator.stream("I like ice", tokens=30)) == translator.translate(["I like ice"], longest=30)[0]
    with pytest.raises(UsageError, match="beam of 2"):
        writer.stream("a", beam=2)


@pytest.mark.parametrize("text", [HINDI, "🇮🇳🇮🇳 flags", "e\u0301e\u0301", "क्ष त्र", "👩‍👩‍👧👩", "plain"])
def test_no_piece_is_half_a_letter(text: str, writer: Model) -> None:
    """Byte by byte, the worst case: every cut of the stream is a cut between graphemes of the whole."""
    tokenizer = writer.tokenizers[1]
    single = {content: id for id, content in enumerate(tokenizer._content) if len(content) == 1}
    ids = [single[bytes([byte])] for byte in text.encode()]
    pieces = list(readable(tokenizer, ids))
    assert "".join(pieces) == text
    ends = [len("".join(pieces[: i + 1])) for i in range(len(pieces))]
    assert set(ends) <= cut_points(text)
    assert len(pieces) > 1


def test_text_ends_before_a_stop_string(writer: Model) -> None:
    whole = writer.generate("मुझे", tokens=60)[0]
    stop = whole[10:13]
    expected = whole[: whole.index(stop)]
    assert writer.generate("मुझे", tokens=60, stop=[stop, "never said"]) == [expected]
    assert "".join(writer.stream("मुझे", tokens=60, stop=[stop])) == expected
    (found,) = continuations(
        writer.network, [writer.tokenizers[1].encode("मुझे")], Vocabulary.of(writer.tokenizers[1]), Search(longest=60),
        lambda ids: stop in writer.tokenizers[1].decode(ids),
    )  # fmt: skip
    assert found[0].finished and len(found[0].logprobs) == len(found[0].tokens)


def test_a_conversation_is_written_in_the_models_own_form(writer: Model, tmp_path: Path) -> None:
    tokenizer = writer.tokenizers[1]
    turns = [("system", "Be kind."), ("user", "What is <user>?"), ("model", "A sign."), ("user", "And é?")]
    plain = "Be kind.\n\nUser: What is <user>?\nModel: A sign.\nUser: And é?\nModel:"
    assert tokenizer.decode(Chat().prompt(tokenizer, turns)) == plain

    (tmp_path / "chat.toml").write_text('user = "<user>{text}"\nmodel = "<model>{text}"\n', encoding="utf-8")
    form = Chat.load(tmp_path / "chat.toml")
    tokens = form.prompt(tokenizer, turns[1:])
    roles = tokenizer.roles
    assert [token for token in tokens if token in roles.values()] == [
        roles["user"], roles["model"], roles["user"], roles["model"]
    ]  # fmt: skip
    assert tokenizer.decode(tokens) == "What is <user>?A sign.And é?"
    assert isinstance(replace(writer, chat_template=form).chat(turns[1:], tokens=5), str)

    (tmp_path / "chat.toml").write_text('usr = "{text}"')
    with pytest.raises(UserError, match='did you mean "user"'):
        Chat.load(tmp_path / "chat.toml")
    with pytest.raises(UserError, match=r"\{text\} in it once"):
        Chat(user="User:")
    with pytest.raises(UserError, match='nobody is called "usr"'):
        Chat().prompt(tokenizer, [("usr", "hello")])


def test_what_cannot_be_meant_is_refused() -> None:
    for wrong, message in (
        ({"beam": 0}, "beam = 0 must be at least 1"),
        ({"beam": 2, "nbest": 3}, "nbest = 3 is more than beam = 2"),
        ({"beam": 2, "temperature": 1.0}, "not for beam = 2"),
        ({"samples": 2}, "would all be the same"),
        ({"top_p": 0.0}, "top_p"),
    ):
        with pytest.raises(UsageError, match=message):
            Search(**wrong)
    with pytest.raises(UsageError, match="beam of 40 looks at 80"):
        translations(model(), [[5]], WORDS, Search(beam=40))


# How weights lie


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", TRANSLATORS)
def test_weights_laid_out_for_decoding_compute_the_same(name: str, dtype: torch.dtype) -> None:
    if dtype == torch.bfloat16 and not bf16_works():
        pytest.skip("no bf16 here")
    m = model(TRANSLATORS[name]).to(dtype)
    sources, targets = (
        Packed.of(sentences(8)),
        Packed.of([[START, *sentence[:-1]] for sentence in sentences(8, seed=1)]),
    )
    with torch.inference_mode():
        before = m(sources, targets)
        weights = {name: weight.clone() for name, weight in m.state_dict().items()}
        made_ready = ready(m)
        after = made_ready(sources, targets)
    assert (made_ready is m) == (dtype == torch.float32)  # in bf16 it is a copy in blocks
    tolerance = 1e-5 if dtype == torch.float32 else 0.05
    torch.testing.assert_close(after, before, rtol=tolerance, atol=tolerance)
    assert all(torch.equal(weight, weights[name]) for name, weight in m.state_dict().items())


def test_a_loaded_model_has_its_matrices_turned_round(tmp_path: Path) -> None:
    saved(tmp_path, PAPER, [HINDI])
    weights = load(tmp_path).network.state_dict()
    for name in ("decoder.blocks.0.feed_forward.expand.weight", "embedding.weight"):  # the latter makes the logits
        assert weights[name].T.is_contiguous()


# 8 bits


@pytest.mark.parametrize("name", TRANSLATORS)
def test_in_8_bits_logits_are_close_and_do_not_depend_on_neighbours(name: str) -> None:
    m = model(TRANSLATORS[name])
    less = quantised(m)
    sources, targets = sentences(8), [[START, *sentence[:-1]] for sentence in sentences(8, seed=1)]
    target = Packed.of(targets)
    with torch.inference_mode():
        exact, rounded = m(Packed.of(sources), target), less(Packed.of(sources), target)
        for i in range(8):
            alone = less(Packed.of(sources[i : i + 1]), Packed.of(targets[i : i + 1]))
            torch.testing.assert_close(alone, rounded[target.layout.slice(i)], rtol=0, atol=2e-5)
    error = (rounded - exact).square().mean().sqrt() / exact.std()
    assert 0 < error < 0.06
    assert torch.equal(m(Packed.of(sources), target), exact)  # the original is as it was


def test_8_bits_decode_alike_alone_and_together() -> None:
    less = quantised(model())
    sources = sentences(20)
    together = translations(less, sources, WORDS, Search(beam=2))
    for source, (best, *_) in zip(sources, together, strict=True):
        (alone, *_), *_ = translations(less, [source], WORDS, Search(beam=2))
        assert alone.score == pytest.approx(best.score, abs=1e-3)
    with intervene(less, without("decoder.1.cross", head=2)):
        assert translations(less, sources, WORDS, Search(beam=2)) != together


def test_a_directory_is_loaded_in_the_precision_asked_for(tmp_path: Path) -> None:
    saved(tmp_path, PAPER, [HINDI])
    before = (tmp_path / "model.safetensors").read_bytes()
    exact, eight, half = (load(tmp_path, precision=p) for p in ("float32", "int8", "bf16"))
    scores = [m.hypotheses([HINDI], longest=5)[0][0].logprobs[0] for m in (exact, eight, half)]
    assert len(set(scores)) == 3
    assert scores == pytest.approx([scores[0]] * 3, abs=0.3)
    assert (tmp_path / "model.safetensors").read_bytes() == before
