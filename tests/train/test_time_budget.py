"""The settings of a training fit its length, and a model that learned too little is not called ready."""

import json
import platform
import re
from pathlib import Path

import pytest
import torch

from seq2see.config import Config, DataConfig
from seq2see.data.batches import Batches
from seq2see.train import start as run
from seq2see.train import time_budget
from seq2see.train.display import Display
from seq2see.train.estimates import seconds_per_token
from seq2see.train.parallel import World
from seq2see.train.presets import PRESETS, SMALLER_PRESETS, preset_config
from seq2see.train.time_budget import fit_to_length, setting_keys, shorter_preset
from seq2see.train.validation import Scores, shortcoming
from tests.corpora import SMALL_SETTINGS, load_weights, tensors_equal, write_phrases

CPU, GPU = World(torch.device("cpu")), World(torch.device("cuda"))


@pytest.fixture
def corpus(tmp_path: Path) -> DataConfig:
    return write_phrases(tmp_path)


@pytest.fixture
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """The speed of a CPU: `tiny`, with 2.6 million weights, trains on about 5,000 tokens per second."""

    def seconds_per_token(config: Config, device: torch.device) -> float:
        model = config.model
        layers = 12 * model.width**2 * (model.encoder_layers * model.has_encoder + model.decoder_layers)
        return (config.text.vocab_size * model.width + layers) / 13e9

    monkeypatch.setattr(time_budget, "seconds_per_token", seconds_per_token)


def fit(preset: str, *settings: str, world: World = CPU, corpus_tokens: float = 40_000) -> Config:
    config = preset_config(preset).override(settings)
    return fit_to_length(
        config, preset, setting_keys(settings), world, corpus_tokens, Display(Path("."), is_main=False)
    )


def limits(**values: float) -> list[str]:
    """Returns the settings of --steps, --epochs and --minutes."""
    return [f"train.{name}={values.get(name, 0)}" for name in ("steps", "epochs", "minutes")]


@pytest.mark.usefixtures("two_cores")
def test_short_time_gets_a_smaller_preset() -> None:
    assert shorter_preset("tiny", 2, CPU) == shorter_preset("small", 2, CPU) == "quick"
    assert shorter_preset("small", 60, CPU) == "tiny"
    assert shorter_preset("tiny", 60, CPU) == "tiny"
    assert shorter_preset("small", 10_000, CPU) == "small"
    assert shorter_preset("small-gpt", 2, CPU) == "quick-gpt"
    for name, smaller in SMALLER_PRESETS.items():
        assert PRESETS[name].model.shape == PRESETS[smaller].model.shape


@pytest.mark.usefixtures("two_cores")
@pytest.mark.parametrize("preset", ["quick", "tiny", "small", "paper-base", "baby-gpt", "quick-gpt", "rnn-2015"])
@pytest.mark.parametrize("minutes", [0.5, 2, 20])
def test_short_time_gets_small_batches_and_a_warm_up_in_proportion(preset: str, minutes: float) -> None:
    full, train = preset_config(preset).train, fit(preset, *limits(minutes=minutes)).train
    steps = time_budget.tokens_in(minutes, preset_config(preset), CPU) / train.batch_tokens
    assert train.batch_tokens == full.batch_tokens or steps < 2 * time_budget.MIN_STEPS
    assert train.warmup_steps <= max(1, round(steps * full.warmup_steps / full.steps))
    assert train.lr <= full.lr
    assert steps < 10 or 4 * train.validate_every < steps


@pytest.mark.usefixtures("two_cores")
def test_settings_of_the_user_are_never_changed() -> None:
    given = [*limits(minutes=2), "train.batch_tokens=4096", "train.lr=0.0123", "train.validate_every=333"]
    train = fit("tiny", *given).train
    assert (train.batch_tokens, train.lr, train.validate_every) == (4096, 0.0123, 333)
    assert train.warmup_steps < 100  # follows from 150 steps
    complete = Config().override([*SMALL_SETTINGS, "train.validation_sentences=5"])
    assert (
        fit_to_length(
            complete,
            "tiny",
            setting_keys([*SMALL_SETTINGS, "train.validation_sentences=5"]),
            CPU,
            0,
            Display(Path("."), is_main=False),
        )
        == complete
    )


@pytest.mark.usefixtures("two_cores")
def test_only_short_runs_validate_on_fewer_sentences() -> None:
    whole = preset_config("tiny").train.validation_sentences
    assert fit("tiny", *limits(minutes=9)).train.validation_sentences == 100 < whole
    assert fit("tiny", *limits(minutes=10)).train.validation_sentences == whole
    assert fit("tiny", *limits(steps=400)).train.validation_sentences == whole


@pytest.mark.usefixtures("two_cores")
@pytest.mark.parametrize(("steps", "every", "averaged"), [(3200, 400, 10), (3192, 399, 4)])
def test_fewer_checkpoints_are_averaged_only_if_the_preset_would_validate_too_rarely(
    steps: int, every: int, averaged: int
) -> None:
    train = fit("tiny", *limits(steps=steps)).train
    assert (train.validate_every, train.average_checkpoints) == (every, averaged)


@pytest.mark.usefixtures("two_cores")
def test_given_steps_and_epochs_shorten_the_warm_up_on_every_device() -> None:
    for world in (CPU, GPU):
        train = fit("tiny", *limits(steps=400), world=world).train
        assert (train.batch_tokens, train.warmup_steps) == (8192, 100)
        train = fit("tiny", *limits(epochs=10), world=world, corpus_tokens=40_000).train  # 400,000 tokens
        assert train.batch_tokens == 256 and train.warmup_steps < 400
        assert fit("tiny", *limits(steps=8000), world=world) == preset_config("tiny").override(limits(steps=8000))
    assert fit("tiny", *limits(minutes=2), world=GPU) == preset_config("tiny").override(limits(minutes=2))


@pytest.mark.usefixtures("two_cores")
def test_without_a_limit_a_cpu_trains_for_an_hour_at_most(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    display = Display(tmp_path, is_main=True)
    config = fit_to_length(preset_config("tiny"), "tiny", (), CPU, 0, display)
    assert (config.train.minutes, config.train.steps) == (60, 0)
    assert "8,000 steps of 8,192 target tokens would take about 4.3 hours" in capsys.readouterr().err.replace("\n", " ")
    quick = fit_to_length(preset_config("quick"), "quick", (), CPU, 0, display)
    assert quick == preset_config("quick")
    assert "4,000 steps of 512 target tokens would take about" in capsys.readouterr().err.replace("\n", " ")
    assert fit_to_length(preset_config("tiny"), "tiny", (), GPU, 0, display) == preset_config("tiny")


@pytest.mark.parametrize("preset", ["quick", "quick-gpt", "rnn-2015"])
def test_measured_time_of_a_step_is_positive(preset: str) -> None:
    config = preset_config(preset).override(["model.width=32", "text.vocab_size=300"])
    assert 0 < seconds_per_token(config, CPU.device) < 1


def test_run_limited_by_the_clock_is_repeated_exactly_by_its_configuration(
    corpus: DataConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run.train(corpus, tmp_path / "one", settings=[*limits(minutes=0.05), "model.width=32"])
    stderr = capsys.readouterr().err.replace("\n", " ")
    assert "preset quick, chosen for 340 sentence pairs and 0.05 minutes" in stderr
    assert re.search(r"set for about [\d,]+ steps: 256 target tokens per step, learning rate", stderr)
    config = Config.load(tmp_path / "one" / "config.toml")
    training = json.loads((tmp_path / "one" / "scores.json").read_text())["training"]
    assert config.train.minutes == 0 and training["seconds"] >= 3
    assert training["device"] in (
        platform.processor() or platform.machine(),
        torch.cuda.is_available() and torch.cuda.get_device_name(),
    )
    assert config.train.steps == training["steps"]
    run.train(DataConfig(), tmp_path / "two", config=config)
    assert tensors_equal(load_weights(tmp_path / "one"), load_weights(tmp_path / "two"))


def test_model_that_learned_too_little_is_not_called_ready(
    corpus: DataConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run.train(corpus, tmp_path / "run", settings=[*SMALL_SETTINGS, "train.steps=1"])
    stderr = capsys.readouterr().err
    assert "is ready" not in stderr
    assert "is not usable yet" in stderr
    assert f"seq2see train --resume {tmp_path / 'run'} --minutes 5" in stderr
    run.resume(tmp_path / "run", ["train.steps=400"])
    assert "is ready" in capsys.readouterr().err


class _TwoTokens:
    def iterate(self, epoch: int) -> list[object]:
        return [type("Batch", (), {"targets": torch.tensor([1, 2, 1, 2, -100]).numpy()})()]


def test_usable_scores_depend_on_the_language_and_the_tokens() -> None:
    german, chinese = [("a", "das ist ein Haus")], [("a", "今天天气很好,我们去公园散步吧")]
    batches: Batches = _TwoTokens()  # type: ignore[assignment]
    assert "BLEU above 10 or chrF++ above 30" in shortcoming(Scores(3.0, 2.0, 22.0), german, batches)
    assert not shortcoming(Scores(3.0, 12.0, 22.0), german, batches)
    assert not shortcoming(Scores(3.0, 2.0, 35.0), german, batches)
    assert not shortcoming(Scores(3.0, 0.0, 22.0), chinese, batches)
    assert "its loss is 0.69, where the frequency of each token alone gives 0.69" in shortcoming(
        Scores(0.69), [], batches
    )
    assert not shortcoming(Scores(0.3), [], batches)
