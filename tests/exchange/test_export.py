"""Exported models open in transformers with the same weights, tokens and outputs; what it cannot hold is refused."""

import json
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
import transformers
from typer.testing import CliRunner

import seq2see
from seq2see.cli import app
from seq2see.config import ModelConfig, TextConfig
from seq2see.data.layout import Packed
from seq2see.data.tokenizer import Tokenizer
from seq2see.errors import UsageError, UserError
from seq2see.exchange import export as exporting
from seq2see.exchange.check import Samples
from seq2see.exchange.export import Exported, export_model
from seq2see.exchange.nearest import REWRITINGS, Nearest, differences
from seq2see.exchange.to_huggingface import DTYPES, find_family
from seq2see.model.transformer import Transformer
from seq2see.storage.chat import ChatTemplate
from seq2see.storage.directory import load_pipeline
from seq2see.train.presets import PRESETS
from seq2see.train.start import train
from tests.corpora import SMALL_SETTINGS, write_phrases
from tests.foreign_models import LINES, byte_level, decoder, translator, unigram
from tests.foreign_models import save as save_foreign
from tests.models import TINY, save, tiny_model
from tests.nasty import strings
from tests.parity import FAMILIES, perturbed

GPT = replace(PRESETS["quick-gpt"].model, width=16, heads=2, decoder_layers=2, feed_forward=32, max_positions=64)
TEXTS = ["How are you? I like tea (hot).", "आप कैसे हैं? मुझे चाय पसंद है।", "It's 5% – “so” what…"] * 5
TOLERANCE = 1e-5  # of float32, relative to the largest logit


def export(source: Path, out: Path, **options: Any) -> Exported:
    return export_model(load_pipeline(source), source, out, "huggingface", **options)


def require_close(exported: Exported) -> None:
    assert exported.check is not None
    assert exported.check.difference < TOLERANCE * max(exported.check.largest, 1.0)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_makes_the_round_trip_with_equal_weights(family: str, seed: int, tmp_path: Path) -> None:
    torch.manual_seed(seed)
    theirs: Any = perturbed(FAMILIES[family](Random(seed))).eval()
    theirs.save_pretrained(tmp_path / "in")
    exported = export(tmp_path / "in", tmp_path / "out")
    require_close(exported)
    again = type(theirs).from_pretrained(tmp_path / "out").state_dict()
    for name, weight in theirs.state_dict().items():
        if "embed_positions" in name or "position_embeddings" in name:  # the first rows may be unused
            assert torch.equal(weight[2:], again[name][2:])
        elif "norm" in name and family.startswith("Gemma"):  # it computes 1 + the weight
            assert torch.equal(weight + 1, again[name] + 1)
        else:
            assert torch.equal(weight, again[name])
    first, second = (load_pipeline(tmp_path / name).config.model for name in ("in", "out"))
    assert not differences(first, second)


@pytest.mark.parametrize("heads", [0, 1])
def test_key_value_heads_left_at_their_default_are_exported(heads: int, tmp_path: Path) -> None:
    llama: Any = {
        "positions": "rotary",
        "norm": "rms",
        "activation": "swiglu",
        "bias": "nowhere",
        "tie_embeddings": "all",
    }
    save(tiny_model(TEXTS, replace(GPT, **llama, key_value_heads=heads)), tmp_path / "in")
    require_close(export(tmp_path / "in", tmp_path / "out"))
    assert json.loads((tmp_path / "out/config.json").read_text())["num_key_value_heads"] == (heads or GPT.heads)


@pytest.mark.parametrize("precision", ["bf16", "float16"])
def test_half_precision_is_exact_for_half_precision_weights(precision: Any, tmp_path: Path) -> None:
    dtype = DTYPES[precision]
    theirs = decoder("LlamaForCausalLM").to(dtype)
    theirs.save_pretrained(tmp_path / "in")
    export(tmp_path / "in", tmp_path / "out", precision=precision)
    again = transformers.LlamaForCausalLM.from_pretrained(tmp_path / "out")
    assert again.dtype == dtype
    assert all(torch.equal(weight, again.state_dict()[name]) for name, weight in theirs.state_dict().items())


OURS = {
    "post-norm translator": (TINY, "Marian"),
    "pre-norm translator": (replace(TINY, norm_first=True), "Pegasus"),
    "language model": (GPT, "GPT-2"),
    "rotary language model": (
        ModelConfig(
            shape="decoder",
            width=16,
            heads=2,
            key_value_heads=1,
            decoder_layers=2,
            feed_forward=24,
            activation="swiglu",
            norm="rms",
            norm_first=True,
            positions="rotary",
            max_positions=64,
            scale_embeddings=False,
            bias="nowhere",
            rotary_factors=(1.0, 2.0, 2.5, 4.0),
        ),
        "Llama",
    ),
    "encoder": (
        replace(
            TINY, shape="encoder", positions="learned", embedding_norm=True, scale_embeddings=False, max_positions=64
        ),
        "BERT",
    ),
}


@pytest.mark.parametrize("kind", OURS)
def test_models_of_ours_open_in_transformers(kind: str, tmp_path: Path) -> None:
    config, family = OURS[kind]
    model = tiny_model(TEXTS, config)
    perturbed(model.network)
    exported = export(save(model, tmp_path / "in"), tmp_path / "out")
    assert exported.steps[0] == f"family {family}"
    require_close(exported)
    assert exported.check is not None
    assert exported.check.equal["tokenized texts"] == (4, 4)
    again = seq2see.load(tmp_path / "out")
    samples = Samples(model)
    assert Samples(again).inputs == samples.inputs
    for a, b in zip(samples.results(), Samples(again).results(), strict=True):
        torch.testing.assert_close(a, b[:, : a.shape[1]], rtol=0, atol=TOLERANCE * max(1.0, float(a.abs().max())))


@pytest.mark.parametrize("kind", ["bpe", "word", "character"])
def test_our_tokenizers_encode_and_decode_the_same_in_transformers(kind: Any, tmp_path: Path) -> None:
    model = tiny_model(TEXTS + LINES, TINY, TextConfig(tokenizer=kind, normalize="NFC"))
    export(save(model, tmp_path / "in"), tmp_path / "out")
    theirs: Any = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    ours, again = model.tokenizers[0], seq2see.load(tmp_path / "out").tokenizers[0]
    for text in [*TEXTS, *strings(300)]:
        if "<" in text:  # they recognise special tokens in a text
            continue
        ids = ours.encode(text)
        assert theirs(text)["input_ids"] == ours.frame_source(ids)
        assert theirs.decode(ids) == ours.decode(ids)
        assert again.decode(ids) == ours.decode(ids)


@pytest.mark.parametrize("norm_first", [False, True])
def test_a_source_with_its_own_tokenizer_has_a_directory_for_the_target(norm_first: bool, tmp_path: Path) -> None:
    """Marian has two vocabularies; with pre-norm, both become one, in which the source's ids come last."""
    source = Tokenizer.train(["How are you? I like tea."] * 5, "word", 100)
    model = tiny_model(TEXTS, replace(TINY, norm_first=norm_first))
    target = model.tokenizers[1]
    offset = len(target) if norm_first else 0
    config = replace(model.config.model, tie_embeddings="target", source_vocab_size=len(source))
    separate = replace(
        model,
        config=replace(model.config, model=config, text=replace(model.config.text, shared_vocab=False)),
        network=Transformer(config).eval(),
        tokenizers=(source, target),
    )
    exported = export(save(separate, tmp_path / "in"), tmp_path / "out")
    require_close(exported)
    assert exported.check is not None and exported.check.equal["tokenized texts"] == (4, 4)
    first, second = (transformers.AutoTokenizer.from_pretrained(tmp_path / "out", subfolder=s) for s in ("", "target"))
    ids = [id + offset for id in source.encode("I like tea.")]
    assert first("I like tea.")["input_ids"] == [*ids, source.end + offset]
    assert second.decode(target.encode("मुझे चाय पसंद है।")) == "मुझे चाय पसंद है।"
    again = seq2see.load(tmp_path / "out")
    assert again.tokenizers[0].encode("I like tea.") == ids
    (found,), (expected,) = (
        m.hypotheses(["I like tea."], max_new_tokens=4) for m in (again, load_pipeline(tmp_path / "in"))
    )
    assert found[0].logprobs == pytest.approx(expected[0].logprobs, abs=1e-4)


def test_generation_config_carries_ends_bans_and_forced_tokens(tmp_path: Path) -> None:
    model = tiny_model(TEXTS)
    export(save(model, tmp_path / "in"), tmp_path / "out")
    table = json.loads((tmp_path / "out" / "generation_config.json").read_text())
    framing = model.tokenizers[1].framing
    assert table["bad_words_ids"] == [[id] for id in framing.banned]
    assert (table["decoder_start_token_id"], table["eos_token_id"]) == (framing.start, framing.end)
    assert seq2see.load(tmp_path / "out").tokenizers[1].framing.banned == framing.banned


def test_our_chat_template_becomes_a_jinja_template(tmp_path: Path) -> None:
    chat = ChatTemplate(system="{text}\n", user="U: {text}\n", model="M: {text}\n")
    model = replace(tiny_model(TEXTS, GPT), chat_template=chat)
    chat.save(save(model, tmp_path / "in") / "chat.toml")
    export(tmp_path / "in", tmp_path / "out")
    theirs: Any = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    messages = [("system", "Be kind."), ("user", "How are you?"), ("model", "hot"), ("user", "tea?")]
    roles = {"model": "assistant"}
    listed = [{"role": roles.get(role, role), "content": text} for role, text in messages]
    ids = theirs.apply_chat_template(listed, add_generation_prompt=True)["input_ids"]
    assert theirs.decode(ids) == theirs.decode(chat.prompt(model.tokenizers[1], messages))


@pytest.mark.parametrize("rewriting", REWRITINGS, ids=lambda rewriting: rewriting.summary)
def test_a_rewritten_model_computes_the_same(rewriting: Any) -> None:
    base = replace(TINY, norm_first=True, bias="feed-forward", tie_embeddings="none", vocab_size=40)
    for config in (base, replace(base, shape="encoder", masked_head=True, embedding_norm=True, norm_first=False)):
        network = perturbed(Transformer(config)).eval()
        found = Nearest("", replace(config, **rewriting.options(config)), (rewriting,))
        again = Transformer.from_weights(found.config, dict(found.weights(network.state_dict()))).eval()
        inputs = [Packed.from_sequences([[5, 9, 2], [7]])] * (2 if config.shape == "encoder-decoder" else 1)
        with torch.no_grad():
            torch.testing.assert_close(network(*inputs), again(*inputs), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"positions": "rotary"}, 'Marian, needs model.positions = "sinusoidal-halves" (not "rotary"); train'),
        ({"norm": "rms"}, 'needs model.norm = "layer" (not "rms")'),
        ({"key_value_heads": 1}, "needs model.key_value_heads = 2 (not 1)"),
        ({"activation": "swiglu"}, 'needs model.activation = "gelu" (not "swiglu")'),
        (
            {"shape": "decoder", "positions": "learned", "norm_first": True},
            "GPT-2, needs model.scale_embeddings = false",
        ),
        (
            {"norm_first": True, "tie_embeddings": "target", "source_vocab_size": 50},
            "Marian, needs model.norm_first = false",
        ),
    ],
)
def test_what_no_class_can_hold_is_refused_with_the_nearest_setting(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=r"Hugging Face has no class with this model's options") as error:
        find_family(replace(TINY, **changes), {"pad_token_id": 0})
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_recurrent_models_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="only Transformers"):
        find_family(replace(PRESETS["rnn-2014"].model, vocab_size=40), {"pad_token_id": 0})


@pytest.mark.parametrize("kind", ["tokenizer.json", "files of its own kind"])
def test_a_fine_tuned_foreign_model_goes_back_to_its_own_format(kind: str, tmp_path: Path) -> None:
    """Marian, after `train --init`, with the tokenizer files it came with."""
    tokenizer = unigram() if kind == "tokenizer.json" else None
    theirs = translator("MarianMT", 400, pad_token_id=1, decoder_start_token_id=1)
    folder = save_foreign(
        tmp_path / "foreign", theirs, tokenizer, eos_token="</s>", pad_token="<pad>", unk_token="<unk>"
    )
    if tokenizer is None:
        _write_marian_tokenizer(folder)
    settings = [s for s in SMALL_SETTINGS if not s.startswith(("model.", "text."))]
    train(write_phrases(tmp_path), tmp_path / "run", settings=[*settings, "train.steps=4"], init=folder)
    exported = export(tmp_path / "run", tmp_path / "back")
    assert exported.steps == ["family Marian"]
    require_close(exported)
    before, after = (json.loads((tmp_path / name / "config.json").read_text()) for name in ("foreign", "back"))
    assert all(before[key] == after[key] for key in ("model_type", "architectures", "d_model", "vocab_size"))
    for file in folder.glob("*.spm") if tokenizer is None else [folder / "tokenizer.json"]:
        assert (tmp_path / "back" / file.name).read_bytes() == file.read_bytes()
    trained, original = (
        transformers.MarianMTModel.from_pretrained(tmp_path / n).state_dict() for n in ("back", "foreign")
    )
    assert any(not torch.equal(trained[name], original[name]) for name in trained)


def _write_marian_tokenizer(folder: Path) -> None:
    import sentencepiece

    lines = "\n".join(LINES)
    (folder / "lines.txt").write_text(lines, encoding="utf-8")
    for name in ("source", "target"):
        sentencepiece.SentencePieceTrainer.train(
            input=str(folder / "lines.txt"),
            model_prefix=str(folder / name),
            vocab_size=300,
            hard_vocab_limit=False,
            minloglevel=2,
        )
        (folder / f"{name}.model").rename(folder / f"{name}.spm")
    processor = sentencepiece.SentencePieceProcessor(model_file=str(folder / "source.spm"))
    pieces = [processor.id_to_piece(i) for i in range(3, processor.get_piece_size())]
    ids = {piece: i for i, piece in enumerate(["</s>", "<unk>", *pieces, "<pad>"])}
    (folder / "vocab.json").write_text(json.dumps(ids))
    settings = {"tokenizer_class": "MarianTokenizer", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    config = json.loads((folder / "config.json").read_text())
    config |= {"eos_token_id": 0, "pad_token_id": ids["<pad>"], "decoder_start_token_id": ids["<pad>"]}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "generation_config.json").unlink(missing_ok=True)


def test_without_its_files_a_sentencepiece_tokenizer_is_rebuilt(tmp_path: Path) -> None:
    theirs = translator("MarianMT", 400, pad_token_id=1, decoder_start_token_id=1)
    folder = save_foreign(tmp_path / "foreign", theirs, None)
    _write_marian_tokenizer(folder)
    ours = seq2see.load(folder)
    ours.save(tmp_path / "saved")
    require_close(export(tmp_path / "saved", tmp_path / "out"))
    first: Any = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    for line in LINES[:80]:
        assert first(line)["input_ids"] == ours.tokenizers[0].frame_source(ours.tokenizers[0].encode(line))
        ids = ours.tokenizers[1].encode(line)
        second: Any = transformers.AutoTokenizer.from_pretrained(tmp_path / "out", subfolder="target")
        assert second.decode(ids, skip_special_tokens=True) == ours.tokenizers[1].decode(ids)


def test_card_licence_scores_and_settings_travel(tmp_path: Path) -> None:
    folder = save(tiny_model(TEXTS), tmp_path / "in")
    (folder / "README.md").write_text("# My model\n\nData: some corpus, CC BY 4.0.\n")
    (folder / "LICENSE").write_text("a licence\n")
    (folder / "ATTRIBUTION.md").write_text("thanks\n")
    (folder / "scores.json").write_text('{"validation": {"signatures": ["nrefs:1"]}}')
    exported = export(folder, tmp_path / "out")
    card = (tmp_path / "out" / "README.md").read_text()
    assert card.startswith("# My model\n\nData: some corpus, CC BY 4.0.\n\n## Export\n")
    assert str(exported.check) in card
    for name in ("LICENSE", "ATTRIBUTION.md", "scores.json"):
        assert (tmp_path / "out" / name).read_bytes() == (folder / name).read_bytes()
    assert (tmp_path / "out" / "training.toml").read_bytes() == (folder / "config.toml").read_bytes()
    assert set(exported.files) == {f.name for f in (tmp_path / "out").iterdir()}


def test_an_existing_directory_is_not_overwritten(tmp_path: Path) -> None:
    folder = save(tiny_model(TEXTS), tmp_path / "in")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "precious").write_text("kept")
    with pytest.raises(UserError, match="exists and is not an empty directory"):
        export(folder, tmp_path / "out")
    assert [f.name for f in (tmp_path / "out").iterdir()] == ["precious"]


@pytest.mark.parametrize("failure", ["check", "disk"])
def test_a_failed_export_leaves_nothing_behind(failure: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = save(tiny_model(TEXTS), tmp_path / "in")
    if failure == "check":
        monkeypatch.setattr(Samples, "results", lambda self: [torch.zeros(1)] * 4)
    else:
        monkeypatch.setattr(
            exporting, "_copy_documents", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left"))
        )
    with pytest.raises(UserError, match="failed its check" if failure == "check" else "No space left"):
        export(folder, tmp_path / "out")
    assert [f.name for f in tmp_path.iterdir()] == ["in"]


def test_without_the_runtime_the_export_says_that_nothing_was_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "a_package_that_nobody_has"
    missing = replace(exporting.EXPORTERS["huggingface"], runtime=name, package=name)
    monkeypatch.setitem(exporting.EXPORTERS, "huggingface", missing)
    folder = save(tiny_model(TEXTS), tmp_path / "in")
    result = CliRunner().invoke(app, ["export", str(folder), "--to", "huggingface", "--out", str(tmp_path / "out")])
    assert result.exit_code == 0
    assert "not checked: a_package_that_nobody_has is not installed" in result.stdout
    assert "not checked" in (tmp_path / "out" / "README.md").read_text()


def test_the_command_prints_json_and_refuses_other_precisions(tmp_path: Path) -> None:
    folder = save(tiny_model(TEXTS, GPT), tmp_path / "in")
    arguments = ["export", str(folder), "--to", "huggingface", "--out", str(tmp_path / "out")]
    result = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)
    assert result["steps"] == ["family GPT-2", "biases of zero"]
    assert result["check"]["difference"] < TOLERANCE * max(1.0, result["check"]["largest"])
    with pytest.raises(UsageError, match="huggingface models are not written in int8; use one of: float32"):
        CliRunner().invoke(app, [*arguments[:-1], str(tmp_path / "b"), "--precision", "int8"], catch_exceptions=False)
    assert not (tmp_path / "b").exists()


GGUF = {
    "gpt2": replace(GPT, activation="gelu-tanh"),
    "llama": OURS["rotary language model"][0],
    "qwen2": replace(OURS["rotary language model"][0], bias="qkv", rotary_factors=()),
    "qwen3": replace(OURS["rotary language model"][0], query_key_norm=True, rotary_factors=(), tie_embeddings="none"),
}


def test_a_foreign_decoder_keeps_its_tokenizer_and_chat_template(tmp_path: Path) -> None:
    theirs = decoder("Qwen3ForCausalLM")
    folder = save_foreign(tmp_path / "in", theirs, byte_level(), eos_token="<|im_end|>", chat_template="{{ messages }}")
    seq2see.load(folder).save(tmp_path / "saved")
    for source in ("in", "saved"):
        exported = export(tmp_path / source, tmp_path / f"{source}-out")
        require_close(exported)
        assert exported.steps == ["family Qwen 3"]
        tokenizer: Any = transformers.AutoTokenizer.from_pretrained(tmp_path / f"{source}-out")
        assert tokenizer.chat_template == "{{ messages }}"
        assert tokenizer("don't <|im_end|>")["input_ids"] == byte_level().encode("don't <|im_end|>").ids
