"""The notes' worked examples, their slips included, and every lesson told, drawn and turned into JSON."""

import json
import math
import re
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
from rich.cells import cell_len
from rich.console import Console
from rich.measure import Measurement
from typer.testing import CliRunner

from seq2see.api import Model
from seq2see.cli.lesson import lesson
from seq2see.config import ModelConfig, TextConfig
from seq2see.course import lessons
from seq2see.course.lessons import LESSONS
from seq2see.course.lessons.render import Grid, plain, tell
from seq2see.course.lessons.render import _table as rendered
from seq2see.course.lessons.wic import _threshold
from seq2see.course.vectors import Vectors
from seq2see.directory import BUNDLED
from seq2see.errors import UsageError, UserError
from tests.models import TINY, tiny_model

bundled = pytest.mark.skipif(
    not (BUNDLED / "config.toml").is_file(), reason="python recipes/bundled.py makes the model"
)

# The lessons that train are told in test_lessons.py; these two are cut short here.
SHORT: dict[str, dict[str, Any]] = {
    "cross": {"steps": 90},
    "directions": {"sentences": 1500},
    "words": {"sentences": 300},
}
TRAINING = ("saturation", "order", "leak")


@pytest.fixture(scope="module")
def told() -> dict[str, Any]:
    """Every lesson's numbers, computed once."""
    return {name: each.compute(SHORT.get(name, {})) for name, each in LESSONS.items() if name not in TRAINING}


def near(*numbers: float) -> Any:
    """As the notes round: to two digits after the point."""
    return pytest.approx(numbers, abs=0.006)


def test_two_features_cherry_orange_phone() -> None:
    found = lessons.similarity(model=_model()).words
    pairs = ((0, 1), (0, 2), (1, 2))
    assert [found.dot[i][j] for i, j in pairs] == [12, 3, 0]
    assert tuple(found.cosine[i][j] for i, j in pairs) == pytest.approx((0.970, 0.243, 0), abs=5e-4)
    assert tuple(found.scaled[i][j] for i, j in pairs) == near(8.49, 2.12, 0)


def test_three_features_are_divided_by_the_root_of_three_not_of_five() -> None:
    found = lessons.similarity(model=_model()).document
    assert found.words == ("orange", "phone", "apple", "and", "an")
    assert found.dot == (
        (9, 0, 6, 0, 0), (0, 16, 8, 0, 0), (6, 8, 8, 0, 0), (0, 0, 0, 4, 6), (0, 0, 0, 6, 9),
    )  # fmt: skip
    scaled = found.scaled
    assert (scaled[0][0], scaled[0][2], scaled[1][1], scaled[1][2], scaled[3][3]) == near(5.20, 3.46, 9.24, 4.62, 2.31)
    assert any(
        "√5" in slip and "√3" in slip for slip in LESSONS["similarity"].story(lessons.similarity(model=_model())).slips
    )


def test_apple_and_an_orange_by_plain_normalising_and_by_softmax() -> None:
    apple_and_an_orange, an_apple_phone = lessons.context().sentences
    apple, orange = 0, 3
    assert tuple(apple_and_an_orange.scaled[apple]) == near(4.62, 0, 0, 3.46)
    assert tuple(apple_and_an_orange.normalised[apple]) == near(0.57, 0, 0, 0.43)
    assert tuple(apple_and_an_orange.related[apple]) == near(0.76, 0, 0, 0.24)
    assert tuple(apple_and_an_orange.weights[apple]) == pytest.approx((0.749, 0.007, 0.007, 0.236), abs=6e-4)
    assert tuple(apple_and_an_orange.related[orange]) == near(0.15, 0, 0, 0.85)
    an, apple, phone = range(3)
    assert an_apple_phone.scaled[apple][apple] == an_apple_phone.scaled[apple][phone] == pytest.approx(4.62, abs=0.005)
    assert tuple(an_apple_phone.related[apple]) == near(0, 0.5, 0.5)
    assert tuple(an_apple_phone.related[phone]) == pytest.approx((0, 0.010, 0.990), abs=5e-4)
    assert an_apple_phone.moved[apple][0] > 2.9 > 2 > apple_and_an_orange.moved[0][0]  # towards tech, away from it
    slips = " ".join(LESSONS["context"].story(lessons.context()).slips)
    assert "0.760 and 0.240" in slips and "0.150 and 0.850" in slips and "0.500 and 0.500" in slips
    assert "0.010 and 0.990" in slips and an == 0


def test_the_weights_of_the_two_banks_add_to_one_and_mix_the_vectors() -> None:
    money, river = lessons.context().banks
    assert money.given[1] == (0.25, 0.70, 0.05) and river.given[1] == (0.20, 0.78, 0.02)
    for bank in (money, river):
        assert [sum(row) for row in bank.given] == pytest.approx([1, 1, 1])
        assert [sum(row) for row in bank.weights] == pytest.approx([1, 1, 1])
    assert money.moved_as_given[1][0] > money.moved_as_given[1][1]  # finance, not water
    assert river.moved_as_given[1][0] < river.moved_as_given[1][1]


def test_summeth_is_nearest_to_summer_and_smeeth_which_tie() -> None:
    found = lessons.lookup()
    assert found.keys == ("Smith", "Summer", "Smeeth") and found.values == (200, 201, 202)
    assert found.hard is None and found.distances == (3, 2, 2)
    for row in found.weights:
        assert sum(row) == pytest.approx(1) and row[0] < row[1] == pytest.approx(row[2])
    sharp, soft = found.weights[0][1], found.weights[-1][1]
    assert sharp == pytest.approx(0.5, abs=0.01) and soft < sharp
    assert lessons.lookup(query="Smith").hard == 200


def test_pizza_is_awesome() -> None:
    found = lessons.qkv(model=_model())
    assert tuple(found.queries[2]) == tuple(found.keys[2]) == tuple(found.values[2]) == near(2.98, 5.74)
    assert found.steps.scaled[0][0] == pytest.approx(found.steps.scores[0][0] / math.sqrt(2))
    assert [sum(row) for row in found.steps.weights] == pytest.approx([1] * 4)
    slips = " ".join(LESSONS["qkv"].story(found).slips)
    assert "add to 1.02" in slips and "= 1.00 as printed" in slips and "(2.98, 5.74)" in slips


def test_the_column_form_is_the_row_form_and_the_notes_form_is_not() -> None:
    weights = ((0.3, -0.4), (0.1, 0.6))
    found = lessons.qkv(query_weights=weights, key_weights=((1.0, 0.2), (-0.5, 0.4)), model=_model())
    assert found.columns_apart < 1e-12
    assert found.as_written_apart > 0.01


def test_position_0_is_0_1_0_1_0_1() -> None:
    found = lessons.positions(model=_model())
    assert found.first == (0, 1, 0, 1, 0, 1)
    assert found.divisors == pytest.approx((1, 10000 ** (1 / 3), 10000 ** (2 / 3)))
    assert (len(found.map), len(found.map[0])) == (50, 128)
    assert found.flips == (1, 3, 7, 15) and list(found.turns) == sorted(found.turns, reverse=True)
    assert found.rotation_apart < 1e-6
    assert found.waves_at == pytest.approx([found.waves_at[0]] * 3, rel=1e-6)  # the distance is all
    assert found.counts_at == (0, 130, 1720)
    assert found.orders is not None
    assert max(found.orders.apart_without) < 1e-5 < 0.01 < max(found.orders.apart)


def test_the_variance_of_a_dot_product_grows_with_the_dimension() -> None:
    found = lessons.scaling(model=_model())
    for spread in found.random:
        assert spread.variance / spread.dimensions == pytest.approx(found.product, rel=0.1)
        assert spread.scaled == pytest.approx(1, rel=0.1)
    assert found.random[-1].largest > 0.9 > 0.4 > found.random[-1].largest_scaled
    assert [ratio for _, ratio in found.multiples] == pytest.approx([c**2 for c, _ in found.multiples])


def test_layer_norm_goes_along_the_rows_and_padding_leaves_it_alone() -> None:
    found = lessons.norms(model=_model())
    x = torch.tensor(found.samples)
    assert x.tolist()[0] == [2, 3, 7, 5, 4] and x.tolist()[4] == [7, 1, 3, 3, 4]
    for table, axis in ((found.batch, 0), (found.layer, 1)):
        normed = torch.tensor(table)
        expected = (x - x.mean(axis, keepdim=True)) / (x.var(axis, correction=0, keepdim=True) + 1e-5).sqrt()
        assert torch.allclose(normed, expected, atol=1e-5)
    assert all(padded.layer_moved == 0 for padded in found.padded)
    moves = [padded.batch_moved for padded in found.padded]
    assert moves[0] == 0 and moves == sorted(moves) and moves[-1] > 1
    assert found.real.padding > 0 and max(found.real.layer_moved) < 1e-6 < 0.05 < min(found.real.batch_moved)


def test_the_mask_is_0_up_to_the_diagonal_and_minus_infinity_behind_it() -> None:
    found = lessons.mask(model=_model())
    for i, row in enumerate(found.mask):
        assert all(cell == (0 if j <= i else -math.inf) for j, cell in enumerate(row))
        assert all(found.weights[i][j] == 0 for j in range(i + 1, len(row)))
        assert sum(found.weights[i]) == pytest.approx(1)
    assert set(found.moved[:-1]) == {0.0} and found.moved[-1] > 0.01
    assert min(found.moved_open[:-1]) > 1e-6  # without the mask, all notice
    assert found.ahead_as_written > 0.1
    assert plain(found)["mask"][0][1] is None  # JSON has no infinity


def test_temperature_seven_explains_the_notes_probabilities() -> None:
    found = lessons.next(model=_model())
    assert found.fitted == pytest.approx(7, abs=0.2) and found.others == pytest.approx(0.18)
    at = dict(zip(found.temperatures, found.probabilities, strict=True))
    assert at[0.1][4] == pytest.approx(1) and at[1.0][4] == pytest.approx(0.977, abs=1e-3)
    assert [row[4] for row in found.probabilities] == sorted((row[4] for row in found.probabilities), reverse=True)
    printed = [0.82 * p for p in lessons.next(temperatures=[found.fitted], model=_model()).probabilities[0]]
    assert printed == pytest.approx((0.19, 0.04, 0.14, 0.10, 0.35), abs=0.01)
    assert found.product == pytest.approx(found.logit, abs=1e-4)
    assert found.prompt == "You're an apple.\n\nUser: Give me a banana\nModel: "


def test_one_hot_tf_idf_and_why_apple_is_an_average() -> None:
    found = lessons.words(sentences=300)
    assert found.one_hot == ((1, 0, 0), (0, 1, 0), (0, 0, 1))
    apple = found.terms.index("apple")
    assert set(found.tf_idf[apple]) == {0}  # in every document
    assert found.tf_idf[found.terms.index("is")] == pytest.approx((0, math.log(2), math.log(2), 0), abs=1e-6)
    most, half, least = found.mixtures
    assert (most.fruit_sentences, most.phone_sentences) == (270, 30)
    assert most.share > half.share > least.share and half.share == pytest.approx(0.5, abs=0.1)
    assert most.to_fruit > most.to_phones and least.to_fruit < least.to_phones


def test_directions_tell_the_true_rank_also_where_the_answer_is_not_first() -> None:
    table = {
        "man": (1, 0, 0, 0), "woman": (1, 1, 0, 0), "king": (1, 0, 1, 0), "queen": (1, 1, 1, 0.1), "us": (1, 1, 1, 0),
        "cat": (0, 0, 3, 0), "cats": (0, 0, 3, 1), "dog": (0, 3, 0, 0), "dogs": (0, 3, 0, 1),
    }  # fmt: skip
    found = lessons.directions(
        Vectors.of(table), [("king", "man", "woman", "queen"), ("king", "man", "woman", "empress")],
        [("cats", "cat"), ("dogs", "dog")], ["cats", "dog", "lion"],
    )  # fmt: skip
    first, second = found.questions
    assert first.rank == 2 and first.best[0][0] == "us"
    assert second.rank == 0 and second.missing == ("empress",)
    assert found.right == 2 and [word for word, _ in found.measured] == ["cats", "dog"]
    assert found.measured[0][1] == pytest.approx(1, abs=1e-6) and found.measured[1][1] == pytest.approx(0, abs=1e-6)


def test_attention_is_global_and_the_feed_forward_layer_local() -> None:
    for model in (_model(), _model(norm_first=True)):
        found = lessons.encoder(model=model)
        changed = found.nudged
        assert [i for i, x in enumerate(found.moved[0]) if x > 0] == [changed]  # one word differs
        assert min(found.moved[2]) > 0  # and after attention all have moved
        assert min(found.reached_by_attention) > 0
        assert [i for i, x in enumerate(found.reached_by_feed_forward) if x > 0] == [changed]
        assert found.residual_apart < 1e-5 < 0.05 < found.as_written_apart
    with pytest.raises(UserError, match="without changing the number"):
        lessons.encoder(changed="Nithish saw the big lion.", model=_model())


def test_teacher_forcing_computes_what_decoding_will() -> None:
    found = lessons.decoder(model=_model())
    assert found.prefixes_apart < 1e-4
    taken = [place.probability for place in found.written.places]
    assert taken == pytest.approx(found.step_by_step[: len(taken)], abs=1e-5)
    assert found.taught.places[0].reads == "<start>" and found.taught.places[-1].writes == "<end>"
    assert found.taught.loss == pytest.approx(
        -sum(math.log(place.probability) for place in found.taught.places) / len(found.taught.places), abs=1e-5
    )


def test_eight_heads_of_64_cost_what_one_of_512_does() -> None:
    found = lessons.heads(model=_model())
    one, eight, wide = found.costs
    assert one.parameters == eight.parameters == 4 * 512 * 512 + 4 * 512 and wide.parameters > 7 * one.parameters
    for answer in found.answers:
        assert answer.share == pytest.approx(
            max(sum(table[layer][head] for table in answer.looks) for layer in range(1) for head in range(2))
        )
        assert [sum(row) for row in answer.weights] == pytest.approx([1] * len(answer.words), abs=1e-5)


@bundled
def test_the_bundled_model_aligns_the_notes_sentence(told: dict[str, Any]) -> None:
    ice_cream, congratulations, thanks = told["cross"].sentences
    assert " ".join(ice_cream.target) == "मुझे आइसक्रीम खाना पसंद है"
    assert {(0, 0), (3, 1), (2, 2), (1, 3)} <= set(ice_cream.links) and ice_cream.crossings > 0
    assert (len(congratulations.source), len(congratulations.target)) == (1, 2)
    assert (len(thanks.source), len(thanks.target)) == (2, 1)


def test_french_adjectives_are_found_in_reverse(told: dict[str, Any]) -> None:
    french = told["cross"].french
    assert french.target == ("La", "Zone", "Économique", "Européenne") and told["cross"].right > 0.8
    assert french.links == ((0, 0), (1, 3), (2, 2), (3, 1)) and french.crossings == 3


@bundled
def test_the_bundled_model_knows_the_idiom_and_the_senses(told: dict[str, Any]) -> None:
    idiom, sentence, literal = told["qkv"].idioms
    assert idiom.translation == "आसान काम" and idiom.one_by_one[-1] == "केक"
    assert "केक" in literal.translation and "केक" not in sentence.translation
    mole = told["senses"].words[2]
    assert mole.means[0] == pytest.approx(1, abs=1e-5) and mole.means[-1] < 0.9
    creature = told["heads"].answers[2]
    assert creature.share > 0.9 > creature.chance  # a head that gathers the adjectives
    assert told["decoder"].written.output == "हम दोस्त हैं"


@bundled
def test_wic_is_answered_by_a_threshold_chosen_on_other_pairs(tmp_path: Path) -> None:
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
    found = lessons.senses(wic=str(tmp_path)).wic
    assert found is not None and found.pairs == 4 and found.yes == 0.5
    assert found.dev[0] == 0.5  # looked up, the word is the same everywhere
    assert found.dev[-1] == found.train[-1] > 0.5
    near, same = torch.tensor([0.9, 0.1, 0.6, 0.3]), torch.tensor([True, False, True, False])
    assert _threshold(near, same) == pytest.approx((0.3, 1.0))
    (tmp_path / "dev.gold.txt").write_text("T\n")
    with pytest.raises(UserError, match=r"4 pairs in dev\.data\.txt, but 1 answers"):
        lessons.senses(wic=str(tmp_path))


@bundled
def test_every_lesson_is_told_in_eighty_columns(told: dict[str, Any]) -> None:
    for name, result in told.items():
        console = Console(file=StringIO(), width=80)
        story = LESSONS[name].story(result)
        tell(name, story, console)
        text = console.file.getvalue()  # type: ignore[attr-defined]
        assert text.startswith(f"{name}: ") and "notes" in text and "What to look at" in text
        assert max(map(cell_len, text.splitlines())) <= 80, name
        for grid in story.parts:
            if isinstance(grid, Grid):  # and no word of a table is cut for want of room
                assert Measurement.get(console, console.options, rendered(grid)).minimum <= 80, (name, grid.columns)


@bundled
def test_every_lesson_turns_into_json_and_back_into_its_arguments(told: dict[str, Any]) -> None:
    for name, result in told.items():
        text = json.dumps({"story": plain(LESSONS[name].story(result)), "result": plain(result)}, allow_nan=False)
        assert json.loads(text)["story"]["look"]
    for name in ("similarity", "context", "lookup", "norms"):  # what a page edits and sends back
        given = {key: value for key, value in LESSONS[name].defaults().items() if value is not None}
        assert LESSONS[name].compute(json.loads(json.dumps(plain(given)))) == told[name]


@bundled
def test_what_only_the_terminal_can_do_is_said_in_brackets(told: dict[str, Any]) -> None:
    """The page leaves those out (web/src/lessons.ts, `linked`)."""
    bracketed = []
    for name, result in told.items():
        story = LESSONS[name].story(result)
        for text in (story.claim, story.look, *story.slips, *(part for part in story.parts if isinstance(part, str))):
            rest, count = re.subn(r" ?\([^()]*--set [^()]*\)", "", text)
            assert "--" not in rest and "seq2see " not in rest, name
            bracketed += [name] * count
    assert {"context", "directions", "senses"} <= set(bracketed)


def test_positions_are_told_of_a_model_that_cuts_the_first_word_otherwise() -> None:
    model = tiny_model(["Nithish killed lion"] * 5, replace(TINY, shape="decoder"))
    assert lessons.positions(model=model).orders is None
    with pytest.raises(UserError, match="not made of the same words"):
        lessons.positions(sentences=["Nithish killed lion", "lion saw Nithish"], model=model)


@bundled
def test_every_lesson_is_drawn(told: dict[str, Any], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for name, result in told.items():
        LESSONS[name].draw(result, tmp_path / f"{name}.png")
        assert (tmp_path / f"{name}.png").read_bytes()[:4] == b"\x89PNG"


def test_lessons_look_into_a_language_model_too() -> None:
    config = ModelConfig(shape="decoder", width=16, heads=2, decoder_layers=2, feed_forward=16, dropout=0.0)
    model = _model(config)
    for name in ("similarity", "qkv", "scaling", "heads", "positions", "norms", "encoder", "mask", "next", "senses"):
        result = LESSONS[name].compute({"model": model})
        tell(name, LESSONS[name].story(result), Console(file=StringIO(), width=80))
    for name in ("decoder", "cross"):
        with pytest.raises(UserError, match="needs an encoder-decoder"):
            LESSONS[name].compute({"model": model})


def test_a_table_of_ones_own_and_what_is_wrong_with_it() -> None:
    mine = LESSONS["context"].compute({"table": {"tea": [1, 0, 0], "milk": [1, 1, 0]}, "sentences": "tea milk"})
    assert mine.sentences[0].words == ("tea", "milk")
    for width, names in ((2, ("tech", "fruit")), (4, ("tech", "fruit", "other", "4"))):
        assert lessons.context(table={"tea": [1] * width}, sentences=["tea"]).names == names
    with pytest.raises(UserError, match='"ice-cream" is 2 words, ice and cream'):
        lessons.words(words=["ice-cream", "cake"])
    with pytest.raises(UserError, match="3 sentences, where 2 orders"):
        lessons.positions(sentences=["a b"] * 3, model=_model())
    for sentences, wrong in (
        (["The bank", "The man"], '"bank" is not in "The man"'),
        (["The bank"], "1 sentence with"),
    ):
        with pytest.raises(UserError, match=wrong):
            lessons.senses(words={"bank": sentences}, model=_model())
    with pytest.raises(UserError, match="6 logits and 5 printed probabilities"):
        lessons.next(logits=[1, 2, 3, 4, 5, 6], model=_model())
    with pytest.raises(UserError, match='no row for "coffee"'):
        lessons.context(sentences=["coffee"])
    with pytest.raises(UserError, match="rows of 1, 2 numbers"):
        lessons.context(table={"tea": [1], "milk": [1, 2]}, sentences=["tea"])
    with pytest.raises(UserError, match="'x' in it, where a number"):
        lessons.norms(samples=[[1, "x"], [2, 3]], model=_model())  # type: ignore[list-item]
    with pytest.raises(UserError, match="W_K has 3 rows, but an embedding 2 numbers"):
        lessons.qkv(key_weights=((1, 2), (3, 4), (5, 6)), model=_model())
    with pytest.raises(UsageError, match='takes no "sentense": did you mean "sentences"'):
        LESSONS["context"].compute({"sentense": "an apple phone"})


def test_the_command_takes_words_and_gives_json() -> None:
    app = typer.Typer()
    app.command()(lesson)
    said = CliRunner().invoke(app, ["lookup", "--set", "query=Smith", "--set", "temperatures=[1]", "--json"])
    found = json.loads(said.output)
    assert found["name"] == "lookup" and found["result"]["hard"] == 200 and found["result"]["temperatures"] == [1]
    for arguments, message in (
        (["lookup", "--model", "runs/x"], 'the lesson "lookup" uses no model'),
        (["lookup", "--seed", "3"], 'the lesson "lookup" uses no seed'),
        (["lookup", "--set", "query"], "expected NAME=VALUE"),
        (["lookup", "--set", "quary=x"], 'did you mean "query"'),
    ):
        wrong = CliRunner().invoke(app, arguments)
        assert isinstance(wrong.exception, UsageError) and message in str(wrong.exception)


def _model(config: ModelConfig = TINY, norm_first: bool = False) -> Model:
    """A small untrained model that knows the words of the lessons."""
    texts = [
        "How are you? We are friends I am good an apple phone The money in the bank grows. Thank you",
        "The man saw the astronomer with a telescope. Apple is healthy. Nithish killed the lion. Nithish saw the lion.",
        "मैं बढ़िया हूँ हम दोस्त हैं आप कैसे हैं?",
    ]
    texts += [sentence for name in ("heads", "senses") for sentence in _sentences(LESSONS[name].defaults())]
    texts += ["piece of cake This is a piece of cake. I ate a piece of cake. Nithish killed lion", "Take one"]
    return tiny_model(texts, replace(config, norm_first=norm_first), TextConfig(tokenizer="word"))


def _sentences(defaults: dict[str, Any]) -> list[str]:
    if "questions" in defaults:
        return list(defaults["questions"])
    return [sentence for sentences in defaults["words"].values() for sentence in sentences]
