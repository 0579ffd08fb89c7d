"""The Python API: what a notebook sees, and that Python, the command line and the server translate alike."""

import os
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import seq2see
from seq2see.api import Model
from seq2see.cli import app
from seq2see.config import InferencePrecision, ModelConfig
from seq2see.config.extensions import BUILT_IN
from seq2see.errors import Notice, UserError
from seq2see.inspect.token_similarity import contextual_embeddings
from seq2see.server.explore.app import create_app
from seq2see.storage.bundled import GRAMMAR
from seq2see.storage.directory import load_pipeline
from seq2see.tensors.device import bf16_supported
from tests.explore import serving
from tests.models import GRAMMAR_MODEL, tiny_model

PARAGRAPH = "How are you? I like tea.  The boy drinks tea.\n\n\tWhere is the girl?\n"


@pytest.fixture(scope="module")
def model() -> Model:
    return seq2see.load(GRAMMAR_MODEL)


def test_a_text_gives_a_string_and_a_list_gives_a_list(model: Model) -> None:
    one = model.translate("How are you?")
    assert one == "आप कैसे हैं?"
    assert model.translate(["How are you?"]) == [one]
    assert model.translate(("How are you?", "")) == [one, ""]
    assert model.translate([]) == []
    with pytest.raises(TypeError, match=r"write \[sentence\]"):
        model.hypotheses("How are you?")
    words = contextual_embeddings(model, "tea", "I like tea.")
    assert words.sentences == ("I like tea.",)


def test_paragraphs_are_translated_alike_everywhere(model: Model, tmp_path: Path) -> None:
    sentences = ["How are you?", "I like tea.", "The boy drinks tea.", "Where is the girl?"]
    one, two, three, four = model.translate_sentences(sentences)
    expected = f"{one} {two}  {three}\n\n\t{four}\n"
    assert model.translate(PARAGRAPH) == expected
    assert "".join(model.stream(PARAGRAPH)) == expected
    (tmp_path / "in.txt").write_text(PARAGRAPH)
    result = CliRunner().invoke(app, ["translate", "--model", GRAMMAR, str(tmp_path / "in.txt"), "--device", "cpu"])
    assert result.stdout == expected
    with serving(create_app({GRAMMAR: GRAMMAR_MODEL})) as client:
        response = client.post("/api/translate", json={"text": PARAGRAPH}).json()
    assert response["translation"] == expected
    assert [sentence["source"] for sentence in response["sentences"]] == sentences


def test_eight_threads_explain_and_translate_with_one_model(model: Model) -> None:
    """As a single thread does; the tokens of these sentences are never nearly tied."""
    texts = ["How are you?", "I like tea.", "The boy drinks tea. How are you?", "Where is the girl?"]

    def run(number: int) -> tuple[str, list[str], str, torch.Tensor]:
        text = texts[number % len(texts)]
        e = model.explain(text)
        return model.translate(text), model.translate([text, "I like tea."], beam=2), e.output, e.target_logprobs

    expected = [run(number) for number in range(len(texts))]
    assert len({one for one, *_ in expected}) == len(texts)
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(run, range(64)))
    for number, (*found, logprobs) in enumerate(results):
        *alone, alone_logprobs = expected[number % len(texts)]
        assert found == alone
        torch.testing.assert_close(logprobs, alone_logprobs)


def test_a_saved_model_is_loaded_back(model: Model, tmp_path: Path) -> None:
    model.save(tmp_path / "copy")
    again = seq2see.load(tmp_path / "copy")
    assert repr(again) == repr(model)
    assert again.translate(PARAGRAPH) == model.translate(PARAGRAPH)
    with pytest.raises(UserError, match="copy"):
        model.save(tmp_path / "copy")  # never overwrites


def test_a_divided_sentence_causes_a_warning_in_python() -> None:
    model = tiny_model(["a long sentence of many words"], ModelConfig(width=16, heads=2, max_positions=12))
    with pytest.warns(Notice, match=r"text 2: [\d,]+ tokens exceed the model's maximum of 11: translated in"):
        assert len(model.translate(["a", "many words, " * 20], max_new_tokens=2)) == 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.translate("a", max_new_tokens=2)


@pytest.mark.parametrize("head", [-1, 8, 99])
def test_a_head_that_does_not_exist_cannot_be_ablated(model: Model, head: int) -> None:
    assert model.config.model.heads == 8
    with (
        pytest.raises(UserError, match=f"no head {head}: its heads are numbered from 0 to 7"),
        model.ablate_head("decoder.0.cross", head=head),
    ):
        raise AssertionError("not refused")


def test_a_language_model_does_not_translate() -> None:
    model = tiny_model(["once upon a time"], ModelConfig(shape="decoder", width=16, heads=2))
    for text in ("once", ""):
        with pytest.raises(UserError, match="only an encoder-decoder translates"):
            model.translate(text)


def test_the_package_lists_its_public_names() -> None:
    listed = "import seq2see, sys; print(' '.join(dir(seq2see))); sys.exit('torch' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", listed], capture_output=True, text=True, check=True)
    assert {"load", "Model", "trace", "intervene", "__version__"} <= set(result.stdout.split())
    for name in seq2see.__all__:
        assert getattr(seq2see, name) is not None


def test_a_model_describes_itself_in_a_few_lines(model: Model) -> None:
    text = repr(model)
    assert len(text.splitlines()) <= 8 and max(map(len, text.splitlines())) <= 120
    html = model._repr_html_()
    for fact in ("Transformer, encoder-decoder", "1,334,400 parameters", "1,901 word tokens", "BLEU 97.5"):
        assert fact in text and fact in html
    assert "recurrent (2014)" in repr(
        tiny_model(["a"], ModelConfig(kind="rnn", heads=1, width=16, encoder_layers=1, decoder_layers=1))
    )


# Every command that loads a model, and what its output contains.
COMMANDS = {
    "translate": (["--model", GRAMMAR, "How are you?"], "आप कैसे हैं?"),
    "explain": (["--model", GRAMMAR, "How are you?", "--json"], "आप कैसे हैं?"),
    "evaluate": (["--model", GRAMMAR, "--src", "{path}/a", "--ref", "{path}/b", "--json"], "आप कैसे हैं?"),
    "generate": (["--model", "{path}/lm", "--prompt", "once", "--max-new-tokens", "2", "--json"], "once"),
    "chat": (["--model", "{path}/lm", "--max-new-tokens", "2"], ""),
    "embed": (["--model", "{path}/encoder", "once"], '"vector"'),
    "lesson": (["next"], "probabilit"),
    "explore": (["--model", GRAMMAR, "--no-open"], ""),
}
# These train a model, read vectors and configurations, write another format in its own precisions, or start processes.
OTHERS = {"train", "runs", "data", "vectors", "model", "export", "serve"}


@pytest.fixture
def arguments(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The arguments of the command named by the test's parameter."""
    (tmp_path / "a").write_text("How are you?\n")
    (tmp_path / "b").write_text("आप कैसे हैं?\n")
    tiny_model(["once upon a time"], ModelConfig(shape="decoder", width=16, heads=2)).save(tmp_path / "lm")
    tiny_model(["once upon a time"], ModelConfig(shape="encoder", width=16, heads=2)).save(tmp_path / "encoder")
    monkeypatch.setattr("seq2see.server.explore.server.serve", lambda *arguments: None)
    monkeypatch.setattr(os, "_exit", lambda code: None)
    command = request.getfixturevalue("command")
    return [command, *(argument.format(path=tmp_path) for argument in COMMANDS[command][0])]


def test_no_command_that_loads_a_model_is_left_out() -> None:
    assert set(BUILT_IN["commands"]) == COMMANDS.keys() | OTHERS


@pytest.mark.parametrize("precision", ["float32", "int8", "bf16"])
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_takes_every_precision(command: str, precision: str, arguments: list[str]) -> None:
    result = CliRunner().invoke(app, [*arguments, "--precision", precision, "--device", "cpu"])
    if isinstance(result.exception, UserError):
        assert precision == "bf16" and "does not support bf16" in str(result.exception)
    else:
        assert result.exit_code == 0 and COMMANDS[command][1] in result.stdout


@pytest.mark.parametrize("command", [*COMMANDS, "train"])
def test_every_command_checks_its_device_alike(command: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    files = ["train", "--text", __file__, "--out", str(tmp_path / "run")]
    arguments = files if command == "train" else request.getfixturevalue("arguments")
    result = CliRunner().invoke(app, [*arguments, "--device", "gpu"])
    assert "--device" in str(result.exception) and "cpu, cuda, mps" in str(result.exception)


@pytest.mark.parametrize("precision", ["int8", "bf16"])
def test_the_server_shows_the_numbers_of_its_precision(precision: InferencePrecision) -> None:
    """Traces, weights and logit attribution are those of the model that decodes."""
    if precision == "bf16" and not bf16_supported():
        pytest.skip("this CPU has no bf16")
    with serving(create_app({GRAMMAR: GRAMMAR_MODEL}, precision=precision)) as client:
        trace = client.post("/api/traces", json={"text": "How are you?"}).json()
        assert trace["output"] == "आप कैसे हैं?"
        parts = client.get(f"/api/traces/{trace['id']}/logit-attribution", params={"row": 0}).json()
        assert sum(part["logit"] for part in parts["contributions"]) == pytest.approx(parts["logit"], abs=1e-3)
        (rounding,) = [part["logit"] for part in parts["contributions"] if part["component"] == "rounding"]
        assert abs(rounding) < 0.1 * abs(parts["logit"])
        original = load_pipeline(GRAMMAR).network.state_dict()
        names = [weight["name"] for weight in client.get(f"/api/models/{GRAMMAR}/weights").json()["weights"]]
        assert names == list(original)
        for name in names:
            content = client.get(f"/api/models/{GRAMMAR}/weights/{name}").content
            rounded = torch.frombuffer(bytearray(content), dtype=torch.float32).view_as(original[name])
            torch.testing.assert_close(rounded, original[name], rtol=0, atol=float(original[name].abs().max()) / 127)


# What one sentence may import, from Python and from the command line: (program, the most of our modules). Six belong to
# the engine.
ONE_SENTENCE = {
    "Python": ("import seq2see; seq2see.load('en-fr').translate('The cat sleeps.')", 66),
    "command": (
        "import seq2see.cli; sys.argv = ['seq2see', 'translate', '--to', 'fr', 'The cat sleeps.']; seq2see.cli.main()",
        77,
    ),
}
OTHER_FORMATS = (*("exchange", "course", "server", "formats", "views"),)


@pytest.mark.parametrize("way", ONE_SENTENCE)
def test_one_sentence_loads_few_modules_and_none_of_other_formats(way: str) -> None:
    program, most = ONE_SENTENCE[way]
    report = "atexit.register(lambda: print('modules', *(m for m in sys.modules if m.split('.')[0] == 'seq2see')))"
    code = f"import atexit, sys; {report}; {program}"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    modules = out.rpartition("modules ")[2].split()
    assert "seq2see.translate.translator" in modules
    assert len(modules) <= most, sorted(modules)
    assert not [name for name in modules if name.removeprefix("seq2see.").startswith(OTHER_FORMATS)]
