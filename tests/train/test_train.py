"""Training: loss, schedules and the training step are correct, and one command trains and scores a model."""

import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from typer.testing import CliRunner

from seq2see.api import load
from seq2see.cli import app
from seq2see.cli.runs import sparkline
from seq2see.config import Boundaries, Config, DataConfig, TrainConfig
from seq2see.data.batch import IGNORE_INDEX, Batch, TensorBatch
from seq2see.data.corpus import open_documents
from seq2see.data.split import TextSplit
from seq2see.errors import Notice, UsageError, UserError
from seq2see.storage.manifest import verify_files
from seq2see.train import start as run
from seq2see.train.checkpoint import CheckpointManager
from seq2see.train.loss import Losses, cross_entropy, symmetric_kl
from seq2see.train.parallel import World
from seq2see.train.run_lock import RunStatus
from seq2see.train.run_log import RunLog
from seq2see.train.schedule import learning_rate
from seq2see.train.step import seed_step
from seq2see.train.trainer import Trainer
from tests.commands import COLD, Command, run_command
from tests.corpora import SINGLE_THREAD_ENV, SMALL_SETTINGS, load_weights, tensors_equal
from tests.waiting import HANG, wait_until


def test_loss_equals_torch_cross_entropy_with_label_smoothing() -> None:
    torch.manual_seed(0)
    logits = torch.randn(7, 11, dtype=torch.float64, requires_grad=True)
    targets = torch.tensor([3, IGNORE_INDEX, 0, 10, IGNORE_INDEX, 5, 5])
    for smoothing in (0.0, 0.1):
        ours = cross_entropy(logits, targets, smoothing)
        theirs = nn.functional.cross_entropy(
            logits.float(), targets, label_smoothing=smoothing, ignore_index=IGNORE_INDEX, reduction="sum"
        )
        torch.testing.assert_close(ours.objective, theirs)
        (our_gradient,) = torch.autograd.grad(ours.objective, logits)
        (their_gradient,) = torch.autograd.grad(theirs, logits)
        torch.testing.assert_close(our_gradient, their_gradient)
    nll = nn.functional.cross_entropy(logits.float(), targets, ignore_index=IGNORE_INDEX, reduction="sum")
    torch.testing.assert_close(cross_entropy(logits, targets, 0.1).nll, nll.detach())


def test_symmetric_kl_is_zero_for_equal_logits_and_symmetric() -> None:
    torch.manual_seed(0)
    first, second = torch.randn(2, 4, 9).unbind(0)
    targets = torch.tensor([1, 2, IGNORE_INDEX, 3])
    assert float(symmetric_kl(first, first, targets)) == pytest.approx(0, abs=1e-6)
    assert float(symmetric_kl(first, second, targets)) == pytest.approx(float(symmetric_kl(second, first, targets)))
    p, q = first.double().softmax(-1), second.double().softmax(-1)
    expected = ((p * (p / q).log()).sum(-1) + (q * (q / p).log()).sum(-1))[[0, 1, 3]].sum() / 2
    assert float(symmetric_kl(first, second, targets)) == pytest.approx(float(expected), rel=1e-5)


def test_steps_are_seeded_by_splitmix64() -> None:
    for number, first in ((0, 0xE220A8397B1DCDAF), (1, 0x910A2DEC89025CC1)):  # the published first outputs
        seed_step(number)
        assert torch.initial_seed() == first


def test_schedules_follow_their_formulas() -> None:
    paper = TrainConfig(schedule="paper", lr=1.0, warmup_steps=4000)
    assert learning_rate(paper, 512, 4000, 0) == pytest.approx(512**-0.5 * 4000**-0.5)
    assert learning_rate(paper, 512, 16000, 0) == pytest.approx(512**-0.5 * 16000**-0.5)
    assert learning_rate(paper, 512, 40, 0) == pytest.approx(512**-0.5 * 40 * 4000**-1.5)
    for schedule in ("inverse-sqrt", "cosine", "constant-linear", "constant"):
        config = TrainConfig(schedule=schedule, lr=0.5, warmup_steps=100)
        assert learning_rate(config, 64, 50, 0.0) == pytest.approx(0.25)
        assert learning_rate(config, 64, 100, 0.0) == pytest.approx(0.5)
        final = learning_rate(config, 64, 400, 1.0)
        assert final == pytest.approx({"inverse-sqrt": 0.25, "constant": 0.5}.get(schedule, 0.05))


def test_one_command_trains_and_scores_a_model(corpus: DataConfig, tmp_path: Path) -> None:
    out = tmp_path / "run"
    files = ["--src", *corpus.src, "--tgt", *corpus.tgt]  # a validation set is held out automatically
    settings = [argument for setting in SMALL_SETTINGS for argument in ("--set", setting)]
    command = ["train", *files, "--out", str(out), "--steps", "400", *settings]
    done = subprocess.run([*COLD, *command], capture_output=True, text=True, check=False, env=SINGLE_THREAD_ENV)
    assert done.returncode == 0, done.stderr
    assert "preset tiny" in done.stderr
    assert "data:" in done.stderr
    assert "BLEU" in done.stderr
    assert "→" in done.stderr
    for name in ("config.toml", "tokenizer.json", "model.safetensors", "scores.json", "README.md", "log.jsonl"):
        assert (out / name).is_file()
    assert not list(out.rglob("*.part"))
    assert verify_files(out) >= 4
    scores = json.loads((out / "scores.json").read_text())
    assert scores["validation"]["bleu"] > 30  # of 17 phrases
    assert scores["validation"]["signatures"][0].startswith("nrefs:1|case:mixed")
    assert load(out).translate(["one red tea"])[0].strip() == "एक लाल चाय"
    rows = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows if row["kind"] == "step"] == [1, *range(20, 401, 20)]
    losses = [row["loss"] for row in rows if row["kind"] == "step"]
    assert losses[-1] < losses[0] / 2
    assert sorted(path.name for path in (out / "snapshots").iterdir()) == [
        f"step-{2**i:08d}.safetensors" for i in range(9)
    ]
    card = (out / "README.md").read_text()
    for fact in (scores["validation"]["signatures"][0], "train.en", f"{scores['training']['parameters']:,}"):
        assert fact in card
    again = run_command(*command)
    assert again.returncode == 1
    assert "already contains a run" in again.stderr


def test_same_configuration_reproduces_the_model_bit_for_bit(corpus: DataConfig, tmp_path: Path) -> None:
    run.train(
        corpus,
        tmp_path / "one",
        settings=[*SMALL_SETTINGS, "train.steps=30", "train.r_drop=0.5", "text.bpe_dropout=0.1"],
    )
    config = Config.load(tmp_path / "one" / "config.toml")
    run.train(DataConfig(), tmp_path / "two", config=config)
    assert tensors_equal(load_weights(tmp_path / "one"), load_weights(tmp_path / "two"))
    run.train(DataConfig(), tmp_path / "three", config=config, settings=["train.seed=2"])
    assert not tensors_equal(load_weights(tmp_path / "one"), load_weights(tmp_path / "three"))


def test_resume_accepts_training_settings_and_refuses_model_settings(
    corpus: DataConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run.train(corpus, tmp_path / "r", settings=[*SMALL_SETTINGS, "train.steps=20"])
    run.resume(tmp_path / "r", ["train.lr=0.001", "train.steps=40"])
    assert "train.lr changed from 0.01 to 0.001" in capsys.readouterr().err
    rows = [json.loads(line) for line in (tmp_path / "r" / "log.jsonl").read_text().splitlines()]
    last = [row for row in rows if row["kind"] == "step"][-1]
    assert last["step"] == 40
    assert last["lr"] == pytest.approx(0.001 * math.sqrt(10 / 40))
    with pytest.raises(UsageError, match=r"model\.width = 64 conflicts with the run"):
        run.resume(tmp_path / "r", ["model.width=64"])


def test_init_starts_from_the_weights_and_tokenizer_of_another_model(corpus: DataConfig, tmp_path: Path) -> None:
    run.train(corpus, tmp_path / "base", settings=[*SMALL_SETTINGS, "train.steps=60"])
    run.train(corpus, tmp_path / "tuned", init=tmp_path / "base", settings=["train.steps=1", "train.lr=1e-9"])
    assert (tmp_path / "tuned/tokenizer.json").read_text() == (tmp_path / "base/tokenizer.json").read_text()
    base = load(tmp_path / "base").network.state_dict()
    for name, value in load(tmp_path / "tuned").network.state_dict().items():
        torch.testing.assert_close(value, base[name], rtol=0, atol=1e-3)


def test_language_model_learns_a_text_and_is_validated_on_its_end(tmp_path: Path) -> None:
    text = "".join(f"The cat number {i % 7} sat on the mat number {i % 7}.\n\n" for i in range(300))
    (tmp_path / "train.txt").write_text(text)
    data = DataConfig(text=(str(tmp_path / "train.txt"),))
    settings = [
        "model.width=32",
        "model.heads=2",
        "model.decoder_layers=2",
        "model.feed_forward=64",
        "model.max_positions=32",
        "model.dropout=0",
        "model.attention_dropout=0",
        "text.tokenizer=character",
        "text.documents=true",
        "train.batch_tokens=512",
        "train.steps=150",
        "train.lr=0.01",
        "train.warmup_steps=10",
        "train.validate_every=75",
        "train.gradient_accumulation=0",
        "train.tensorboard=true",
    ]
    run.train(data, tmp_path / "lm", settings=settings)
    # Within a document only the number is uncertain: ln 7 nats over about 35 characters.
    assert json.loads((tmp_path / "lm/scores.json").read_text())["validation"]["loss"] < 0.2
    assert Config.load(tmp_path / "lm/config.toml").train.gradient_accumulation == 1  # everything fits in memory
    assert _tensorboard_validation_steps(tmp_path / "lm") == [75, 150]


def _tensorboard_validation_steps(folder: Path) -> list[int]:
    """Returns the steps of the logged validations."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    return [event.step for event in events.Scalars("validation/loss")]


@pytest.mark.parametrize("boundaries", ["blank-line", "file"])
def test_end_of_text_is_held_out_and_nothing_is_lost(boundaries: Boundaries, tmp_path: Path) -> None:
    text = "\n\n".join(f"Document {i} of many." for i in range(200)) + "\n"
    (tmp_path / "text").write_text(text)
    corpus = open_documents(DataConfig(text=(str(tmp_path / "text"),), boundaries=boundaries))
    split = TextSplit(corpus, None)
    train, valid = ("".join(passage for passage, _ in side) for side in (split.train(), split.valid()))
    assert train + valid == "".join(p.text for p in corpus.chunks())
    assert len(valid) == pytest.approx(len(text) / 10, rel=0.1)
    assert list(split.train())[-1][1]  # the training text ends with a document boundary


def test_ctrl_c_saves_a_checkpoint_and_prints_how_to_resume(corpus: DataConfig, tmp_path: Path) -> None:
    out = tmp_path / "run"
    config = Config(data=corpus).override([*SMALL_SETTINGS, "train.steps=100000"])
    (tmp_path / "config.toml").write_text(config.to_toml())
    with open(tmp_path / "stderr", "w") as file:
        process = Command("train", "--config", tmp_path / "config.toml", "--out", out, stderr=file)
    wait_until(lambda: (out / "log.jsonl").exists() or process.poll() is not None)
    process.send_signal(signal.SIGINT)
    assert process.wait() == 1
    stderr = (tmp_path / "stderr").read_text()
    assert f"to continue: seq2see train --resume {out}" in stderr
    assert "Traceback" not in stderr
    assert list((out / "checkpoints").glob("step-*.safetensors"))


@pytest.mark.usefixtures("hangup_signal")
def test_terminal_shows_the_time_left_and_closing_it_saves_the_run(corpus: DataConfig, tmp_path: Path) -> None:
    out = tmp_path / "run"
    config = Config(data=corpus).override([*SMALL_SETTINGS, "train.steps=100000", "train.validate_every=100000"])
    (tmp_path / "config.toml").write_text(config.to_toml())
    controller, terminal = os.openpty()
    streams: dict[str, Any] = {"stdin": terminal, "stdout": terminal, "stderr": terminal, "terminal": True}
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "200"}
    process = Command("train", "--config", tmp_path / "config.toml", "--out", out, **streams, env=environment)
    os.close(terminal)
    shown, deadline = "", time.monotonic() + HANG
    # There is a report every 20 steps, but the line changes every second.
    while not re.search(r"step [\d,]*[1-9] .* tokens/s .* elapsed, \d+:\d+:\d+ left", _without_colours(shown)):
        assert process.poll() is None and time.monotonic() < deadline, shown
        shown = shown[-10_000:] + os.read(controller, 1 << 16).decode(errors="replace")
    os.close(controller)
    process.wait()
    assert CheckpointManager(out / "checkpoints").list_files("step")[0].step == RunStatus.load(out).step > 0


def _without_colours(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text)


def test_runs_shows_the_true_steps_and_minutes_and_survives_damaged_files(
    corpus: DataConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    run.train(corpus, out, settings=[*SMALL_SETTINGS, "train.steps=27"])
    training = json.loads((out / "scores.json").read_text())["training"]
    log = RunLog.load(out)
    assert (log.step, log.finished) == (27, True)
    assert log.seconds == pytest.approx(training["seconds"], abs=0.1)
    (out / "scores.json").unlink()  # as if it had been killed before the end
    assert (RunLog.load(out).step, RunLog.load(out).finished) == (27, False)
    for name in ("scores.json", "log.jsonl", "run.lock"):
        (out / name).write_bytes(b'\xff\x00{"training": []}\n{"kind": "step", "step": 1e999}\n')
    (out / "run.lock").unlink()
    os.mkfifo(out / "run.lock")  # reading it would wait for a writer
    with pytest.warns(Notice, match=r"scores\.json is damaged"):
        assert CliRunner().invoke(app, ["runs", str(out)]).exit_code == 0
    with pytest.warns(Notice, match=r"scores\.json is damaged"):
        assert load(out).translate(["one red tea"])


@pytest.mark.parametrize(("device", "code"), [("tpu", 2), ("cuda:x", 2), ("mps:7", 1), ("cuda:99", 1)])
def test_device_that_does_not_exist_is_a_one_line_error(
    device: str, code: int, corpus: DataConfig, tmp_path: Path
) -> None:
    command = ["train", "--src", *corpus.src, "--tgt", *corpus.tgt, "--out", str(tmp_path / "run"), "--device", device]
    with pytest.raises(UserError, match=f'"{device.partition(":")[0]}') as error:
        CliRunner().invoke(app, command, catch_exceptions=False)
    assert error.value.exit_code == code and "\n" not in str(error.value)
    assert not (tmp_path / "run").exists()


@pytest.fixture
def trainer(corpus: DataConfig, tmp_path: Path) -> Trainer:
    from seq2see.model.transformer import Transformer
    from seq2see.train.prepare_data import prepare_translation, with_vocab_sizes

    config = Config(data=corpus).override(
        [*SMALL_SETTINGS, "model.dropout=0", "train.steps=1000", "train.max_grad_norm=0"]
    )
    data = prepare_translation(config, tmp_path / "tokens", None, 400, static=False)
    config = with_vocab_sizes(config, data.tokenizers)
    torch.manual_seed(0)
    return Trainer(config, Transformer(config.model), data.batches, World(torch.device("cpu")))


def test_nan_loss_skips_the_step_and_stops_the_run_after_five(trainer: Trainer) -> None:
    trainer.step()
    before = {name: p.detach().clone() for name, p in trainer.model.named_parameters()}
    original = trainer.plain_step.loss

    def nan_losses(module: nn.Module, batch: TensorBatch) -> Losses:
        losses = original(module, batch)
        return losses._replace(objective=losses.objective * math.nan)

    trainer.plain_step.loss = nan_losses  # type: ignore[assignment]
    for _ in range(3):
        trainer.step()
    assert all(torch.equal(before[name], p) for name, p in trainer.model.named_parameters())
    trainer.plain_step.loss = original
    trainer.step()
    assert not all(torch.equal(before[name], p) for name, p in trainer.model.named_parameters())
    trainer.report()
    assert trainer.state.skipped_steps == 3
    trainer.plain_step.loss = nan_losses  # type: ignore[assignment]
    for _ in range(5):
        trainer.step()
    with pytest.raises(UserError, match="NaN in 5 consecutive steps, up to step 10: try a lower learning rate"):
        trainer.report()


def gradients(trainer: Trainer, batches: list[Batch]) -> dict[str, Tensor]:
    """Returns the gradients of a step over these micro-batches, without an update."""
    found: dict[str, Tensor] = {}

    def record() -> None:
        found.update({name: p.grad.clone() for name, p in trainer.model.named_parameters() if p.grad is not None})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer.plain_step.optimizer, "step", record)
        trainer.plain_step.run_or_split(batches, number=0, lr=0.0)
    return found


def test_batch_that_does_not_fit_is_split_without_changing_gradients(trainer: Trainer) -> None:
    batch = trainer.batches.batch(0, 0)
    expected = gradients(trainer, [batch])
    original, sizes = trainer.plain_step.loss, []

    def limited_memory(module: nn.Module, batch: TensorBatch) -> Losses:
        sizes.append(len(batch.targets))
        if len(batch.targets) > 100:
            raise torch.OutOfMemoryError("simulated")
        return original(module, batch)

    trainer.plain_step.loss = limited_memory  # type: ignore[assignment]
    actual = gradients(trainer, [batch])
    assert max(sizes) > 200 and sizes[-1] <= 100
    assert actual.keys() == expected.keys()
    for name, value in actual.items():
        torch.testing.assert_close(value, expected[name], rtol=1e-4, atol=1e-6)

    def no_memory(module: nn.Module, batch: TensorBatch) -> Losses:
        raise torch.OutOfMemoryError("simulated")

    trainer.plain_step.loss = no_memory  # type: ignore[assignment]
    with pytest.raises(UserError, match=r"does not fit in memory: reduce it with --set train\.batch_tokens"):
        trainer.step()


def test_accumulated_micro_batches_equal_one_large_batch(trainer: Trainer) -> None:
    first, second = (trainer.batches.batch(0, n) for n in (0, 1))
    actual = gradients(trainer, [first, second])
    losses = [trainer.plain_step.loss(trainer.model, batch.to("cpu")) for batch in (first, second)]
    total = torch.stack([one.objective for one in losses]).sum()
    (total / (first.num_targets + second.num_targets)).backward()
    for name, p in trainer.model.named_parameters():
        torch.testing.assert_close(actual[name], p.grad, rtol=1e-4, atol=1e-6)


def test_sparkline_spans_all_values() -> None:
    assert sparkline([7, 5, 3, 1, 0], width=24) == "█▆▄▂▁"
    assert sparkline([*range(71)], width=8) == "▁▂▃▄▅▆▇█"


def test_missing_limit_missing_data_and_wrong_shape_are_refused(corpus: DataConfig, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no stopping condition"):
        run.train(corpus, tmp_path / "a", settings=[*SMALL_SETTINGS, "train.steps=0"])
    with pytest.raises(UsageError, match='preset "gpt2" is a decoder model, but this data needs an encoder-decoder'):
        run.train(corpus, tmp_path / "b", preset="gpt2")
    with pytest.raises(UsageError, match="missing training data"):
        run.train(DataConfig(), tmp_path / "c")


@pytest.mark.parametrize("option", [["--src", "a.en"], ["--out", "other"], ["--preset", "tiny"], ["--init", "model"]])
def test_resume_refuses_options_that_the_run_has_already(option: list[str], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"its own data and model: omit {option[0]}"):
        CliRunner().invoke(app, ["train", "--resume", str(tmp_path), *option], catch_exceptions=False)


def test_compiled_code_is_kept_in_the_cache_of_the_user(tmp_path: Path) -> None:
    code = (
        "import seq2see.train.step, torch._dynamo, torch._inductor.runtime.cache_dir_utils as c; print(c.cache_dir())"
    )
    env = {name: value for name, value in os.environ.items() if name != "TORCHINDUCTOR_CACHE_DIR"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env | {"XDG_CACHE_HOME": str(tmp_path)}, capture_output=True, check=True
    )
    assert done.stdout.decode().strip() == str(tmp_path / "seq2see" / "compiled")
