"""The progress of a training: every part of the preparation and every step tells how far it is and what time is left."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from seq2see.config import DataConfig
from seq2see.train import start as run
from seq2see.train.display import PRINT_INTERVAL, REFRESH_INTERVAL, Display
from seq2see.train.trainer import StepReport
from seq2see.train.validation import Scores
from tests.corpora import SMALL_SETTINGS, write_phrases


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Replaces the clock of the display; the result advances it."""
    now = 1000.0

    def advance(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr("seq2see.train.display.time.monotonic", lambda: now)
    return advance


def test_piped_output_has_a_line_with_the_time_left_every_20_seconds(
    clock: Callable[[float], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    display = Display(tmp_path, is_main=True)
    advance = display.task("reading", 400)
    for _ in range(8):
        clock(PRINT_INTERVAL / 2)
        advance(40)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "reading  20% done, 1:20 left",
        "reading  40% done, 1:00 left",
        "reading  60% done, 0:40 left",
        "reading  80% done, 0:20 left",
    ]
    clock(PRINT_INTERVAL)
    display.progress(step=30, share=0.25, seconds=45.0)
    assert capsys.readouterr().err.splitlines() == ["step 30  25% done, 2:15 left"]


def test_metrics_of_an_earlier_step_say_so(
    clock: Callable[[float], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    display = Display(tmp_path, is_main=True)
    display.step(StepReport(20, 0.5, 2.5, 1e-3, 1.0, 5000.0, None, 0.5), 4.0)
    for step in (20, 23):
        clock(PRINT_INTERVAL)
        display.progress(step, share=0.5, seconds=4.0)
    metrics = "  epoch 0.5  loss 2.500  lr 1.0e-03  5,000 tokens/s"
    assert capsys.readouterr().err.splitlines() == [
        f"step 20{metrics}  50% done, 0:04 left",
        f"step 23  (step 20:{metrics})  50% done, 0:04 left",
    ]


def test_a_validation_shows_the_translations_in_lines_one_below_the_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scores = Scores(2.0, 10.0, 20.0, translations=("un", "deux"), references=(("un", "deux"),))
    Display(tmp_path, is_main=True).validation(20, scores, best=True, pairs=[("one", "un"), ("two", "deux")])
    lines = [line.rstrip() for line in capsys.readouterr().err.splitlines()[1:]]
    assert lines == ["    one → un   (un)", "    two → deux (deux)"]


def test_terminal_is_refreshed_every_second(
    clock: Callable[[float], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:  # rich, too, replaces the terminal after the start
        patched.setattr(sys.stderr, "isatty", lambda: True)
        display = Display(tmp_path, is_main=True)
    (bar,) = display.bar.tasks
    shown = []
    for step in range(1, 13):
        clock(REFRESH_INTERVAL / 4)
        display.progress(step, share=step / 100, seconds=0.25 * step)
        shown.append(bar.description)
    assert shown == [f"step {step}" for step in (1, 1, 1, 1, 5, 5, 5, 5, 9, 9, 9, 9)]


def test_every_part_of_the_preparation_shows_its_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks: list[tuple[str, int | None]] = []
    done: list[int] = []

    def task(self: Display, name: str, total: int | None = None) -> Callable[[int], None]:
        tasks.append((name, total))
        done.append(0)
        number = len(done) - 1

        def advance(count: int) -> None:
            done[number] += count

        return advance

    monkeypatch.setattr(Display, "task", task)
    pairs = write_phrases(tmp_path)
    text = tmp_path / "text.txt"
    text.write_text("नमस्ते दुनिया, चाय पीजिए।\n\n" * 400, encoding="utf-8")
    parts = ["reading", "training the tokenizer", "tokenizing", "collecting the known words"]
    language_model = DataConfig(text=(str(text),), valid_text=(str(text),))
    for name, data, expected in (("pairs", pairs, ["reading", *parts]), ("text", language_model, parts[1:])):
        tasks.clear()
        done.clear()
        settings = [*SMALL_SETTINGS, "model.max_positions=32", "model.encoder_layers=1", "train.steps=1"]
        run.train(data, tmp_path / name, settings=settings)
        assert [task for task, _ in tasks if task != "reading examples"] == expected
        assert done == [total for _, total in tasks]
