"""Kills a training again and again, at random moments, and compares its result with that of an uninterrupted one.

    python -m tests.kill_study --trials 200

Three of four kills are SIGKILL, the others SIGTERM, SIGINT or SIGHUP, after which no step may be lost. Whenever a run ends, its
weights, optimizer state, log and snapshots must equal those of the uninterrupted run bit for bit; then a new run begins. Takes
about a second per kill on a quiet machine and ends in one line of JSON.
"""

import argparse
import json
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

from safetensors.torch import load_file
from torch import Tensor

from seq2see.config import Config
from seq2see.train import start as run
from seq2see.train.checkpoint import Checkpoint, CheckpointManager, load_checkpoint
from seq2see.train.run_lock import RunStatus
from tests.commands import Command
from tests.corpora import SMALL_SETTINGS, load_weights, tensors_equal, write_phrases

# Everything random or stateful: dropout, R-Drop, BPE-dropout, checkpoint average.
STATEFUL = [
    *SMALL_SETTINGS,
    "train.r_drop=0.5",
    "train.label_smoothing=0.1",
    "text.bpe_dropout=0.1",
]
KILLED_RUN = [*STATEFUL, "train.steps=150", "train.checkpoint_steps=7", "train.validate_every=50"]
GENTLE = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP]


def checkpoints(out: Path) -> list[Checkpoint]:
    return CheckpointManager(out / "checkpoints").list_files("step")


def newest(out: Path) -> dict[str, Tensor]:
    """Returns the weights, optimizer state and moving average of the newest checkpoint."""
    return load_checkpoint(checkpoints(out)[0])[0]


def rows(out: Path) -> list[dict[str, Any]]:
    """Returns the log without timings."""
    found = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    return [{key: row[key] for key in row if key not in ("seconds", "tokens_per_second")} for row in found]


def is_same_run(out: Path, other: Path) -> bool:
    return (
        tensors_equal(load_weights(out), load_weights(other))
        and tensors_equal(newest(out), newest(other))
        and rows(out) == rows(other)
        and all(
            tensors_equal(load_file(snapshot), load_file(other / "snapshots" / snapshot.name))
            for snapshot in (out / "snapshots").iterdir()
        )
    )


def kill_repeatedly(folder: Path, random: Random, seconds: float, kills: Counter[str], trials: int) -> None:
    """Kills and resumes one run until it ends or `trials` kills are counted in `kills`; then lets it end."""
    config, out, log = folder / "config.toml", folder / "killed", folder / "stderr"
    while True:
        resumable = (out / "config.toml").exists()
        arguments: list[str | Path] = ["--resume", out] if resumable else ["--config", config, "--out", out]
        earlier = RunStatus.load(out).step
        with log.open("a") as stderr:
            process = Command("train", *arguments, stderr=stderr)
        if kills.total() >= trials:
            assert process.wait() == 0, log.read_text()
            return
        time.sleep(random.uniform(0, seconds))
        number = random.choice(GENTLE) if random.random() < 0.25 else signal.SIGKILL
        process.send_signal(number)
        code = process.wait()
        if code == 0:
            return
        kills[signal.Signals(number).name] += 1
        assert code in (-number, 1), log.read_text()
        if code == 1:  # it handled the signal: the last step that it made is saved
            step = RunStatus.load(
                out
            ).step  # of a killed predecessor if the signal came before its checkpoint was loaded
            assert step == earlier or (checkpoints(out)[0].step if checkpoints(out) else 0) == step
        assert "Traceback" not in log.read_text(), log.read_text()


def study(folder: Path, trials: int, seed: int) -> dict[str, Any]:
    config = Config(data=write_phrases(folder)).override(KILLED_RUN)
    (folder / "config.toml").write_text(config.to_toml())
    run.train(config.data, folder / "uninterrupted", config=config)
    training = json.loads((folder / "uninterrupted" / "scores.json").read_text())["training"]
    kills: Counter[str] = Counter()
    runs = different = 0
    start = time.monotonic()
    while kills.total() < trials:
        kill_repeatedly(folder, Random(seed + runs), training["seconds"] / 4 + 1, kills, trials)
        runs += 1
        different += not is_same_run(folder / "killed", folder / "uninterrupted")
        shutil.rmtree(folder / "killed")
        print(f"{kills.total()} kills, {runs} runs, {different} different", file=sys.stderr, flush=True)
    minutes = (time.monotonic() - start) / 60
    return {"kills": kills.total(), **kills, "runs": runs, "different": different, "minutes": round(minutes, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=200, help="number of kills")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = study(Path(folder), options.trials, options.seed)
    print(json.dumps(result))
    sys.exit(result["different"] > 0)


if __name__ == "__main__":
    import torch

    torch.set_num_threads(1)  # as in the killed processes
    main()
