"""Models of other libraries open as they are, with their own words, in the library and in the commands."""

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from typer.testing import CliRunner

import seq2see
from seq2see.cli import app
from seq2see.data.tokenizer import Tokenizer
from seq2see.errors import Notice, UserError
from seq2see.exchange.jinja_template import JinjaTemplate
from seq2see.server.explore.app import create_app
from seq2see.server.explore.static_export import embedded_data
from tests.explore import serving
from tests.foreign_models import (
    LINES,
    byte_level,
    decoder,
    encoder,
    save,
    word_piece,
)

TEXT = "The model never sees padding, नमस्ते 東京 café!"


def test_a_language_model_continues_and_chats_like_theirs(qwen: Path) -> None:
    theirs = transformers.Qwen3ForCausalLM.from_pretrained(qwen, dtype=torch.float32).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(qwen)
    model = seq2see.load(qwen)
    assert model.config.model.vocab_size == 430 > tokenizer.vocab_size  # rows without a token
    messages = [("system", "Be brief."), ("user", " What is attention? ")]
    listed = [{"role": role, "content": text} for role, text in messages]
    expected = tokenizer.apply_chat_template(listed, add_generation_prompt=True, return_dict=False)
    assert model.chat_template.prompt(model.tokenizers[1], messages) == expected
    assert model.chat_template.render(messages) == tokenizer.apply_chat_template(
        listed, add_generation_prompt=True, tokenize=False
    )
    with torch.no_grad():
        out = theirs.generate(
            **tokenizer(TEXT, return_tensors="pt"),
            max_new_tokens=12,
            do_sample=False,
            pad_token_id=0,
            output_scores=True,
            return_dict_in_generate=True,
        )
    best = torch.cat(out.scores).topk(2).values
    clear = int((best[:, 0] - best[:, 1] > 1e-3).long().cumprod(0).sum())  # tokens before the first near-tie
    assert clear >= 3
    prompt = len(tokenizer(TEXT)["input_ids"])
    expected = tokenizer.decode(out.sequences[0, prompt : prompt + clear], skip_special_tokens=True)
    assert (
        model.generate(TEXT, max_new_tokens=clear) == ["".join(model.stream(TEXT, max_new_tokens=clear))] == [expected]
    )
    assert isinstance(model.chat(messages, max_new_tokens=4), str)


def test_everything_that_looks_inside_works_on_a_language_model_without_a_start_token(
    qwen: Path, tmp_path: Path
) -> None:
    model = seq2see.load(qwen)
    e = model.explain(TEXT, max_new_tokens=5)
    ids = model.tokenizers[1].encode(TEXT)
    assert list(e.decoder_input_ids[: len(ids)]) == ids
    assert e.output_start == len(ids) - 1
    assert e.hypothesis is not None
    assert e.target_ids[e.output_start :][: len(e.hypothesis.tokens)] == e.hypothesis.tokens
    assert e.trace["decoder.0.masked.normed_queries", 0].shape == (len(e.decoder_input_ids), 4, 8)
    assert e.target_logprobs[e.output_start :].tolist() == pytest.approx(list(e.hypothesis.logprobs), abs=1e-3)
    assert e.to_dict()["logit_attribution"]
    empty = model.explain("", max_new_tokens=3)  # the model needs some token to begin with
    assert empty.hypothesis is not None
    assert (empty.output_start, empty.decoder_input_ids[0]) == (0, 0)
    assert empty.target_logprobs.tolist() == pytest.approx(list(empty.hypothesis.logprobs), abs=1e-3)
    result = CliRunner().invoke(
        app, ["explain", "The model", "--model", str(qwen), "--out", str(tmp_path / "why.json")]
    )
    assert result.exit_code == 0, result.output
    with model.ablate_head("decoder.0.masked", 1) as ablated:
        assert ablated.generate(TEXT, max_new_tokens=5)


def test_a_translator_of_many_languages_takes_their_codes(nllb: Path) -> None:
    model = seq2see.load(nllb)
    with pytest.raises(UserError, match=r"3 languages: choose one with --target-language.*eng_Latn"):
        model.translate("the model")
    with pytest.raises(UserError, match=r'unknown language "fra_Lat": did you mean "?fra_Latn'):
        model.with_languages(target="fra_Lat")
    chosen = model.with_languages("eng_Latn", "fra_Latn")
    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(nllb)
    english, french = (tokenizer.convert_tokens_to_ids(code) for code in ("eng_Latn", "fra_Latn"))
    source = [english, *tokenizer("the model", add_special_tokens=False)["input_ids"], 2]
    assert chosen.tokenizers[0].frame_source(chosen.tokenizers[0].encode("the model")) == source
    theirs = transformers.M2M100ForConditionalGeneration.from_pretrained(nllb, dtype=torch.float32).eval()
    with torch.no_grad():
        out = theirs.generate(
            torch.tensor([source]), max_new_tokens=9, do_sample=False, num_beams=1, forced_bos_token_id=french
        )
    expected = tokenizer.decode(out[0], skip_special_tokens=True)
    assert chosen.translate_sentences(["the model"], max_new_tokens=8) == [expected]
    e = chosen.explain("the model", max_new_tokens=8)
    assert e.source_tokens[0] == "eng_Latn"
    assert e.decoder_input_tokens[:2] == ("</s>", "fra_Latn")
    assert e.to_dict()["alignment"]["source_words"] == ["the", "model"]
    for command in ("translate", "explain"):
        result = CliRunner().invoke(app, [command, "the model", "--model", str(nllb), "--target-language", "fra_Latn"])
        assert result.exit_code == 0, result.output


def test_a_request_chooses_the_languages(nllb: Path) -> None:
    with serving(create_app({"nllb": nllb})) as client:
        (info,) = client.get("/api/models").json()["models"]
        assert info["languages"] == {
            "codes": ["eng_Latn", "fra_Latn", "hin_Deva"],
            "source": "eng_Latn",
            "target": None,
        }
        assert client.get("/api/models/nllb/vocabulary").status_code == 200
        refused = client.post("/api/translate", json={"text": "the model"})
        assert (refused.status_code, "target_language in a request" in refused.json()["message"]) == (422, True)
        chosen = {"text": "the model", "source_language": "hin_Deva", "target_language": "fra_Latn"}
        trace = client.post("/api/traces", json=chosen).json()
        expected = seq2see.load(nllb).with_languages("hin_Deva", "fra_Latn").explain("the model")
        assert trace["output"] == expected.output
        assert trace["source_tokens"][0]["text"] == "hin_Deva"
        assert trace["decoder_input_tokens"][1]["text"] == "fra_Latn"
        for analysis in ("alignment", "logit-lens", "next-token?row=1", "logit-attribution?row=1"):
            assert client.get(f"/api/traces/{trace['id']}/{analysis}").status_code == 200, analysis
        unknown = client.post("/api/traces", json=chosen | {"target_language": "fr"})
        assert (unknown.status_code, "fra_Latn" in unknown.json()["message"]) == (422, True)


def test_an_encoder_embeds_texts_and_predicts_masked_tokens(bert: Path, tmp_path: Path) -> None:
    texts = ["the model never sees padding", "attention", TEXT]
    model = seq2see.load(bert)
    tokenizer = transformers.AutoTokenizer.from_pretrained(bert)
    theirs = transformers.BertForMaskedLM.from_pretrained(bert, dtype=torch.float32).eval()
    with torch.no_grad():
        for text, vector in zip(texts, model.embed(texts), strict=True):
            hidden = theirs.bert(**tokenizer(text, return_tensors="pt")).last_hidden_state[0]
            torch.testing.assert_close(vector, hidden.mean(0), rtol=1e-4, atol=1e-5)
        masked = "the [MASK] of the model"
        expected = theirs(**tokenizer(masked, return_tensors="pt")).logits[0]
        ids = model.tokenizers[0].frame_source(model.tokenizers[0].encode(masked))
        assert ids == tokenizer(masked)["input_ids"]
        torch.testing.assert_close(model.network(seq2see.Packed.from_sequences([ids])), expected, rtol=1e-4, atol=1e-4)
    (tmp_path / "in.txt").write_text("\n".join(texts))
    arguments = [
        "embed",
        "--model",
        str(bert),
        str(tmp_path / "in.txt"),
        "--out",
        str(tmp_path / "v.npy"),
        "--normalize",
    ]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    vectors = np.load(tmp_path / "v.npy")
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)
    result = CliRunner().invoke(app, ["embed", "--model", str(bert), "--similarity", "attention", "attention"])
    assert result.output == "1.0000\n"


def test_everything_that_looks_inside_works_on_an_encoder(bert: Path, tmp_path: Path) -> None:
    model = seq2see.load(bert)
    e = model.explain("the model never sees padding")
    assert e.source_tokens[0] == "[CLS]"
    assert e.source_tokens[-1] == "[SEP]"
    assert e.trace["encoder.0.self.weights", 0].shape == (4, len(e.source_ids), len(e.source_ids))
    assert e.to_dict()["rollout"]["encoder"]
    for out in ("why.html", "why.json", "why.safetensors"):
        arguments = ["explain", "the model", "--model", str(bert), "--out", str(tmp_path / out), "--layer", "1"]
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0 or "the page is not built" in str(result.exception), result.output
        assert "encoder.1.self, mean over heads" in result.output


def test_pooling_is_what_the_files_of_the_encoder_say(bert: Path, tmp_path: Path) -> None:
    folder = tmp_path / "minilm"
    folder.mkdir()
    for file in bert.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    modules = [
        {"type": "sentence_transformers.models.Transformer", "path": ""},
        {"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"},
        {"type": "sentence_transformers.models.Normalize", "path": "2_Normalize"},
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    settings = {"word_embedding_dimension": 32, "pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(settings))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 6}))
    model = seq2see.load(folder)
    with pytest.warns(Notice, match="1 of 1 texts are cut to 4 tokens"):
        (vector,) = model.embed(["the model never sees padding"])
    torch.testing.assert_close(vector.norm(), torch.tensor(1.0))
    (folder / "modules.json").write_text(json.dumps([*modules, {"type": "sentence_transformers.models.Dense"}]))
    with pytest.raises(UserError, match="the module Dense is not supported"):
        seq2see.load(folder)


def test_a_model_of_another_library_is_described_saved_and_loaded(qwen: Path, nllb: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["model", str(qwen), "--json"])
    facts = json.loads(result.output)
    assert facts["family"] == "Qwen 3"
    assert "query_key_norm = True" in facts["options"]
    assert facts["vocabulary"] == "430 byte-level BPE tokens"
    model = seq2see.load(qwen)
    model.save(tmp_path / "qwen")
    again = seq2see.load(tmp_path / "qwen")
    assert again.generate(TEXT, max_new_tokens=6) == model.generate(TEXT, max_new_tokens=6)
    messages = [("user", "hello")]
    assert again.chat_template.render(messages) == model.chat_template.render(messages)
    chosen = seq2see.load(nllb).with_languages("eng_Latn", "hin_Deva")
    chosen.save(tmp_path / "nllb")
    assert Tokenizer.load(tmp_path / "nllb" / "tokenizer.json").framing == chosen.tokenizers[1].framing
    again = seq2see.load(tmp_path / "nllb")
    assert again.translate_sentences([TEXT], max_new_tokens=6) == chosen.translate_sentences([TEXT], max_new_tokens=6)


def test_chat_keeps_the_history_and_has_commands(qwen: Path) -> None:
    arguments = ["chat", "--model", str(qwen), "--temperature", "0", "--max-new-tokens", "3"]
    lines = "hello\nhello\n/reset\n/system Be brief.\n/nonsense\nhello\n"
    result = CliRunner().invoke(app, arguments, input=lines)
    assert result.exit_code == 0, result.output
    assert 'unknown command "/nonsense"' in result.output
    model = seq2see.load(qwen)
    first = model.chat([("user", "hello")], max_new_tokens=3)
    second = model.chat([("user", "hello"), ("model", first), ("user", "hello")], max_new_tokens=3)
    third = model.chat([("system", "Be brief."), ("user", "hello")], max_new_tokens=3)
    shown = "".join(result.stdout.split())
    assert shown == "".join((first + second + third).split())


def test_a_language_model_with_a_large_vocabulary_is_evaluated_in_parts(
    qwen: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "text.txt").write_text("\n".join(LINES[:40]))
    arguments = ["evaluate", "--model", str(qwen), "--text", str(tmp_path / "text.txt"), "--json"]
    whole = json.loads(CliRunner().invoke(app, arguments).stdout)
    monkeypatch.setattr("seq2see.evaluate.language_model.MAX_LOGITS", 430 * 7)
    in_parts = json.loads(CliRunner().invoke(app, arguments).stdout)
    assert in_parts["loss"] == pytest.approx(whole["loss"], rel=1e-4)


def test_a_base_model_without_a_template_does_not_chat(tmp_path: Path) -> None:
    save(tmp_path, decoder(), byte_level())
    result = CliRunner().invoke(app, ["chat", "--model", str(tmp_path)], input="hello\n")
    assert isinstance(result.exception, UserError)
    assert 'has no chat template, so it was not trained for conversations: use "seq2see generate"' in str(
        result.exception
    )


def test_a_directory_without_a_tokenizer_opens_for_ids(tmp_path: Path) -> None:
    save(tmp_path, decoder(), None)
    with pytest.warns(Notice, match='no tokenizer that can be read: texts are lists of token ids, such as "12 7 99"'):
        model = seq2see.load(tmp_path)
    assert model.tokenizers[0].encode("12 7 99") == [12, 7, 99]
    assert model.tokenizers[0].decode([12, 7, 99]) == "12 7 99"
    (text,) = model.generate("12 7 99", max_new_tokens=3)
    assert all(token.isdigit() for token in text.split())


def test_several_end_tokens_end_an_answer(qwen: Path, tmp_path: Path) -> None:
    model = seq2see.load(qwen)
    (text,) = model.generate(TEXT, max_new_tokens=6)
    e = model.explain(TEXT, max_new_tokens=6)
    third = e.hypothesis.tokens[2]  # type: ignore[union-attr]
    folder = tmp_path / "ends"
    folder.mkdir()
    for file in qwen.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, third]}))
    shorter = seq2see.load(folder).generate(TEXT, max_new_tokens=6)[0]
    assert text.startswith(shorter)
    assert len(shorter) < len(text)


MALICIOUS: dict[str, tuple[Any, str]] = {
    "a path in the index": (
        lambda f: _write(f / "model.safetensors.index.json", {"weight_map": {"x": "../secret.safetensors"}}),
        "is not a .safetensors file in this directory",
    ),
    "a missing shard": (
        lambda f: _write(f / "model.safetensors.index.json", {"weight_map": {"x": "model-1.safetensors"}}),
        "model-1.safetensors is missing",
    ),
    "an index without a map": (lambda f: _write(f / "model.safetensors.index.json", {}), "has no weight_map"),
    "a giant header": (
        lambda f: (f / "model.safetensors").write_bytes(struct.pack("<Q", 1 << 60) + b"{}"),
        "cannot read",
    ),
    "a truncated file": (
        lambda f: (f / "model.safetensors").write_bytes((f / "model.safetensors").read_bytes()[:5000]),
        "cannot read",
    ),
    "a nested configuration": (lambda f: (f / "config.json").write_text("[" * 100_000), "cannot read"),
    "a list as configuration": (lambda f: (f / "config.json").write_text("[]"), "does not contain a JSON object"),
    "negative sizes": (lambda f: _change(f, hidden_size=-8), "head_width|width|heads|divisible|not"),
    "enormous sizes": (lambda f: _change(f, num_hidden_layers=10**9), "must be at most 1,000"),
    "a broken tokenizer": (lambda f: (f / "tokenizer.json").write_text('{"model": 1}'), "is not a tokenizer.json"),
    "pickles": (
        lambda f: [(f / "model.safetensors").unlink(), (f / "pytorch_model.bin").write_bytes(b"x")],
        r"\.bin files, which can run any code when they are opened.*save_pretrained",
    ),
}


def _write(path: Path, table: Any) -> None:
    path.write_text(json.dumps(table))


def _change(folder: Path, **keys: Any) -> None:
    config = json.loads((folder / "config.json").read_text())
    _write(folder / "config.json", config | keys)


@pytest.mark.parametrize("name", MALICIOUS)
def test_a_damaged_or_malicious_directory_is_refused_in_one_line(name: str, qwen: Path, tmp_path: Path) -> None:
    for file in qwen.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    damage, message = MALICIOUS[name]
    damage(tmp_path)
    with pytest.raises(UserError, match=message) as error:
        seq2see.load(tmp_path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", "more than 2 seconds"),
        ("{{ 'a' * 10**9 }}", "larger than"),
        ("{{ 10 ** 10 ** 10 }}", "larger than"),
        ("{{ 'a'.center(10**9) }}", "unsafe|failed"),
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "unsafe|cannot|failed"),
        ("{{ messages.append(1) }}", "unsafe|cannot|failed|not safely"),
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{% for %}", "is not valid"),
        ("{% include '/etc/passwd' %}", "cannot|failed"),
    ],
)
def test_a_malicious_template_is_stopped_in_one_line(template: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as error:
        JinjaTemplate(template).render([("user", "hello")])
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("kind", ["BertModel", "BertForMaskedLM"])
def test_an_encoder_with_a_large_vocabulary_has_a_page_of_its_own_and_answers_every_request(
    kind: str, tmp_path: Path
) -> None:
    model = encoder(kind, vocab_size=20_001)
    folder = save(tmp_path / "bert", model, word_piece(), cls_token="[CLS]", sep_token="[SEP]")
    embedded = embedded_data(seq2see.load(folder).explain("the model"), "bert", [])
    assert (embedded.top_tokens is not None) == (kind == "BertForMaskedLM")
    with serving(create_app({"bert": folder})) as client:
        trace = client.post("/api/traces", json={"text": "the model"}).json()
        url = f"/api/traces/{trace['id']}"
        for path in (
            "alternatives?row=0",
            "next-token?row=0",
            "logit-attribution?row=0",
            "logit-lens",
            "alignment",
            "head-ablation/encoder.0.self",
            "attention-rollout/both",
            "attention-rollout/decoder",
        ):
            assert client.get(f"{url}/{path}").status_code == 422, path
        assert client.get(f"{url}/top-tokens").status_code == (422 if kind == "BertModel" else 200)
        for path in ("attention-entropy", "attention-rollout/encoder", "token-similarity/encoder.vectors"):
            assert client.get(f"{url}/{path}").status_code == 200, path
        ablated = {"type": "ablate_head", "attention": "encoder.0.self", "head": 1}
        changed = client.post("/api/traces", json={"text": "the model", "interventions": [ablated]}).json()
        tensors = [
            client.get(f"/api/traces/{id}/tensors/encoder.vectors").content for id in (trace["id"], changed["id"])
        ]
        assert tensors[0] != tensors[1]
