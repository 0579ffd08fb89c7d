"""What earlier versions saved still loads, translates and resumes; keys retired since are accepted, ignored or refused."""

import json
import shutil
import warnings
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from seq2see.api import load
from seq2see.cli import app
from seq2see.config import Config
from seq2see.errors import Notice, UsageError, UserError
from seq2see.storage.bundled import BUNDLED, bundled_names
from seq2see.storage.manifest import verify_files, write_manifest
from seq2see.train import start
from seq2see.train.checkpoint import CheckpointManager, load_at_step, load_checkpoint
from tests.storage.write_earlier import ALL_STEPS, FIRST_STEPS, MODELS, RUN, last_logits

EARLIER = Path(__file__).parent / "earlier"
EXPECTED: dict[str, list[float]] = json.loads((EARLIER / "expected.json").read_text())
CHANGED = {"ema_decay = 0.0 ": "ema_decay = 0.9 ", 'average_selection = "best" ': 'average_selection = "last" '}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the run, among the files that its config.toml names."""
    shutil.copytree(EARLIER, tmp_path / "earlier")
    monkeypatch.chdir(tmp_path / "earlier")
    return Path(RUN)


def change_retired(folder: Path) -> None:
    file = folder / "config.toml"
    text = file.read_text(encoding="utf-8")
    for line, changed in CHANGED.items():
        assert line in text
        text = text.replace(line, changed)
    file.write_text(text, encoding="utf-8")
    write_manifest(folder)


def notices(caught: list[warnings.WarningMessage]) -> list[str]:
    return [str(warning.message) for warning in caught if warning.category is Notice]


@pytest.mark.parametrize("name", MODELS)
def test_models_of_every_kind_load_and_compute_the_same(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = load(EARLIER / name)
    assert last_logits(model) == pytest.approx(EXPECTED[name], abs=1e-4)


@pytest.mark.parametrize("folder", [BUNDLED / name for name in bundled_names()], ids=lambda folder: folder.name)
def test_retired_keys_with_their_defaults_are_accepted_in_silence(folder: Path) -> None:
    text = (folder / "config.toml").read_text(encoding="utf-8")
    assert all(line in text for line in CHANGED)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Config.load(folder / "config.toml") == Config.load(folder / "config.toml", training=True)


def test_a_manifest_without_scores_is_accepted(run: Path) -> None:
    assert not {"scores.json", "chat.toml"} & json.loads((run / "files.json").read_text()).keys()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert load(run).scores and verify_files(run)


def log_rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_run_resumes_and_learns_the_same(run: Path) -> None:
    start.resume(run, settings=[f"train.steps={ALL_STEPS}"], device="cpu")
    resumed, expected = log_rows(run / "log.jsonl"), log_rows(EARLIER / "resumed.jsonl")
    assert [(row["kind"], row["step"]) for row in resumed] == [(row["kind"], row["step"]) for row in expected]
    assert [row["loss"] for row in resumed] == pytest.approx([row["loss"] for row in expected], rel=1e-3)
    assert load(run).translate("one red tea")


def test_a_model_is_used_without_its_retired_options_with_one_notice(run: Path) -> None:
    change_retired(run)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = CliRunner().invoke(app, ["translate", "--model", str(run), "one red tea"])
    assert result.exit_code == 0, result.output
    (notice,) = notices(caught)
    assert "train.ema_decay = 0.9 (retired in November 2026)" in notice
    assert 'train.average_selection = "last"' in notice
    with pytest.warns(Notice) as warned:
        Config.load(run / "config.toml")
    assert warned[0].filename == __file__  # of the caller


def test_training_refuses_retired_options_and_says_since_when(run: Path, tmp_path: Path) -> None:
    change_retired(run)
    message = r"no longer supported: train.ema_decay = 0.9 \(retired in November 2026\), train.average_selection"
    with pytest.raises(UserError, match=message):
        start.resume(run, settings=[f"train.steps={ALL_STEPS}"], device="cpu")
    config = ["train", "--config", str(run / "config.toml"), "--out", str(tmp_path / "new")]
    assert "no longer supported" in str(CliRunner().invoke(app, config).exception)
    with pytest.raises(UsageError, match="no longer supported"):
        Config().override(["train.ema_decay=0.5"])


def test_a_moving_average_in_a_checkpoint_is_what_is_shown_of_it(run: Path) -> None:
    manager = CheckpointManager(run / "checkpoints")
    (newest,) = manager.list_files("step")
    tensors, metadata = load_checkpoint(newest)
    averages = {name.replace("model.", "ema."): tensor + 1 for name, tensor in tensors.items() if "model." in name}
    newest.path.unlink()
    manager.save("step", FIRST_STEPS, tensors | averages, metadata)
    manager.wait()
    shown = load_at_step(run, FIRST_STEPS).network.embedding.weight
    assert shown.equal(tensors["model.embedding.weight"] + 1)
