"""Brackets and colons of users' text, in paths, words and names, are printed as they are, never as rich's markup."""

from pathlib import Path

import pytest

from seq2see.config import DataConfig
from seq2see.train import start
from tests.commands import run_command
from tests.corpora import SMALL_SETTINGS

HOSTILE = "o[/]ut[bold] :smile: [/x][link"


@pytest.fixture(scope="module")
def run(corpus: DataConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / HOSTILE
    start.train(corpus, out, settings=[*SMALL_SETTINGS, "train.steps=2", "train.validate_every=1"])
    return out


def test_a_training_ends_and_continues_in_any_directory(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = run / "log.jsonl"
    log.write_text(f"damaged\n{log.read_text()}")
    start.resume(run, ["train.steps=3"])
    printed = capsys.readouterr().err
    assert f"skipping 1 damaged lines of {log}" in printed
    assert f"{run} is not usable yet" in printed and f"seq2see train --resume {run} " in printed


def test_every_command_prints_names_as_they_are(run: Path) -> None:
    folder, file = run.parents[HOSTILE.count("/")], HOSTILE.replace("/", "")
    word = "[/]tea[bold] :smile:"
    (folder / "v.vec").write_text("3 2\n[/]tea 1 0\n[bold] 0 1\n:smile: 1 1\n")
    (folder / file).write_text(f"{word}\n" * 3)
    for arguments, expected in (
        (["runs", HOSTILE], "o[/]ut[bold] :smile:"),
        (["model", HOSTILE], HOSTILE),
        (["explain", "--model", HOSTILE, word], "[/]tea"),
        (["explain", "--model", HOSTILE, word, "--step", "1", "--ablate", "decoder.0.cross:0"], "[/]tea"),
        (["vectors", "similarity", "[/]tea", "[bold]", ":smile:", "--vectors", "v.vec"], "[bold]"),
        (["evaluate", "--hyp", file, "--ref", file], "[link"),
        (["data", "check", "--text", file], "o[]ut[bold] :smile:"),
        (["runs", "no[/]run"], "no[/]run"),
        (["translate", "--model", "no[/]model", "x"], "no[/]model"),
        (["translate", "--[/]", "x"], "[/]"),
    ):
        done = run_command(*arguments, cwd=folder)
        assert "Traceback" not in done.stderr, done.stderr
        printed = "".join((done.stdout + done.stderr).split("\n"))
        assert expected in printed, printed
