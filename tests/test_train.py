"""Training: the loss and the schedule are what they should be, and one command makes a scored model of two files."""

import json
import math
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from seq2see.api import load
from seq2see.config import Boundaries, Config, DataConfig, TrainConfig
from seq2see.errors import UsageError, UserError
from seq2see.text.batches import IGNORED
from seq2see.train import run
from seq2see.train.loop import Trainer
from seq2see.train.loss import divergence, loss
from seq2see.train.parallel import World
from seq2see.train.prepare_data import TextSplit, documents
from seq2see.train.schedule import learning_rate
from tests.corpora import SMALL, THREAD, phrases, same, weights


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> DataConfig:
    return phrases(tmp_path_factory.mktemp("corpus"))


def test_the_loss_is_torchs_smoothed_cross_entropy() -> None:
    torch.manual_seed(0)
    logits = torch.randn(7, 11, dtype=torch.float64, requires_grad=True)
    targets = torch.tensor([3, IGNORED, 0, 10, IGNORED, 5, 5])
    for smoothing in (0.0, 0.1):
        ours = loss(logits, targets, smoothing)
        theirs = nn.functional.cross_entropy(
            logits.float(), targets, label_smoothing=smoothing, ignore_index=IGNORED, reduction="sum"
        )
        torch.testing.assert_close(ours.objective, theirs)
        (mine,) = torch.autograd.grad(ours.objective, logits)
        (other,) = torch.autograd.grad(theirs, logits)
        torch.testing.assert_close(mine, other)
    plain = nn.functional.cross_entropy(logits.float(), targets, ignore_index=IGNORED, reduction="sum")
    torch.testing.assert_close(loss(logits, targets, 0.1).plain, plain.detach())


def test_divergence_is_nothing_between_equals_and_symmetric() -> None:
    torch.manual_seed(0)
    one, other = torch.randn(2, 4, 9).unbind(0)
    targets = torch.tensor([1, 2, IGNORED, 3])
    assert float(divergence(one, one, targets)) == pytest.approx(0, abs=1e-6)
    assert float(divergence(one, other, targets)) == pytest.approx(float(divergence(other, one, targets)))
    p, q = one.double().softmax(-1), other.double().softmax(-1)
    by_hand = ((p * (p / q).log()).sum(-1) + (q * (q / p).log()).sum(-1))[[0, 1, 3]].sum() / 2
    assert float(divergence(one, other, targets)) == pytest.approx(float(by_hand), rel=1e-5)


def test_schedules_rise_and_fall_as_they_should() -> None:
    paper = TrainConfig(schedule="paper", lr=1.0, warmup=4000)
    assert learning_rate(paper, 512, 4000, 0) == pytest.approx(512**-0.5 * 4000**-0.5)
    assert learning_rate(paper, 512, 16000, 0) == pytest.approx(512**-0.5 * 16000**-0.5)
    assert learning_rate(paper, 512, 40, 0) == pytest.approx(512**-0.5 * 40 * 4000**-1.5)
    for schedule in ("inverse-sqrt", "cosine", "constant-linear", "constant"):
        config = TrainConfig(schedule=schedule, lr=0.5, warmup=100)
        assert learning_rate(config, 64, 50, 0.0) == pytest.approx(0.25)
        assert learning_rate(config, 64, 100, 0.0) == pytest.approx(0.5)
        late = learning_rate(config, 64, 400, 1.0)
        assert late == pytest.approx({"inverse-sqrt": 0.25, "constant": 0.5}.get(schedule, 0.05))


def test_one_command_makes_a_scored_model_of_two_files(corpus: DataConfig, tmp_path: Path) -> None:
    out = tmp_path / "run"
    files = ["--src", *corpus.src, "--tgt", *corpus.tgt]  # and a validation set is held out
    settings = [argument for setting in SMALL for argument in ("--set", setting)]
    command = [sys.executable, "-m", "seq2see", "train", *files, "--out", str(out), "--steps", "400", *settings]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=THREAD)
    assert done.returncode == 0, done.stderr
    assert "preset tiny" in done.stderr
    assert "nothing to complain of" in done.stderr or "data:" in done.stderr
    assert "BLEU" in done.stderr
    assert "→" in done.stderr
    for name in ("config.toml", "tokenizer.json", "model.safetensors", "scores.json", "README.md", "log.jsonl"):
        assert (out / name).is_file()
    assert not list(out.rglob("*.part"))
    scores = json.loads((out / "scores.json").read_text())
    assert scores["validation"]["bleu"] > 60
    assert scores["validation"]["signatures"][0].startswith("nrefs:1|case:mixed")
    assert load(out).translate(["one red tea"])[0].strip() == "एक लाल चाय"
    rows = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    losses = [row["loss"] for row in rows if row["kind"] == "step"]
    assert losses[-1] < losses[0] / 2
    assert sorted(path.name for path in (out / "snapshots").iterdir()) == [
        f"step-{2**i:08d}.safetensors" for i in range(9)
    ]
    card = (out / "README.md").read_text()
    for fact in (scores["validation"]["signatures"][0], "train.en", f"{scores['training']['parameters']:,}"):
        assert fact in card
    again = subprocess.run(command, capture_output=True, text=True, check=False, env=THREAD)
    assert again.returncode == 1
    assert "holds a run already" in again.stderr


def test_the_same_configuration_makes_the_same_model_to_the_bit(corpus: DataConfig, tmp_path: Path) -> None:
    run.train(corpus, tmp_path / "one", settings=[*SMALL, "train.steps=30", "train.r_drop=0.5", "text.dropout=0.1"])
    config = Config.load(tmp_path / "one" / "config.toml")
    run.train(DataConfig(), tmp_path / "two", config=config)
    assert same(weights(tmp_path / "one"), weights(tmp_path / "two"))
    run.train(DataConfig(), tmp_path / "three", config=config, settings=["train.seed=2"])
    assert not same(weights(tmp_path / "one"), weights(tmp_path / "three"))


def test_options_change_on_resume_only_where_they_may(
    corpus: DataConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run.train(corpus, tmp_path / "r", settings=[*SMALL, "train.steps=20"])
    run.resume(tmp_path / "r", ["train.lr=0.001", "train.steps=40"])
    assert "train.lr is now 0.001, it was 0.01" in capsys.readouterr().err
    rows = [json.loads(line) for line in (tmp_path / "r" / "log.jsonl").read_text().splitlines()]
    last = [row for row in rows if row["kind"] == "step"][-1]
    assert last["step"] == 40
    assert last["lr"] == pytest.approx(0.001 * math.sqrt(10 / 40))
    with pytest.raises(UsageError, match=r"model\.width = 64 contradicts the run"):
        run.resume(tmp_path / "r", ["model.width=64"])


def test_another_models_weights_and_words_can_be_the_beginning(corpus: DataConfig, tmp_path: Path) -> None:
    run.train(corpus, tmp_path / "base", settings=[*SMALL, "train.steps=60"])
    run.train(corpus, tmp_path / "tuned", init=tmp_path / "base", settings=["train.steps=1", "train.lr=1e-9"])
    assert (tmp_path / "tuned/tokenizer.json").read_text() == (tmp_path / "base/tokenizer.json").read_text()
    near = load(tmp_path / "base").network.state_dict()
    for name, value in load(tmp_path / "tuned").network.state_dict().items():
        torch.testing.assert_close(value, near[name], rtol=0, atol=1e-3)


def test_a_language_model_learns_a_text_and_is_validated_on_its_end(tmp_path: Path) -> None:
    text = "".join(f"The cat number {i % 7} sat on the mat number {i % 7}.\n\n" for i in range(300))
    (tmp_path / "train.txt").write_text(text)
    data = DataConfig(text=(str(tmp_path / "train.txt"),))
    settings = [
        "model.width=32", "model.heads=2", "model.decoder_layers=2", "model.feed_forward=64", "model.longest=32",
        "model.dropout=0", "model.attention_dropout=0", "text.tokenizer=character", "text.documents=true",
        "train.tokens=512", "train.steps=150", "train.lr=0.01", "train.warmup=10", "train.validate_every=75",
        "train.accumulate=0", "train.tensorboard=true",
    ]  # fmt: skip
    run.train(data, tmp_path / "lm", settings=settings)
    # Within a document only the number is uncertain, one of seven: ln 7 of some 35 characters.
    assert json.loads((tmp_path / "lm/scores.json").read_text())["validation"]["loss"] < 0.2
    assert Config.load(tmp_path / "lm/config.toml").train.accumulate == 1  # all fits
    assert _logged_to_tensorboard(tmp_path / "lm") == [75, 150]


def _logged_to_tensorboard(folder: Path) -> list[int]:
    """The steps at which there was a validation."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    return [event.step for event in events.Scalars("validation/loss")]


@pytest.mark.parametrize("boundaries", ["blank-line", "file"])
def test_the_end_of_a_text_is_held_out_and_nothing_is_lost(boundaries: Boundaries, tmp_path: Path) -> None:
    text = "\n\n".join(f"Document {i} of many." for i in range(200)) + "\n"
    (tmp_path / "text").write_text(text)
    whole = documents(DataConfig(text=(str(tmp_path / "text"),), boundaries=boundaries))
    split = TextSplit(whole, None)
    train, valid = ("".join(passage for passage, _ in side) for side in (split.train(), split.valid()))
    assert train + valid == "".join(p.text for p in whole.passages())
    assert len(valid) == pytest.approx(len(text) / 10, rel=0.1)
    assert list(split.train())[-1][1]  # the last document of the training text ends there


def test_ctrl_c_saves_and_says_how_to_go_on(corpus: DataConfig, tmp_path: Path) -> None:
    out = tmp_path / "run"
    config = Config(data=corpus).override([*SMALL, "train.steps=100000"])
    (tmp_path / "config.toml").write_text(config.to_toml())
    command = [sys.executable, "-m", "seq2see", "train", "--config", str(tmp_path / "config.toml"), "--out", str(out)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=THREAD)
    while not (out / "log.jsonl").exists() and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 1
    assert f"go on with: seq2see train --resume {out}" in told
    assert "Traceback" not in told
    assert list((out / "checkpoints").glob("step-*.safetensors"))


@pytest.fixture
def trainer(corpus: DataConfig, tmp_path: Path) -> Trainer:
    from seq2see.model.transformer import Transformer
    from seq2see.train.prepare_data import prepare_translation, with_vocabularies

    config = Config(data=corpus).override([*SMALL, "model.dropout=0", "train.steps=1000"])
    data = prepare_translation(config, tmp_path / "tokens", None, 400, static=False)
    config = with_vocabularies(config, data.tokenizers)
    torch.manual_seed(0)
    return Trainer(config, Transformer(config.model), data.batches, World(torch.device("cpu")))


def test_a_loss_that_is_no_number_is_skipped_and_counted_and_stops_the_run(trainer: Trainer) -> None:
    trainer.step()
    before = {name: p.detach().clone() for name, p in trainer.model.named_parameters()}
    sound = trainer._losses

    def broken(batch: Any) -> Any:
        losses = sound(batch)
        return losses._replace(objective=losses.objective * math.nan)

    trainer._losses = broken
    for _ in range(3):
        trainer.step()
    assert all(torch.equal(before[name], p) for name, p in trainer.model.named_parameters())
    trainer._losses = sound
    trainer.step()
    assert not all(torch.equal(before[name], p) for name, p in trainer.model.named_parameters())
    trainer.report()
    assert trainer.state.skipped == 3
    trainer._losses = broken
    for _ in range(5):
        trainer.step()
    with pytest.raises(UserError, match="no number in 5 steps in a row, up to step 10: try a lower learning rate"):
        trainer.report()


def gradients(trainer: Trainer, batches: list[Any]) -> dict[str, Tensor]:
    trainer.optimizer.zero_grad()
    trainer._backward(batches, torch.tensor(float(sum(batch.count for batch in batches))))
    return {name: p.grad.clone() for name, p in trainer.model.named_parameters() if p.grad is not None}


def test_a_batch_that_does_not_fit_is_cut_and_its_gradients_are_the_same(trainer: Trainer) -> None:
    batch = trainer.batches(0).batch(0, 0)
    expected = gradients(trainer, [batch])
    sound, sizes = trainer._losses, []

    def small_device(batch: Any) -> Any:
        sizes.append(len(batch.targets))
        if len(batch.targets) > 100:
            raise torch.OutOfMemoryError("pretended")
        return sound(batch)

    trainer._losses = small_device
    got = gradients(trainer, [batch])
    assert max(sizes) > 200 and sizes[-1] <= 100
    assert got.keys() == expected.keys()
    for name, value in got.items():
        torch.testing.assert_close(value, expected[name], rtol=1e-4, atol=1e-6)

    def no_device(batch: Any) -> Any:
        raise torch.OutOfMemoryError("pretended")

    trainer._losses = no_device
    with pytest.raises(UserError, match=r"does not fit in memory: take fewer with --set train\.tokens"):
        trainer.step()


def test_accumulating_micro_batches_is_one_step_of_them_all(trainer: Trainer) -> None:
    first, second = (trainer.batches(0).batch(0, n) for n in (0, 1))
    got = gradients(trainer, [first, second])
    trainer.optimizer.zero_grad()
    summed = torch.stack([trainer._losses(b.to("cpu")).objective for b in (first, second)]).sum()
    (summed / (first.count + second.count)).backward()
    for name, p in trainer.model.named_parameters():
        torch.testing.assert_close(got[name], p.grad, rtol=1e-4, atol=1e-6)


def test_the_running_mean_of_the_weights_is_what_is_scored(corpus: DataConfig, tmp_path: Path) -> None:
    with_mean = [*SMALL, "train.steps=20", "train.ema=0.9", "train.average=1"]
    run.train(corpus, tmp_path / "ema", settings=with_mean)
    run.train(corpus, tmp_path / "plain", settings=[*SMALL, "train.steps=20", "train.average=1"])
    assert not same(weights(tmp_path / "ema"), weights(tmp_path / "plain"))


def test_no_limit_and_wrong_shapes_are_refused(corpus: DataConfig, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="say when to stop"):
        run.train(corpus, tmp_path / "a", settings=[*SMALL, "train.steps=0"])
    with pytest.raises(UsageError, match='"gpt2" is a decoder, but these data want an encoder-decoder'):
        run.train(corpus, tmp_path / "b", preset="gpt2")
    with pytest.raises(UsageError, match="name the text to train on"):
        run.train(DataConfig(), tmp_path / "c")
