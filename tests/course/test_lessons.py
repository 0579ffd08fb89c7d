"""The lessons that train a model: their claims hold, and they can be printed, drawn and listed."""

import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
import torch
import typer
from rich.console import Console
from typer.testing import CliRunner

from seq2see.cli.lesson import lesson, parse_arguments
from seq2see.cli.options import CommandGroup
from seq2see.course.lessons import GROUPS, LESSONS, leak, learning, order, patches, recurrent, saturation
from seq2see.course.lessons.exercises import parse_number
from seq2see.course.lessons.terminal import print_lesson
from seq2see.course.lessons.toy_language import EXAMPLE, NOUNS, Sentence, toy_corpus
from seq2see.errors import UsageError, UserError


@pytest.fixture(scope="module")
def leak_result() -> leak.Result:
    return leak.compute(steps=120)


@pytest.fixture(scope="module")
def order_result() -> order.Result:
    return order.compute(steps=110)


@pytest.fixture(scope="module")
def saturation_result() -> saturation.Result:
    return saturation.compute(steps=30)


def test_toy_sentences_have_mirrors_and_train_and_test_share_no_event() -> None:
    corpus = toy_corpus(seed=3)
    assert corpus.test[:2] == [EXAMPLE, EXAMPLE.mirror]
    assert all(one.mirror == other for one, other in zip(corpus.test[::2], corpus.test[1::2], strict=True))
    assert len(set(corpus.train)) == len(corpus.train)

    def event(s: Sentence) -> tuple[str, ...]:
        return (s.verb, *sorted((s.subject, s.object)))

    assert not {event(s) for s in corpus.train} & {event(s) for s in corpus.test}
    for s in corpus.train:
        assert sorted(s.english.split()) == sorted(s.mirror.english.split())
        assert len(set(s.references)) == (4 if s.time else 2)
        assert all(f"{NOUNS[s.subject]} ने" in text and f"{NOUNS[s.object]} को" in text for text in s.references)


def test_without_the_mask_the_loss_is_lower_and_decoding_fails(leak_result: leak.Result) -> None:
    masked, unmasked = leak_result.masked, leak_result.unmasked
    assert unmasked.curve.train[-1] < 0.6 * masked.curve.train[-1]
    assert 2 * unmasked.curve.test[-1] < leak_result.floor < 1.05 * masked.curve.test[-1]  # a guess may be lucky
    assert masked.accuracy > 0.9
    assert unmasked.accuracy < 0.2 and leak_result.remasked_accuracy < 0.2
    assert masked.next_word_weight == 0 and unmasked.next_word_weight > 0.4


def test_without_scaling_the_score_variance_grows_with_the_head_width(saturation_result: saturation.Result) -> None:
    for narrow, wide in zip(saturation_result.spreads, saturation_result.spreads[1:], strict=False):
        assert 1.5 < wide.score / narrow.score < 2.5  # twice the width, about twice the variance
        assert wide.largest > narrow.largest
    for spread in saturation_result.spreads:
        assert spread.score == pytest.approx(spread.head_width * spread.scaled, rel=1e-4)
        assert spread.score == pytest.approx(spread.head_width * spread.product, rel=0.4)


def test_without_scaling_the_softmax_saturates_and_learning_is_slower(saturation_result: saturation.Result) -> None:
    for scaled, unscaled in zip(saturation_result.scaled.probes, saturation_result.unscaled.probes, strict=True):
        assert unscaled.entropy < 0.5 * scaled.entropy
        assert unscaled.passed < 0.2 * scaled.passed
    assert saturation_result.scaled.probes[0].entropy > 0.7
    assert saturation_result.unscaled.curve.test[-1] > 1.3 * saturation_result.scaled.curve.test[-1]


def test_without_positions_a_sentence_and_its_mirror_have_the_same_set_of_vectors(order_result: order.Result) -> None:
    farthest = {}
    for name, run in (("without", order_result.without_positions), ("with", order_result.with_positions)):
        one, other = (torch.tensor(vectors) for vectors in run.vectors)
        distances = torch.cdist(one, other, compute_mode="donot_use_mm_for_euclid_dist")
        # Distance of every vector to the nearest one of the other sentence, in both directions.
        farthest[name] = float(torch.cat([distances.amin(0), distances.amin(1)]).max())
    assert farthest["without"] < 1e-4
    assert farthest["with"] > 0.1
    assert max(order_result.without_positions.change) < 1e-5 < min(order_result.with_positions.change)


def test_without_positions_subject_and_object_are_guessed(order_result: order.Result) -> None:
    without, with_positions = order_result.without_positions, order_result.with_positions
    assert without.distinguished == 0
    assert without.translations[0] == without.translations[1]
    assert without.accuracy <= 0.5
    assert without.curve.test[-1] > order_result.floor
    assert with_positions.distinguished > 0.9 and with_positions.accuracy > 0.9
    assert with_positions.translations == (EXAMPLE.hindi, EXAMPLE.mirror.hindi)
    assert with_positions.curve.test[-1] < order_result.floor


def test_examples_teach_what_it_refers_to() -> None:
    found = learning.compute(steps=60)
    assert found.moments[0].accuracy < 0.1 and found.moments[-1].accuracy > 0.9
    assert (
        found.translations == found.references and "elle" in found.references[0] and "il" in found.references[1].split()
    )
    follows = "more similar" in LESSONS["learning"].describe(found).takeaway
    last = found.moments[-1]
    assert follows == (last.to_food[0] > 1.5 * found.moments[0].to_food[0] and last.to_food[0] > last.to_place[0])
    untrained = replace(found, moments=(found.moments[0], replace(last, accuracy=0.4)))
    assert "train longer" in LESSONS["learning"].describe(untrained).takeaway


def test_pictures_and_sounds_become_tokens_that_a_model_learns_to_describe() -> None:
    found = patches.compute(steps=200)
    assert found.code_error < 0.02 and found.picture_accuracy > 0.5 and found.curve.test[-1] < 0.5
    assert found.picture.codes.count("patchempty") == 7 and found.picture.codes[1] == "patchsquare"
    assert len(found.sound.frequencies) == patches.MELODY
    assert [patches.NOTES[note] for note in found.sound.reference.split()] == list(found.sound.frequencies)
    pixels = torch.arange(144.0).view(12, 12)
    assert torch.equal(patches.cut(pixels)[4], pixels[4:8, 4:8].flatten())  # the middle


def test_a_token_of_any_kind_attends_to_those_like_it() -> None:
    text, picture, sound = patches.cut_sentence()
    assert text.weights[0] == pytest.approx([0.5, 0, 0, 0.5, 0], abs=1e-3)  # the other “we”
    ink = [(row, column) for row in range(2) for column, w in enumerate(picture.weights[row]) if w > 0.1]
    assert ink == [(1, column) for column, letter in enumerate(patches.SENTENCE) if letter == "w"]
    assert patches._elsewhere(sound) == [17, 36]
    for each in (text, picture, sound):
        assert sum(map(len, each.weights)) == each.tokens
        assert sum(map(sum, each.weights)) == pytest.approx(1)


def test_an_untrained_recurrent_state_forgets_and_needs_no_positions() -> None:
    found = recurrent.compute(lengths=[3, 30])
    short, long = found.remembered
    assert long.state < 0.1 * short.state and long.attended > 0.5 * short.attended
    assert long.transformer > 0.5 * short.transformer
    assert found.order_change > 0.1 > 1e-5 > found.order_change_transformer


def test_training_is_reproducible_and_restores_the_state_of_torch() -> None:
    torch.manual_seed(5)
    state, threads = torch.get_rng_state(), torch.get_num_threads()
    first, second = (order.compute(seed=2, steps=3) for _ in range(2))
    assert first == second
    assert torch.equal(state, torch.get_rng_state()) and threads == torch.get_num_threads()


def test_trained_lessons_print_in_80_columns_and_draw(
    leak_result: leak.Result, order_result: order.Result, saturation_result: saturation.Result, tmp_path: Path
) -> None:
    results = {"leak": leak_result, "order": order_result, "saturation": saturation_result}
    for name, result in results.items():
        console = Console(file=StringIO(), width=80)
        print_lesson(LESSONS[name], LESSONS[name].describe(result), console, full=True)
        text = console.file.getvalue()  # type: ignore[attr-defined]
        assert " ".join(text.split()).startswith(f"{LESSONS[name].title} ({name}) {LESSONS[name].question}")
        assert "In the notes (" in text and "Takeaway: " in text
    pytest.importorskip("matplotlib")
    for name, result in results.items():
        LESSONS[name].draw(result, tmp_path / f"{name}.png")
        assert (tmp_path / f"{name}.png").read_bytes()[:4] == b"\x89PNG"
    with pytest.raises(UserError, match="cannot write"):
        LESSONS["order"].draw(order_result, tmp_path / "missing" / "order.png")


def test_without_matplotlib_a_lesson_prints_and_its_figure_is_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("matplotlib", "matplotlib.figure"):
        monkeypatch.setitem(sys.modules, name, None)
    assert "Takeaway: " in CliRunner().invoke(_app(), ["lookup"]).output
    result = CliRunner().invoke(_app(), ["lookup", "--out", str(tmp_path / "lookup.png")])
    assert isinstance(result.exception, UserError) and "plots need matplotlib" in str(result.exception)
    assert not result.output and not list(tmp_path.iterdir())
    with pytest.raises(UserError, match="matplotlib"):
        LESSONS["lookup"].draw(LESSONS["lookup"].compute({}), tmp_path / "lookup.png")


def test_lessons_are_listed_in_order_without_importing_torch() -> None:
    listed = CliRunner().invoke(_app(), [])
    assert list(LESSONS)[:4] == ["words", "similarity", "directions", "context"]
    positions = [listed.output.index(f"\n  {name} ") for name in LESSONS]
    assert positions == sorted(positions)
    assert list(dict.fromkeys(each.group for each in LESSONS.values())) == list(GROUPS)  # groups in order, each once
    starts = [listed.output.index(group) for group in GROUPS]
    assert starts == sorted(starts) and starts[0] < positions[0]
    code = "import sys, seq2see.cli.lesson, seq2see.course.lessons; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("name", LESSONS)
def test_exercises_accept_their_computed_answers_and_reject_others(name: str) -> None:
    exercises = LESSONS[name].exercises()
    assert 2 <= len(exercises) <= 3
    answers = []
    for exercise in exercises:
        assert exercise.question and exercise.explanation
        assert exercise.grade(exercise.shown_answer) and not exercise.grade("") and not exercise.grade("987654")
        if exercise.choices:
            index = exercise.choices.index(str(exercise.answer))
            assert exercise.grade("abcdef"[index]) and not exercise.grade("abcdef"[1 - index])
        answers.append(exercise.shown_answer)
    quiz = CliRunner().invoke(_app(), [name, "--quiz"], input="\n".join(answers) + "\n")
    assert f"{len(exercises)} of {len(exercises)} right." in quiz.output
    if name == "lookup":
        wrong = CliRunner().invoke(_app(), [name, "--quiz"], input="150\n\n")  # right, skipped, end of the input
        assert "Right." in wrong.output and "Skipped: 200" in wrong.output and "1 of 3 right." in wrong.output


def test_numbers_are_read_as_people_write_them() -> None:
    for text, value in (
        ("0.5", 0.5),
        ("0,5", 0.5),
        ("50%", 0.5),
        ("1/2", 0.5),
        ("−6", -6),
        ("6,144", 6144),
        ("1e-3", 0.001),
    ):
        assert parse_number(text) == pytest.approx(value), text
    for text in ("", "x", "1/0", "1 2", "--1"):
        assert parse_number(text) is None, text


def test_data_is_for_the_lessons_that_read_some(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match='"context" reads no data'):
        lesson("context", data=tmp_path)
    with pytest.raises(UserError, match="WiC"):
        lesson("senses", data=tmp_path)


def test_an_unknown_lesson_is_an_error_that_names_the_nearest() -> None:
    with pytest.raises(UsageError, match='did you mean "order"'):
        lesson("ordr")
    with pytest.raises(UsageError, match="-1 is not between 0 and"):
        lesson("order", seed=-1)


WRONG_SHAPES = [
    "5",
    "-1",
    "[]",
    "{}",
    "[[1]]",
    "null",
    "true",
    "NaN",
    "1e400",
    "9" * 20,
    "9" * 5000,
    "[" * 5000,
    "[1, [2]]",
    '["a", 1]',
    '{"a": null}',
    '{"a": {"b": 1}}',
    '{"": [1, 2]}',
    "",
    '""',
    "x" * 1000,
]


def same_structure(value: object, default: object) -> bool:
    """Whether texts, numbers, lists and tables are where the default has them."""
    if isinstance(default, str) or default is None:
        return isinstance(value, str)
    if isinstance(default, Mapping):
        example = next(iter(default.values()))
        return isinstance(value, Mapping) and all(same_structure(each, example) for each in value.values())
    if isinstance(default, Sequence):
        return isinstance(value, Sequence) and not isinstance(value, str)
    return isinstance(value, (int, float)) and abs(value) < 1e9


@pytest.mark.parametrize("name", LESSONS)
def test_a_setting_of_wrong_shape_is_one_line(name: str) -> None:
    defaults = LESSONS[name].defaults()
    for setting in defaults.keys() - {"model", "seed"}:
        for text in WRONG_SHAPES:
            try:
                value = parse_arguments(LESSONS[name], None, None, [f"{setting}={text}"])[setting]
            except UsageError as error:
                message = str(error)
            else:
                assert same_structure(value, defaults[setting]), (setting, text[:40])
                continue
            assert setting in message and "\n" not in message and len(message) < 300


def _app() -> typer.Typer:
    return CommandGroup("", lesson)
