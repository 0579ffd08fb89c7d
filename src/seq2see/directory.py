"""A model is a directory: configuration, tokenizers, weights, scores and a model card.

    config.toml   tokenizer.json   (source.json, if the source has its own vocabulary)   model.safetensors
    scores.json   README.md   snapshots/   (chat.toml, the chat template of a language model, if it has one)

There is no pickle in it. All writes are atomic.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from seq2see.config import Config
from seq2see.decode.chat import ChatTemplate
from seq2see.decode.int8 import quantize_int8
from seq2see.decode.optimize import optimize_for_decoding
from seq2see.errors import UserError
from seq2see.files import atomic_write
from seq2see.model.network import Network
from seq2see.model.registry import model_class
from seq2see.pipeline import Pipeline
from seq2see.precision import bf16_supported
from seq2see.quantize import dequantize
from seq2see.text.tokenizer import Tokenizer

Precision = Literal["float32", "bf16", "int8"]
BUNDLED = Path(__file__).parent / "bundled"


def load_pipeline(
    path: Path | str | None = None, device: str = "cpu", *, step: int | None = None, precision: Precision = "float32"
) -> Pipeline:
    """Loads the model in a directory, or the bundled one; with `step`, the snapshot taken at that training step.

    The network is optimised for decoding in the given precision; int8 is for decoding on a CPU.
    """
    folder = BUNDLED if path is None else Path(path)
    if not (folder / "config.toml").is_file():
        raise UserError(f"{folder} is not a model directory: it has no config.toml")
    config = Config.load(folder / "config.toml")
    tokenizers = load_tokenizers(folder)
    file = folder / "model.safetensors" if step is None else _existing_snapshot(folder, step)
    try:
        network = model_class(config.model).from_weights(config.model, dequantize(load_file(file, device=device)))
    except (OSError, SafetensorError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"cannot read {file}: {reason}; has training finished?") from error
    scores = folder / "scores.json"
    return Pipeline(
        config, _prepare_for_decoding(network.eval(), precision), tokenizers,
        json.loads(scores.read_text()) if scores.is_file() else {}, ChatTemplate.load(folder / "chat.toml"),
    )  # fmt: skip


def _prepare_for_decoding(network: Network, precision: Precision) -> Network:
    if precision == "int8":
        return quantize_int8(network)
    if precision == "float32":
        return optimize_for_decoding(network)
    if not network.embedding.weight.is_cuda and not bf16_supported():
        raise UserError(
            'this CPU does not support bf16: use precision "int8", which is faster; if the CPU reports AMX but fails to run '
            "it, set ONEDNN_MAX_CPU_ISA=AVX512_CORE_FP16 in the environment"
        )
    return optimize_for_decoding(network.to(torch.bfloat16))


def snapshots(path: Path | str | None = None) -> list[int]:
    """Lists the training steps at which weights were saved."""
    folder = BUNDLED if path is None else Path(path)
    return sorted(int(file.stem.removeprefix("step-")) for file in folder.glob("snapshots/step-*.safetensors"))


def snapshot_file(folder: Path, step: int) -> Path:
    return folder / "snapshots" / f"step-{step:08d}.safetensors"


def _existing_snapshot(folder: Path, step: int) -> Path:
    known = snapshots(folder)
    if step not in known:
        raise UserError(
            f"{folder} has no snapshot of step {step:,}; available steps: {', '.join(map(str, known)) or 'none'}"
        )
    return snapshot_file(folder, step)


def save_weights(path: Path, weights: Mapping[str, Tensor], dtype: torch.dtype | None = torch.float32) -> None:
    """Saves weights in the given dtype, or each in its own if dtype is None."""
    with atomic_write(path) as part:
        # Not save_file: on a full disk it raises its own error instead of the system's OSError.
        part.write_bytes(save({name: w.detach().to("cpu", dtype).contiguous() for name, w in weights.items()}))


def save_tokenizers(folder: Path, tokenizers: tuple[Tokenizer, Tokenizer]) -> None:
    source, target = tokenizers
    target.save(folder / "tokenizer.json")
    if source is not target:
        source.save(folder / "source.json")


def load_tokenizers(folder: Path) -> tuple[Tokenizer, Tokenizer]:
    target = Tokenizer.load(folder / "tokenizer.json")
    own = folder / "source.json"
    return (Tokenizer.load(own) if own.is_file() else target), target


def save_config(folder: Path, config: Config) -> None:
    with atomic_write(folder / "config.toml") as part:
        part.write_text(config.to_toml(), encoding="utf-8")
