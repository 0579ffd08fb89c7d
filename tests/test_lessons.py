"""The lessons: what they say is what comes out, and they can be told, drawn and listed."""

import subprocess
import sys
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
from rich.console import Console
from typer.testing import CliRunner

from seq2see.cli.lesson import lesson
from seq2see.course.lessons import LESSONS, leak, order, saturation
from seq2see.course.lessons.render import tell
from seq2see.course.lessons.toy_language import ACTORS, NOTES, language
from seq2see.course.lessons.without_mask import Leak
from seq2see.course.lessons.without_positions import Order
from seq2see.course.lessons.without_scaling import Saturation
from seq2see.errors import UsageError, UserError


@pytest.fixture(scope="module")
def leaked() -> Leak:
    return leak(steps=120)


@pytest.fixture(scope="module")
def ordered() -> Order:
    return order(steps=110)


@pytest.fixture(scope="module")
def saturated() -> Saturation:
    return saturation(steps=30)


def test_every_sentence_of_the_little_language_has_its_mirror_and_the_sets_share_no_story() -> None:
    split = language(seed=3)
    assert split.test[:2] == [NOTES, NOTES.mirror]
    assert all(one.mirror == other for one, other in zip(split.test[::2], split.test[1::2], strict=True))
    assert len(set(split.train)) == len(split.train)

    def story(said: Any) -> tuple[str, ...]:
        return (said.deed, *sorted((said.subject, said.object)))

    assert not {story(said) for said in split.train} & {story(said) for said in split.test}
    for said in split.train:
        assert sorted(said.english.split()) == sorted(said.mirror.english.split())
        assert len(set(said.ways)) == (4 if said.time else 2)
        assert all(f"{ACTORS[said.subject]} ने" in way and f"{ACTORS[said.object]} को" in way for way in said.ways)


def test_without_the_mask_the_loss_is_lower_and_decoding_fails(leaked: Leak) -> None:
    masked, unmasked = leaked.masked, leaked.open
    assert unmasked.curve.train[-1] < 0.6 * masked.curve.train[-1]
    assert 2 * unmasked.curve.test[-1] < leaked.floor < 1.05 * masked.curve.test[-1]  # a guess may be lucky
    assert masked.exact > 0.9
    assert unmasked.exact < 0.2 and leaked.exact_masked_later < 0.2
    assert masked.peek == 0 and unmasked.peek > 0.4


def test_without_the_division_variance_grows_with_the_width_of_a_head(saturated: Saturation) -> None:
    for narrow, wide in zip(saturated.spreads, saturated.spreads[1:], strict=False):
        assert 1.5 < wide.score / narrow.score < 2.5  # twice as wide, about twice the variance
        assert wide.largest > narrow.largest
    for spread in saturated.spreads:
        assert spread.score == pytest.approx(spread.head_width * spread.scaled, rel=1e-4)
        assert spread.score == pytest.approx(spread.head_width * spread.product, rel=0.4)


def test_without_the_division_softmax_saturates_and_learning_is_slower(saturated: Saturation) -> None:
    for divided, plain in zip(saturated.divided.probes, saturated.plain.probes, strict=True):
        assert plain.entropy < 0.5 * divided.entropy
        assert plain.through < 0.2 * divided.through
    assert saturated.divided.probes[0].entropy > 0.7
    assert saturated.plain.curve.test[-1] > 1.3 * saturated.divided.curve.test[-1]


def test_without_positions_a_sentence_and_its_mirror_are_the_same_set_of_vectors(ordered: Order) -> None:
    farthest = {}
    for name, reader in (("none", ordered.none), ("sinusoidal", ordered.positions)):
        one, other = (torch.tensor(vectors) for vectors in reader.vectors)
        between = torch.cdist(one, other, compute_mode="donot_use_mm_for_euclid_dist")
        # Every vector of the one has its like in the other, and the other way round.
        farthest[name] = float(torch.cat([between.amin(0), between.amin(1)]).max())
    assert farthest["none"] < 1e-4
    assert farthest["sinusoidal"] > 0.1
    assert max(ordered.none.apart) < 1e-5 < min(ordered.positions.apart)


def test_without_positions_who_did_it_is_a_coin_toss(ordered: Order) -> None:
    assert ordered.none.told_apart == 0
    assert ordered.none.translations[0] == ordered.none.translations[1]
    assert ordered.none.exact <= 0.5
    assert ordered.none.curve.test[-1] > ordered.floor
    assert ordered.positions.told_apart > 0.9 and ordered.positions.exact > 0.9
    assert ordered.positions.translations == (NOTES.hindi, NOTES.mirror.hindi)
    assert ordered.positions.curve.test[-1] < ordered.floor


def test_a_lesson_is_the_same_again_and_leaves_torch_as_it_was() -> None:
    torch.manual_seed(5)
    state, threads = torch.get_rng_state(), torch.get_num_threads()
    first, second = (order(seed=2, steps=3) for _ in range(2))
    assert first.none == second.none and first.positions == second.positions
    assert torch.equal(state, torch.get_rng_state()) and threads == torch.get_num_threads()


def test_the_trained_lessons_are_told_in_eighty_columns_and_drawn(
    leaked: Leak, ordered: Order, saturated: Saturation, tmp_path: Path
) -> None:
    for name, result in (("leak", leaked), ("order", ordered), ("saturation", saturated)):
        console = Console(file=StringIO(), width=80)
        tell(name, LESSONS[name].story(result), console)
        text = console.file.getvalue()  # type: ignore[attr-defined]
        assert " ".join(text.split()).startswith(f"{name}: {LESSONS[name].claim}")
        assert "The notes" in text and "What to look at" in text
        assert "…" not in text
    pytest.importorskip("matplotlib")
    for name, result in (("leak", leaked), ("order", ordered), ("saturation", saturated)):
        LESSONS[name].draw(result, tmp_path / f"{name}.png")
        assert (tmp_path / f"{name}.png").read_bytes()[:4] == b"\x89PNG"
    with pytest.raises(UserError, match="cannot write"):
        LESSONS["order"].draw(ordered, tmp_path / "nowhere" / "order.png")


def test_without_matplotlib_a_lesson_is_told_and_only_its_picture_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    said = CliRunner().invoke(_app(), ["lookup", "--out", str(tmp_path / "lookup.png")])
    assert "What to look at" in said.output
    assert isinstance(said.exception, UserError) and "matplotlib is missing" in str(said.exception)
    assert not list(tmp_path.iterdir())


def test_lessons_are_listed_in_the_notes_order_without_importing_torch() -> None:
    listed = CliRunner().invoke(_app(), [])
    assert len(LESSONS) == 19 and list(LESSONS)[:4] == ["words", "similarity", "context", "lookup"]
    places = [listed.output.index(f"{name} ") for name in LESSONS]
    assert places == sorted(places)
    code = "import sys, seq2see.cli.lesson, seq2see.course.lessons; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_unknown_lesson_is_answered_with_the_nearest() -> None:
    with pytest.raises(UsageError, match='did you mean "order"'):
        lesson("ordr")
    with pytest.raises(UsageError, match="must not be negative"):
        lesson("order", seed=-1)


def _app() -> typer.Typer:
    app = typer.Typer()
    app.command()(lesson)
    return app
