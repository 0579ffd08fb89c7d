"""Unknown words and low confidence are never silent: on the command line, in JSON, over HTTP and in Python."""

import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
from calibrate import calibrate
from typer.testing import CliRunner, Result

from seq2see.api import load
from seq2see.cli import app
from seq2see.config import DataConfig
from seq2see.data.known_words import collect_words, unknown_words
from seq2see.data.tokenizer import Tokenizer
from seq2see.errors import Notice
from seq2see.formats.placeholders import PLACEHOLDER
from seq2see.formats.protected import protect
from seq2see.server.explore.app import create_app
from seq2see.storage.assessment import Assessment
from seq2see.storage.bundled import GRAMMAR
from seq2see.storage.manifest import verify_files
from seq2see.train import start as run
from seq2see.train.calibration import fit_threshold
from seq2see.translate.translator import Translator
from seq2see.translate.warning_log import WarningLog
from tests.commands import run_command
from tests.corpora import SMALL_SETTINGS
from tests.explore import serving
from tests.models import GRAMMAR_MODEL

NONSENSE = "The weather is nice today"


def seq2see(*arguments: object, given: str = "") -> Result:
    done = CliRunner().invoke(app, list(map(str, arguments)), input=given)
    assert done.exit_code == 0, done.output
    return done


@pytest.fixture(scope="module")
def translator(corpus: DataConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BPE translator; after ten steps, nothing it outputs is right."""
    folder = tmp_path_factory.mktemp("runs") / "translator"
    run.train(corpus, folder, preset="tiny", settings=[*SMALL_SETTINGS, "train.steps=10"])
    return folder


@pytest.fixture(scope="module")
def language_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    (folder / "text.txt").write_text("the cat sat on the mat, the dog sat on the log\n\n" * 40, encoding="utf-8")
    settings = [*SMALL_SETTINGS, "model.max_positions=32", "train.steps=2"]
    run.train(DataConfig(text=(str(folder / "text.txt"),)), folder / "lm", preset="baby-gpt", settings=settings)
    return folder / "lm"


# On the command line


def test_a_bundled_model_notes_words_it_does_not_know() -> None:
    done = run_command("translate", "--model", GRAMMAR, NONSENSE)
    assert done.returncode == 0 and done.stdout.strip()
    (note,) = done.stderr.splitlines()
    assert note.startswith("seq2see: the text, line 1: unknown words: weather, nice; low confidence: -")
    assert seq2see("translate", "--model", GRAMMAR, "How are you? I like tea.").stderr == ""


def test_a_file_of_unknown_words_gets_one_note_per_line_and_a_total(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text(f"{NONSENSE}. {NONSENSE}.\n" * 8 + "I like tea.\n", encoding="utf-8")
    done = seq2see("translate", "--model", GRAMMAR, tmp_path / "in.txt", "--out", tmp_path / "out.txt")
    *notes, total = done.stderr.splitlines()
    assert [note.partition(" unknown")[0] for note in notes] == [
        f"seq2see: {tmp_path / 'in.txt'}, line {number}:" for number in range(1, 6)
    ]
    assert total == "seq2see: 8 texts with unknown words or low confidence (first 5 shown)"


def test_json_lines_have_the_assessment_of_the_text_and_of_each_sentence() -> None:
    done = seq2see("translate", "--model", GRAMMAR, "--format", "jsonl", given=f"How are you? {NONSENSE}.\n\n")
    first, blank = map(json.loads, done.stdout.splitlines())
    known, unknown = first["sentences"]
    assert (known["unknown"], known["low_confidence"]) == ([], False)
    assert (unknown["unknown"], unknown["low_confidence"]) == (["weather", "nice"], True)
    assert known["confidence"] > unknown["confidence"]
    assert {name: first[name] for name in ("unknown", "confidence", "low_confidence")} == {
        name: unknown[name] for name in ("unknown", "confidence", "low_confidence")
    }
    assert (blank["unknown"], blank["sentences"]) == ([], [])


def test_explain_and_evaluate_tell_it_too(tmp_path: Path) -> None:
    done = seq2see("explain", "--model", GRAMMAR, "Hello world", "--json")
    result = json.loads(done.stdout)
    assert (result["unknown"], result["low_confidence"]) == (["world"], True) and "unknown word: world" in done.stderr
    (tmp_path / "src").write_text(f"I like tea.\n{NONSENSE}.\n", encoding="utf-8")
    (tmp_path / "ref").write_text("मुझे चाय पसंद है।\nआज मौसम अच्छा है।\n", encoding="utf-8")
    done = seq2see("evaluate", "--model", GRAMMAR, "--src", tmp_path / "src", "--ref", tmp_path / "ref", "--json")
    assert json.loads(done.stdout)["warnings"] == ["texts with unknown words or low confidence: 1 of 2"]


def test_generate_names_the_unknown_words_of_the_prompt(language_model: Path) -> None:
    options = ("generate", "--model", language_model, "--max-new-tokens", 3, "--prompt")
    done = seq2see(*options, "the cow sat on the 🐄", "--json")
    assert json.loads(done.stdout)["unknown"] == ["cow", "🐄"]
    assert done.stderr == "seq2see: unknown words: cow, 🐄\n"
    assert seq2see(*options, "the cat sat").stderr == ""


# In Python and over HTTP


def test_python_warns_and_tells_more_on_request() -> None:
    model = load(GRAMMAR_MODEL)
    with pytest.warns(Notice, match="text 2: unknown words: weather, nice; low confidence"):
        model.translate(["I like tea.", NONSENSE])
    ((best,),) = model.hypotheses([NONSENSE])
    assessment = model.assess(NONSENSE, best.confidence)
    assert assessment.unknown == ("weather", "nice") and assessment.low_confidence
    e = model.explain(NONSENSE)
    assert e.assessment.unknown == assessment.unknown
    assert e.assessment.confidence == pytest.approx(assessment.confidence, abs=1e-3)
    assert "⚠ unknown words: weather, nice" in e._repr_html_()


def test_http_responses_have_the_same_fields(language_model: Path) -> None:
    with serving(create_app({GRAMMAR: GRAMMAR_MODEL, "lm": language_model})) as client:
        answer = client.post("/api/translate", json={"text": f"I like tea. {NONSENSE}."}).json()
        tea, weather = answer["sentences"]
        assert (tea["unknown"], tea["low_confidence"], weather["unknown"], weather["low_confidence"]) == (
            [],
            False,
            ["weather", "nice"],
            True,
        )
        assert answer["unknown"] == ["weather", "nice"] and answer["low_confidence"]
        assert answer["confidence"] == weather["confidence"] < tea["confidence"]
        assert answer["notes"][0].startswith("text: unknown words: weather, nice")
        trace = client.post("/api/traces", json={"text": NONSENSE}).json()
        assert (trace["unknown"], trace["low_confidence"]) == (["weather", "nice"], True)
        body = {"model": "lm", "prompt": "the cow", "max_new_tokens": 2}
        *_, last = client.post("/api/generate", json=body).text.splitlines()
        assert json.loads(last)["unknown"] == ["cow"]


def test_placeholders_are_not_unknown_words() -> None:
    notes: list[str] = []
    translator = protect(Translator(load(GRAMMAR_MODEL), WarningLog(notes.append)), PLACEHOLDER)
    translator.translate(["The weather is %(adjective)s today."], ["here"])
    assert [note for note in notes if note.startswith("here: unknown word: weather;")], notes


# What is known, and from which confidence on a model is sure


@pytest.mark.parametrize(
    ("text", "unknown"),
    [
        ("The cats don't like 1234 cats.", ("cats", "4")),  # digits in threes, as in the tokenizer
        ("the CAT", ("the", "CAT")),  # the model sees other tokens
        ("The cat 🙂 — like,", ("🙂", "—")),
        ("我喜欢茶。", ("茶",)),  # no spaces between words: each character
        ("नमस्ते दुनिया।", ("दुनिया",)),
    ],
)
def test_unknown_words_are_those_that_never_occurred(text: str, unknown: tuple[str, ...]) -> None:
    seen = ["The cat, and dogs, don't like 123.", "我喜欢喝水。", "नमस्ते।"]
    tokenizer = Tokenizer.train(seen, vocab_size=300)
    assert unknown_words(text, tokenizer, collect_words(seen, tokenizer)) == unknown
    assert unknown_words(text, tokenizer, None) is None


def test_composed_and_decomposed_letters_are_one_word_if_the_tokenizer_normalises() -> None:
    tokenizer = Tokenizer.train(["café"], vocab_size=300, normalize="NFC")
    assert unknown_words("cafe\u0301", tokenizer, collect_words(["café"], tokenizer)) == ()


def test_control_characters_are_escaped_in_a_note() -> None:
    assert Assessment(("\x1b", "क्‍ष"), 0.0, None).note == r"unknown words: \x1b, क्\u200dष"


@pytest.mark.parametrize(
    ("confidences", "chrf", "threshold", "accuracy"),
    [
        ([-0.9, -0.1, -0.8, -0.2], [10, 90, 20, 80], -0.2, 1.0),  # separable
        ([-0.9, -0.1, -0.8], [90, 90, 80], -0.9, 1.0),  # all good: only a confidence below all of them is low
        ([-0.9, -0.1, -0.8], [10, 10, 20], 0.0, 1.0),  # all bad: every confidence is low
        ([-0.9, -0.5, -0.5, -0.1], [10, 10, 90, 90], -0.1, 0.75),  # equal confidences are not separated
        ([-0.9, -0.1], [39.9, 40], -0.1, 1.0),  # 40 is not bad
    ],
)
def test_the_threshold_separates_bad_from_good(
    confidences: Sequence[float], chrf: Sequence[float], threshold: float, accuracy: float
) -> None:
    fit = fit_threshold(confidences, chrf)
    assert (fit.threshold, fit.accuracy) == (threshold, accuracy)
    assert fit.low_confidence == np.mean([value < threshold for value in confidences])
    assert fit.bad == np.mean([value < fit.bad_below for value in chrf])
    assert fit.sentences == len(chrf)


def test_training_stores_the_words_and_the_threshold(translator: Path, corpus: DataConfig, tmp_path: Path) -> None:
    model = load(translator)
    assert model.unknown_words("I drink milk") == ("milk",)
    assert model.scores["confidence"]["sentences"] == 60
    assert model.scores["confidence"]["bad"] == 1  # so every confidence is low
    with pytest.warns(Notice, match="low confidence"):
        model.translate("I drink tea")
    assert "60 validation sentences: 100.0% have low confidence, 100.0% are bad" in (
        translator / "README.md"
    ).read_text("utf-8")
    model.save(tmp_path / "copy")
    assert load(tmp_path / "copy").known_words == model.known_words


def test_a_model_without_words_and_threshold_can_be_calibrated(translator: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(translator, tmp_path / "model"))
    before = load(folder)
    for name in ("words.txt", "scores.json", "files.json"):
        (folder / name).unlink()
    model = load(folder)
    assert model.assess("I drink milk", -9.0).to_dict() == {"unknown": None, "confidence": -9.0, "low_confidence": None}
    calibration = calibrate(folder)
    model = load(folder)
    assert model.known_words == before.known_words
    assert asdict(calibration) == pytest.approx(before.scores["confidence"], abs=1e-3)
    assert model.scores["confidence"] == asdict(calibration)
    assert verify_files(folder)


def test_further_training_adds_words(translator: Path, tmp_path: Path) -> None:
    for name, words in (("en", "one two three milk"), ("hi", "एक दो तीन दूध")):
        lines = [" ".join(order) for order in permutations(words.split())]
        (tmp_path / f"train.{name}").write_text("\n".join(lines[:16]), encoding="utf-8")
        (tmp_path / f"valid.{name}").write_text("\n".join(lines[16:]), encoding="utf-8")
    source, target, valid_source, valid_target = (
        (str(tmp_path / f"{part}.{name}"),) for part in ("train", "valid") for name in ("en", "hi")
    )
    data = DataConfig(src=source, tgt=target, valid_src=valid_source, valid_tgt=valid_target)
    run.train(data, tmp_path / "run", preset="tiny", settings=[*SMALL_SETTINGS, "train.steps=1"], init=translator)
    assert load(tmp_path / "run").unknown_words("I drink red milk or juice") == ("or", "juice")
