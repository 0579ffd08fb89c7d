"""Bundled models are found by name wherever a model directory is accepted, and packed small without losing quality."""

import io
import json
import os
import re
import warnings
from dataclasses import replace
from pathlib import Path

import demo
import pytest
import torch
from pack import MAX_LOGGED, attribution, pack
from rich.console import Console
from safetensors.torch import load_file
from typer.testing import CliRunner, Result

import seq2see
from seq2see.cli import app
from seq2see.config import Config, DataConfig, Shape, TextConfig
from seq2see.course.sample_corpus import load_corpus
from seq2see.decode.int8 import Int8Linear
from seq2see.errors import Notice, UsageError, UserError
from seq2see.server.explore import server
from seq2see.storage import bundled as bundled_models
from seq2see.storage.bundled import BUNDLED, GRAMMAR, About, bundled_names
from seq2see.storage.directory import load_pipeline, snapshots
from seq2see.storage.manifest import verify_files
from seq2see.tensors.quantize import EIGHT_BITS, dequantize, quantize_8_bits
from seq2see.train import start as run
from seq2see.train.run_log import RunLog
from tests.corpora import SMALL_SETTINGS, write_phrases
from tests.models import GRAMMAR_MODEL, TINY, save, tiny_model

ABOUT = About(("en", "hi"), "Only a few words.", ("one red tea",), ("Tatoeba", "Samanantar"))
TEXT = "I like tea."


@pytest.fixture
def bundled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installation with the bundled models en-hi, en-fr and books, none of them trained, and an empty working directory."""
    folder, home = tmp_path / "bundled", tmp_path / "home"
    folder.mkdir()
    home.mkdir()
    shapes: dict[str, Shape] = {"en-hi": "encoder-decoder", "en-fr": "encoder-decoder", "books": "decoder"}
    for name, shape in shapes.items():
        words = [f"{TEXT} Once {' '.join(f'{name}{number}' for number in range(100))}"]
        save(tiny_model(words, replace(TINY, shape=shape), TextConfig(tokenizer="word")), folder / name)
        About(tuple(name.split("-")), f"Limits of {name}.", ("I like tea.",), ()).save(folder / name)
    monkeypatch.setattr(bundled_models, "BUNDLED", folder)
    monkeypatch.chdir(home)
    return folder


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(app, list(map(str, arguments)))


def refusal(*arguments: object) -> str:
    result = invoke(*arguments)
    assert isinstance(result.exception, UserError), result.output
    return str(result.exception)


# Names


def test_each_command_has_a_default_and_takes_a_language_or_a_name(bundled: Path) -> None:
    hindi, french = (seq2see.load(bundled / name).translate(TEXT) for name in ("en-hi", "en-fr"))
    assert hindi != french
    for expected, options in (
        (hindi, []),
        (hindi, ["--to", "hi"]),
        (french, ["--to", "fr"]),
        (french, ["--model", "en-fr"]),
    ):
        assert invoke("translate", *options, TEXT).stdout == f"{expected}\n"
        assert json.loads(invoke("explain", "--json", *options, TEXT).stdout)["output"] == expected
    assert seq2see.load().translate(TEXT) == hindi and seq2see.load("en-fr").translate(TEXT) == french
    (generated,) = seq2see.load("books").generate("Once", temperature=0.8, seed=1, max_new_tokens=4)
    assert invoke("generate", "--prompt", "Once", "--seed", 1, "--max-new-tokens", 4).stdout == f"Once{generated}\n"


def test_a_bundled_name_works_in_every_command_that_reads_a_model(bundled: Path) -> None:
    (bundled.parent / "a").write_text(f"{TEXT}\n")
    a = bundled.parent / "a"
    assert json.loads(invoke("evaluate", "--src", a, "--ref", a, "--json").stdout)["system"] == "en-hi"
    assert json.loads(invoke("evaluate", "--to", "fr", "--src", a, "--ref", a, "--json").stdout)["system"] == "en-fr"
    assert "excludes --model, --to" in refusal("evaluate", "--to", "fr", "--hyp", a, "--ref", a)
    assert "excludes --to" in refusal("evaluate", "--to", "fr", "--text", a)
    evaluated = invoke("evaluate", "--model", "en-fr", "--against", "en-hi", "--src", a, "--ref", a, "--json")
    assert json.loads(evaluated.stdout)["baseline"] == "en-hi"
    assert json.loads(invoke("evaluate", "--text", a, "--json").stdout)["system"] == "books"
    for arguments in (
        ["model", "en-fr"],
        ["runs", "en-fr"],
        ["data", "check", "--src", a, "--tgt", a, "--tokenizer", "en-fr"],
        ["lesson", "mask", "--model", "en-fr", "--json"],
    ):
        result = invoke(*arguments)
        assert result.exit_code == 0, (arguments, result.output, result.exception)
    assert seq2see.snapshots("en-fr") == []


def test_training_can_start_from_a_bundled_model(bundled: Path, tmp_path: Path) -> None:
    run.train(write_phrases(tmp_path), tmp_path / "tuned", init="en-hi", settings=["train.steps=1"])
    config = Config.load(tmp_path / "tuned" / "config.toml")
    assert config.train.init == "en-hi" and config.model.width == TINY.width


def test_a_model_directory_of_the_same_name_is_used_and_named(bundled: Path) -> None:
    Path("en-fr").mkdir()
    with warnings.catch_warnings():
        warnings.simplefilter("error", Notice)
        assert load_pipeline("en-fr").config == load_pipeline(bundled / "en-fr").config  # not a model directory
    save(tiny_model(["another model"], replace(TINY, width=32)), Path("en-fr"))
    with pytest.warns(Notice, match="using the directory en-fr, not the bundled model of that name") as caught:
        assert seq2see.load("en-fr").config.model.width == 32
    assert len(caught) == 1
    assert seq2see.load(bundled / "en-fr").config.model.width == TINY.width
    with warnings.catch_warnings():
        warnings.simplefilter("error", Notice)
        assert invoke("translate", "--to", "fr", TEXT).exit_code == 0


def test_a_missing_model_is_an_error_that_names_those_that_exist(bundled: Path) -> None:
    assert refusal("translate", "--to", "de", TEXT) == (
        'no bundled model translates into "de"; they translate into hi and fr'
    )
    assert refusal("translate", "--model", "en-de", TEXT) == (
        "en-de is not a model directory: it does not exist; bundled models: en-hi, en-fr, books"
    )
    assert 'did you mean "en-fr"?' in refusal("model", "en-fra")
    for command in ("translate", "explain"):
        assert "--to fr chooses a bundled model, and --model x another" in refusal(
            command, "--to", "fr", "--model", "x", TEXT
        )
    for file in (*(bundled / "en-hi").iterdir(), *(bundled / "books").iterdir()):
        file.unlink()
    for arguments in (["translate", TEXT], ["explain", TEXT], ["explore"]):
        assert refusal(*arguments).endswith("they translate into fr")
    missing = 'this installation lacks the bundled model "books"; bundled models: en-fr'
    assert refusal("generate", "--prompt", "Once") == missing
    with pytest.raises(UserError, match=r'no bundled model translates into "hi"; they translate into fr$'):
        seq2see.load()


def test_explore_offers_all_bundled_models_with_the_chosen_one_first(
    bundled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served: list[list[str]] = []
    monkeypatch.setattr(server, "serve", lambda models, *_, **__: served.append(list(server.name_models(models))))
    monkeypatch.setattr(os, "_exit", lambda code: None)
    for arguments in ([], ["--to", "fr"], ["--model", "books", "en-fr"]):
        assert CliRunner().invoke(app, ["explore", *arguments]).exception is None
    assert served == [["en-hi", "en-fr", "books"], ["en-fr", "en-hi", "books"], ["books", "en-fr"]]
    refused = CliRunner().invoke(app, ["explore", "--model", "books", "--to", "fr"]).exception
    assert isinstance(refused, UsageError) and "give only one of the two" in str(refused)


def test_the_list_of_models_starts_with_the_bundled_ones(bundled: Path) -> None:
    scores = {"training": {"parameters": 1234567}, "validation": {"bleu": 12.34, "chrf": 45.67}}
    (bundled / "en-hi" / "scores.json").write_text(json.dumps(scores))
    listed = invoke("model").stdout
    assert [word for word in re.findall(r"^[\w-]+", listed, re.MULTILINE) if "-" in word or word == "books"][:3] == [
        "en-hi",
        "en-fr",
        "books",
    ]
    assert "en → hi, 1,234,567 parameters" in listed and "BLEU 12.3" in listed and "Limits of en-hi." in listed
    assert listed.index("Limits of books.") < listed.index("paper-base")
    assert json.loads(invoke("model", "en-hi", "--json").stdout)["limits"] == "Limits of en-hi."
    models = json.loads(invoke("model", "--json").stdout)
    assert list(models["bundled"]) == ["en-hi", "en-fr", "books"] and "paper-base" in models["presets"]
    assert models["bundled"]["en-hi"]["validation"] == scores["validation"]


def test_the_demo_starts_with_the_bundled_translators(bundled: Path) -> None:
    console = Console(file=io.StringIO(), width=200, highlight=False)
    demo.show_bundled(console)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert shown.index("en-hi") < shown.index(seq2see.load("en-hi").translate(TEXT)) < shown.index("Limits of en-hi.")
    assert "Limits of en-fr." in shown and "books" not in shown


# The models of this installation


@pytest.mark.parametrize("name", bundled_names())
def test_bundled_models_are_small_complete_and_attributed(name: str) -> None:
    folder, about = BUNDLED / name, About.load(BUNDLED / name)
    sizes = {file: file.stat().st_size for file in folder.rglob("*") if file.is_file()}
    snapshot_bytes = sum(size for file, size in sizes.items() if file.parent.name == "snapshots")
    assert sum(sizes.values()) - snapshot_bytes <= 10_000_000 and snapshot_bytes <= 4_000_000
    assert verify_files(folder) >= 3 + len(snapshots(folder))
    assert not (folder / "run.lock").exists()
    assert about is not None and about.languages and about.limits and about.examples and about.sources
    card = (folder / "README.md").read_text(encoding="utf-8")
    for source in about.sources:
        assert attribution(source) in card
    model = seq2see.load(folder)
    if model.config.model.shape == "encoder-decoder":
        assert all(model.translate(list(about.examples)))
        assert model.assess(about.examples[0], -9.0).low_confidence and model.unknown_words("Xylqz") == ("Xylqz",)


# Packing


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> DataConfig:
    return write_phrases(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="module")
def trained(corpus: DataConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "phrases"
    run.train(corpus, out, preset="tiny", settings=[*SMALL_SETTINGS, "train.steps=40"])
    return out


def test_a_packed_run_has_what_a_model_needs_and_nothing_of_its_machine(trained: Path, tmp_path: Path) -> None:
    snapshot_bytes = 60_000
    pack(trained, tmp_path / "en-xx", ABOUT, snapshot_bytes=snapshot_bytes)
    folder = tmp_path / "en-xx"
    assert {file.name for file in folder.iterdir()} == {
        "config.toml",
        "tokenizer.json",
        "words.txt.gz",
        "model.safetensors",
        "scores.json",
        "README.md",
        "log.jsonl",
        "about.json",
        "files.json",
        "snapshots",
    }
    for file in folder.glob("*.*"):
        if file.suffix not in (".safetensors", ".gz"):
            assert str(trained.parent.parent) not in file.read_text(encoding="utf-8"), file
    assert sum(file.stat().st_size for file in folder.glob("snapshots/*")) <= snapshot_bytes
    assert 1 <= len(snapshots(folder)) < len(snapshots(trained)) and snapshots(folder)[-1] == 16
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert card.startswith("# en-xx\n") and "## Limits\n\nOnly a few words.\n" in card and "## Training" in card
    assert attribution("Samanantar") in card
    verify_files(folder)
    original, packed = seq2see.load(trained), seq2see.load(folder)
    assert packed.unknown_words("one xyz") == ("xyz",) and packed.scores == original.scores
    assert packed.translate("one red tea") and seq2see.load(folder, step=16).translate("one red tea")
    assert RunLog.load(folder).finished


def test_the_log_of_a_long_run_is_thinned(trained: Path, tmp_path: Path) -> None:
    rows = [{"kind": "step", "step": step, "loss": 1.0} for step in range(1, 5001)]
    rows += [{"kind": "validation", "step": step, "loss": 1.0} for step in (2500, 5000)]
    save(seq2see.load(trained), tmp_path / "run")
    (tmp_path / "run" / "log.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    pack(tmp_path / "run", tmp_path / "out", ABOUT)
    log = RunLog.load(tmp_path / "out")
    assert len(log.steps) == MAX_LOGGED and (log.steps[0]["step"], log.steps[-1]["step"]) == (1, 5000)
    assert [row["step"] for row in log.validations] == [2500, 5000]


def test_a_model_that_is_too_large_is_refused_and_nothing_changes(trained: Path, tmp_path: Path) -> None:
    pack(trained, tmp_path / "out", ABOUT)
    before = {file.name: file.read_bytes() for file in (tmp_path / "out").iterdir()}
    with pytest.raises(
        UserError, match=r"would have [\d,]+ bytes, .* but the maximum is 20,000: train a smaller model"
    ):
        pack(trained, tmp_path / "out", ABOUT, max_bytes=20_000)
    with pytest.raises(UserError, match=r"has [\d,]+ bytes in 4 bits, but snapshot_bytes is 100: omit it"):
        pack(trained, tmp_path / "out", ABOUT, snapshot_bytes=100)
    with pytest.raises(UserError, match='NOTICE has no section "Tatoba": did you mean "Tatoeba"'):
        pack(trained, tmp_path / "out", replace(ABOUT, sources=("Tatoba",)))
    with pytest.raises(UserError, match="has training finished"):
        pack(tmp_path, tmp_path / "out", ABOUT)
    assert {file.name: file.read_bytes() for file in (tmp_path / "out").iterdir()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_packed_weights_keep_the_quality_in_every_precision(tmp_path: Path) -> None:
    pack(GRAMMAR_MODEL, tmp_path / GRAMMAR, ABOUT, max_bytes=1_700_000)
    pairs = load_corpus().test[:100]
    before = demo.evaluate(seq2see.load(GRAMMAR_MODEL), pairs)
    for precision in ("float32", "int8"):
        after = demo.evaluate(seq2see.load(tmp_path / GRAMMAR, precision=precision), pairs)
        assert after["exact_match"] >= before["exact_match"] - 2 and after["bleu"] >= before["bleu"] - 2


def test_8_bit_weights_are_close_and_are_not_rounded_twice() -> None:
    torch.manual_seed(0)
    matrix = torch.randn(64, 100) * torch.logspace(-20, 20, 64)[:, None]
    matrix[3] = 0
    stored = quantize_8_bits({"matrix": matrix, "bias": matrix[5]})
    restored = dict(dequantize(stored))
    assert torch.equal(restored["bias"], matrix[5])
    assert bool(((restored["matrix"] - matrix).abs() <= matrix.abs().amax(1, keepdim=True) / 253).all())
    levels = Int8Linear(restored["matrix"], None).matrix(torch.eye(100, dtype=torch.int8)).T  # of decoding in int8
    assert torch.equal(levels, stored["matrix" + EIGHT_BITS].int())


def test_damaged_8_bit_weights_and_descriptions_are_errors(trained: Path, tmp_path: Path) -> None:
    pack(trained, tmp_path / "out", ABOUT)
    (tmp_path / "out" / "about.json").write_text('{"languages": 3}')
    with pytest.raises(UserError, match=r"about.json is damaged: .* copy the model directory again"):
        About.load(tmp_path / "out")
    tensors = load_file(tmp_path / "out" / "model.safetensors")
    scales = next(name for name in tensors if name.endswith(".scales"))
    with pytest.raises(UserError, match=r"needs .*scales, which is missing"):
        dict(dequantize({name: tensor for name, tensor in tensors.items() if name != scales}))
    with pytest.raises(UserError, match="does not fit"):
        dict(dequantize(tensors | {scales: tensors[scales][:-1]}))
