"""Every lesson is printed, drawn and converted to JSON; custom settings, other models, and their errors."""

import json
import re
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.cells import cell_len
from rich.console import Console
from rich.measure import Measurement
from typer.testing import CliRunner

from seq2see.cli.lesson import lesson
from seq2see.cli.options import CommandGroup
from seq2see.config import ModelConfig
from seq2see.course.lessons import (
    LESSONS,
    context,
    encoder,
    heads,
    norms,
    positions,
    qkv,
    senses,
    temperature,
    window,
    words,
)
from seq2see.course.lessons.document import Bars, HeatMap, Table
from seq2see.course.lessons.senses import best_threshold
from seq2see.course.lessons.terminal import bar_lines, print_lesson, rich_table, shade_lines
from seq2see.errors import UsageError, UserError
from seq2see.tensors.files import to_json
from tests.course.lessons import bundled, computed, word_model
from tests.models import TINY, tiny_model

NO_ANSWER = "no language model is bundled"


def results() -> dict[str, Any]:
    return {name: computed(name) for name in LESSONS}


@bundled
def test_every_lesson_has_the_same_shape_and_prints_in_80_columns() -> None:
    for name, result in results().items():
        lesson_text = LESSONS[name].describe(result)
        for full in (False, True):
            console = Console(file=StringIO(), width=80)
            print_lesson(LESSONS[name], lesson_text, console, full)
            text = console.file.getvalue()  # type: ignore[attr-defined]
            assert text.startswith(LESSONS[name].title)
            parts = ["Look at: ", "Takeaway: ", "Try this", "In the library"]
            places = [text.index(part) for part in parts]
            assert places == sorted(places), name
            assert ("In the notes (" in text) == full and ("More, with --full: " in text) != full
            lines = [line for line in text.splitlines() if "  seq2see lesson" not in line and "explore: #/" not in line]
            assert max(map(cell_len, lines)) <= 80, name  # commands and addresses are not broken
        for part in (*lesson_text.picture, *lesson_text.parts):
            if isinstance(part, Table):  # no cell is truncated
                minimum = Measurement.get(console, console.options, rich_table(part)).minimum
                assert minimum <= 80, (name, part.columns)
            elif isinstance(part, (Bars, HeatMap)):
                drawn = bar_lines(part) if isinstance(part, Bars) else shade_lines(part)
                assert max(map(cell_len, drawn)) <= 80, (name, part.title)
        assert lesson_text.picture and lesson_text.more and lesson_text.tries and lesson_text.notes, name
        shown = [part for part in lesson_text.body if not isinstance(part, str)]
        assert len(shown) <= 2, name  # the rest is folded away


@bundled
def test_outside_the_aside_nothing_corrects_a_text_that_the_reader_does_not_have() -> None:
    for name, result in results().items():
        text = LESSONS[name].describe(result)
        paragraphs = [LESSONS[name].question, text.look, text.takeaway, *(each.text for each in text.tries)]
        for part in (*text.picture, *text.parts):
            paragraphs.append(
                part if isinstance(part, str) else part.caption if isinstance(part, Table) else part.title
            )
        assert not any(re.search(r"\bnotes\b", paragraph) for paragraph in paragraphs), name


@bundled
def test_every_lesson_converts_to_json_and_accepts_its_own_defaults_from_json() -> None:
    for name, result in results().items():
        text = json.dumps(to_json(LESSONS[name].describe(result)), allow_nan=False)
        assert json.loads(text)["takeaway"]
        json.dumps(to_json(result), allow_nan=False)
    for name in ("similarity", "context", "lookup", "norms"):  # what the page edits and sends back
        arguments = {key: value for key, value in LESSONS[name].defaults().items() if value is not None}
        again = LESSONS[name].compute(json.loads(json.dumps(to_json(arguments))))
        assert to_json(again) == to_json(computed(name))


def test_positions_accepts_a_model_that_tokenizes_the_first_word_differently() -> None:
    model = tiny_model(["Nithish killed lion"] * 5, replace(TINY, shape="decoder"))
    assert positions.compute(model=model).order is None
    with pytest.raises(UserError, match="must consist of the same words"):
        positions.compute(sentences=["Nithish killed lion", "lion saw Nithish"], model=model)


def test_positions_needs_vectors_that_it_can_take_away() -> None:
    relative = word_model(replace(TINY, positions="relative"))
    assert positions.compute(sentences=["the king reads", "reads king the"], model=relative).order is None


@bundled
def test_every_lesson_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for name, result in results().items():
        LESSONS[name].draw(result, tmp_path / f"{name}.png")
        assert (tmp_path / f"{name}.png").read_bytes()[:4] == b"\x89PNG"


def test_lessons_accept_a_languageword_model() -> None:
    config = ModelConfig(shape="decoder", width=16, heads=2, decoder_layers=2, feed_forward=16, dropout=0.0)
    model = word_model(config)
    refused = ("decoder", "cross")
    for name, each in LESSONS.items():
        if "model" in each.defaults() and name not in refused:
            result = each.compute({"model": model})
            print_lesson(each, each.describe(result), Console(file=StringIO(), width=80), full=True)
    for name in refused:
        with pytest.raises(UserError, match="needs an encoder-decoder"):
            LESSONS[name].compute({"model": model})


def test_lessons_read_words_that_are_several_tokens() -> None:
    texts = ["the man saw it", "a cat and a dog", "The boy saw the dog.", "The boy saw the cat."] * 3
    for shape in ("encoder-decoder", "decoder", "encoder"):
        model = tiny_model(texts, replace(TINY, shape=shape))
        assert len(model.tokenizers[0].encode("telescope")) > 1
        found = heads.compute(model=model)
        for answer, sentence in zip(found.answers, heads.QUESTIONS, strict=True):
            shown = [word for word in answer.words if not word.startswith("<")]
            assert shown == [*sentence[:-1].split(), "."][: len(shown)] and len(shown) >= len(sentence.split()), shape
            assert [sum(row) for row in answer.weights] == pytest.approx([1] * len(answer.words), abs=1e-4)
        changed = encoder.compute(model=model)
        assert sum(change > 0 for change in changed.change[0]) < len(changed.words)
    with pytest.raises(UserError, match="change a word without changing the number of tokens"):
        encoder.compute("The telescope", "The man", model=model)


def test_custom_tables_and_their_errors() -> None:
    mine = LESSONS["context"].compute({"table": {"tea": [1, 0, 0], "milk": [1, 1, 0]}, "sentences": "tea milk"})
    assert mine.sentences[0].words == ("tea", "milk")
    for width, names in ((2, ("tech", "fruit")), (4, ("tech", "fruit", "other", "4"))):
        assert context.compute(table={"tea": [1] * width}, sentences=["tea"]).names == names
    with pytest.raises(UserError, match=r'"ice-cream" is 2 words \(ice, cream\)'):
        words.compute(words=["ice-cream", "cake"])
    with pytest.raises(UserError, match="3 sentences: expected 2 orders"):
        positions.compute(sentences=["a b"] * 3, model=word_model())
    for sentences, message in (
        (["The bank", "The man"], '"bank" is not in "The man"'),
        (["The bank"], "1 sentence with"),
    ):
        with pytest.raises(UserError, match=message):
            senses.compute(senses={"bank (money)": sentences}, model=word_model())
    with pytest.raises(UserError, match="6 logits and 5 printed probabilities"):
        temperature.compute(logits=[1, 2, 3, 4, 5, 6], model=word_model())
    with pytest.raises(UserError, match='no row for "coffee"'):
        context.compute(sentences=["coffee"])
    with pytest.raises(UserError, match="rows of 1, 2 numbers"):
        context.compute(table={"tea": [1], "milk": [1, 2]}, sentences=["tea"])
    with pytest.raises(UserError, match="contains 'x', expected a finite number"):
        norms.compute(samples=[[1, "x"], [2, 3]], model=word_model())  # type: ignore[list-item]
    with pytest.raises(UserError, match="W_K has 3 rows, but embeddings have 2 numbers"):
        qkv.compute(key_weights=((1, 2), (3, 4), (5, 6)), model=word_model())
    with pytest.raises(UsageError, match='no parameter "sentense": did you mean "sentences"'):
        LESSONS["context"].compute({"sentense": "an apple phone"})


def test_the_command_accepts_settings_and_prints_json() -> None:
    app = CommandGroup("", lesson)
    result = CliRunner().invoke(app, ["lookup", "--set", "query=Smith", "--set", "temperatures=[1]", "--json"])
    found = json.loads(result.output)
    assert found["name"] == "lookup" and found["result"]["exact"] == 200 and found["result"]["temperatures"] == [1]
    for arguments, message in (
        (["lookup", "--model", "runs/x"], 'the lesson "lookup" uses no model'),
        (["lookup", "--seed", "3"], 'the lesson "lookup" uses no seed'),
        (["lookup", "--set", "query"], "expected NAME=VALUE"),
        (["lookup", "--set", "quary=x"], 'did you mean "query"'),
    ):
        result = CliRunner().invoke(app, arguments)
        assert isinstance(result.exception, UsageError) and message in str(result.exception)


def test_the_words_at_one_point_share_a_label(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    axes_module = pytest.importorskip("matplotlib.axes")
    labels: list[str] = []
    annotate = axes_module.Axes.annotate

    def record(self: Any, text: str, *args: Any, **options: Any) -> Any:
        labels.append(text)
        return annotate(self, text, *args, **options)

    monkeypatch.setattr(axes_module.Axes, "annotate", record)
    context.draw(context.compute(), tmp_path / "context.png")
    assert "and, an" in labels and "an" in labels  # the second sentence has only one of them


def test_a_constant_row_has_deviation_0() -> None:
    found = norms.compute(samples=[[2, 3, 7], [4, 4, 4]], model=word_model())
    tables = [part for part in LESSONS["norms"].describe(found).more[0].parts if isinstance(part, Table)]
    assert "except 1 constant row, with σ 0" in tables[2].caption and "except" not in tables[1].caption


def test_a_language_model_is_not_said_to_translate_and_its_last_row_is_its_own_choice() -> None:
    model = word_model(replace(TINY, shape="decoder"))
    found = LESSONS["next"].module.compute(sentence="The man saw the lion.", model=model)
    assert found.is_language_model and found.row_input == found.positions[-1].input == "."
    assert found.row_token == found.positions[-1].top[0][0] == found.positions[-1].target  # it would add this token
    assert all(len(prompt.top) == 5 for prompt in found.prompts) and len(found.prompts) == 3
    chat = window.compute(model=model)
    assert chat.reply is not None and chat.speaker_reply is not None
    texts = [str(LESSONS[name].describe(each)) for name, each in (("next", found), ("window", chat))]
    assert not any(NO_ANSWER in text for text in texts)
    monkey = LESSONS["next"].module.compute(model=word_model())
    assert not monkey.is_language_model


def test_a_model_that_answers_nothing_is_reported_as_such() -> None:
    found = replace(window.compute(model=word_model(replace(TINY, shape="decoder"))), reply="", speaker_reply=" ")
    chat = str(LESSONS["window"].describe(found).more[1].parts)
    assert chat.count("(nothing: it ends at once)") == 2 and NO_ANSWER not in chat


@bundled
def test_wic_uses_a_threshold_chosen_on_the_training_pairs(tmp_path: Path) -> None:
    garden = ["There is a mole in the garden .", "The mole is in the garden ."]
    doctor = ["Take a biopsy of the mole .", "The doctor removes the mole ."]
    rows = [(*garden, "T"), (*doctor, "T"), (garden[0], doctor[0], "F"), (garden[1], doctor[1], "F")]
    for name in ("train", "dev"):
        lines = [
            "\t".join(("mole", "N", f"{one.split().index('mole')}-{other.split().index('mole')}", one, other))
            for one, other, _ in rows
        ]
        (tmp_path / f"{name}.data.txt").write_text("\n".join(lines) + "\n")
        (tmp_path / f"{name}.gold.txt").write_text("\n".join(answer for *_, answer in rows) + "\n")
    found = senses.compute(wic=str(tmp_path)).wic
    assert found is not None and found.pairs == 4 and found.majority == 0.5
    assert found.dev[0] == 0.5  # in the embedding, the word is the same everywhere
    assert found.dev[-1] == found.train[-1] > 0.5
    cosines, same = torch.tensor([0.9, 0.1, 0.6, 0.3]), torch.tensor([True, False, True, False])
    assert best_threshold(cosines, same) == pytest.approx((0.3, 1.0))
    (tmp_path / "dev.gold.txt").write_text("T\n")
    with pytest.raises(UserError, match=r"4 pairs in dev\.data\.txt, but 1 answers"):
        senses.compute(wic=str(tmp_path))
