"""The weights of a run while it trains: its snapshots, and its newest checkpoints."""

from pathlib import Path

from seq2see.errors import UserError
from seq2see.model.registry import model_class
from seq2see.storage.directory import load_files, load_pipeline, snapshots
from seq2see.storage.pipeline import Pipeline
from seq2see.train.checkpoint import CheckpointManager, load_checkpoint


def steps_with_weights(run: Path) -> list[int]:
    """Lists the steps whose weights are on disk."""
    checkpoints = CheckpointManager(run / "checkpoints").list_files("step")
    return sorted({*snapshots(run), *(checkpoint.step for checkpoint in checkpoints)})


def load_at_step(run: Path, step: int) -> Pipeline:
    """Loads the model as it was at one of those steps, on the CPU; of an earlier version, their moving average."""
    if step in snapshots(run):
        return load_pipeline(run, step=step)
    found = [file for file in CheckpointManager(run / "checkpoints").list_files("step") if file.step == step]
    if not found:
        known = ", ".join(f"{one:,}" for one in steps_with_weights(run)) or "none"
        raise UserError(
            f"{run} has no weights of step {step:,}: a run keeps its snapshots and two checkpoints ({known})"
        )
    tensors, _ = load_checkpoint(found[0])
    prefix = "ema." if any(name.startswith("ema.") for name in tensors) else "model."
    weights = {name.removeprefix(prefix): weight for name, weight in tensors.items() if name.startswith(prefix)}
    files = load_files(run)
    network = model_class(files.config.model).from_weights(files.config.model, weights).eval()
    return Pipeline(files.config, network, files.tokenizers, files.scores, files.chat_template, files.known_words)
