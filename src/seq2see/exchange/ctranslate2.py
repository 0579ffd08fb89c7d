"""Reads Whisper models in CTranslate2's format, in which many are published: config.json, model.bin and tokenizer.json.

model.bin is a list of named tensors; CTranslate2 itself is not needed. Queries, keys and values are fused as in our model.
The sizes of the model follow from the shapes of its tensors, and its special tokens from their names.
"""

import re
import struct
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from torch import Tensor

from seq2see.config import ModelConfig
from seq2see.data.media.sounds import ROWS_PER_SECOND
from seq2see.errors import UserError
from seq2see.exchange.tables import ForeignTensors, Stored, TensorTable, build_config, convert, stored
from seq2see.exchange.tokenizer_files import ModelFolder, read_backend
from seq2see.model.network import Network
from seq2see.tensors.files import require_regular_file

WEIGHTS = "model.bin"
VERSIONS = (4, 5, 6)
# By type id. bfloat16 is unknown to numpy and read as int16.
_DTYPES = (np.float32, np.int8, np.int16, np.int32, np.float16, np.int16)
_BFLOAT16 = 5
MULTILINGUAL_VOCABULARY = 51865  # of Whisper's vocabularies, the English one is smaller and has unused language tokens


@dataclass(frozen=True)
class _Entry:
    shape: tuple[int, ...]
    type_id: int
    offset: int


class CTranslate2File(Mapping[str, Tensor]):
    """The tensors of a model.bin, each read when it is needed; those quantised to integers are returned as float32.

    Single numbers, which are options of the model, are not listed.
    """

    def __init__(self, path: Path) -> None:
        self.path = require_regular_file(path)
        self._entries: dict[str, _Entry] = {}
        try:
            with path.open("rb") as file:
                self._read_header(file)
        except (struct.error, UnicodeDecodeError, IndexError, OSError) as error:
            raise UserError(f"{path} is not a CTranslate2 model, or damaged: is the download complete?") from error

    def _read_header(self, file: IO[bytes]) -> None:
        size = self.path.stat().st_size
        (version,) = _unpack(file, "I")
        if version not in VERSIONS:
            raise UserError(f"{self.path} is version {version} of CTranslate2's format, but only {VERSIONS} are read")
        self.spec = _text(file)
        _, count = _unpack(file, "II")  # the revision of the specification, the number of tensors
        for _ in range(count):
            name, (dimensions,) = _text(file), _unpack(file, "B")
            shape, (type_id, num_bytes) = _unpack(file, f"{dimensions}I"), _unpack(file, "BI")
            entry = _Entry(shape, type_id, file.tell())
            if num_bytes != prod(shape) * np.dtype(_DTYPES[type_id]).itemsize or entry.offset + num_bytes > size:
                raise UserError(f"{self.path} is damaged: tensor {name} has {num_bytes:,} bytes for the shape {shape}")
            self._entries[name] = entry
            file.seek(num_bytes, 1)
        for _ in range(_unpack(file, "I")[0]):
            alias, name = _text(file), _text(file)
            self._entries[alias] = self._entries[name]

    def __getitem__(self, name: str) -> Tensor:
        entry = self._entries[name]
        count = prod(entry.shape)
        array = np.fromfile(self.path, _DTYPES[entry.type_id], count, offset=entry.offset).reshape(entry.shape)
        tensor = torch.from_numpy(array)
        if entry.type_id == _BFLOAT16:
            return tensor.view(torch.bfloat16)
        if scale := self._entries.get(f"{name}_scale"):
            scales = self[f"{name}_scale"].float()
            return tensor.float() / (scales[:, None] if scale.shape else scales)
        return tensor

    def __iter__(self) -> Iterator[str]:
        return (name for name, entry in self._entries.items() if entry.shape and not name.endswith("_scale"))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def shape(self, name: str) -> tuple[int, ...]:
        return self._entries[name].shape


def _unpack(file: IO[bytes], format: str) -> tuple[Any, ...]:
    return struct.unpack(f"<{format}", file.read(struct.calcsize(f"<{format}")))


def _text(file: IO[bytes]) -> str:
    """Reads a string, which ends with a zero byte, with dots between the parts of a name."""
    (length,) = _unpack(file, "H")
    return file.read(length)[:-1].decode().replace("/", ".")


@dataclass(frozen=True)
class WhisperWeights:
    """The weights of a Whisper model."""

    file: CTranslate2File
    config: ModelConfig

    @classmethod
    def open(cls, path: Path) -> "WhisperWeights":
        file = CTranslate2File(path)
        if file.spec != "WhisperSpec":
            raise UserError(f"{path} holds a {file.spec}: of CTranslate2's models, only Whisper is read")
        try:
            return cls(file, _read_config(file))
        except KeyError as error:
            raise UserError(f"{path} has no tensor {error}: is the download complete?") from error

    def tensors(
        self, network: Network, dtype: torch.dtype | None, column_major: Collection[str] = (), device: str = "cpu"
    ) -> Iterator[tuple[str, Tensor]]:
        """Yields the tensors of our model; a tensor of theirs that is left over is an error."""
        tensors = ForeignTensors(self.file, "")
        yield from convert(network, _TENSORS, tensors, dtype, column_major, device)
        tensors.require_all_used(("encoder.position_encodings.encodings",))


def _read_config(file: CTranslate2File) -> ModelConfig:
    """Returns the configuration that the shapes of the tensors tell."""
    vocab_size, width = file.shape("decoder.embeddings.weight")
    positions = file.shape("encoder.position_encodings.encodings")[0]
    layers = {
        f"{stack}_layers": sum(
            re.fullmatch(rf"{stack}\.layer_\d+\.ffn\.linear_0\.weight", name) is not None for name in file
        )
        for stack in ("encoder", "decoder")
    }
    return build_config({
        "source": "sounds", "vocab_size": vocab_size, "width": width, "heads": int(file["encoder.num_heads"]), **layers,
        "feed_forward": file.shape("encoder.layer_0.ffn.linear_0.weight")[0], "activation": "gelu", "norm_first": True,
        "positions": "learned", "encoder_positions": "sinusoidal-whisper", "scale_embeddings": False, "dropout": 0.0,
        "max_positions": file.shape("decoder.position_encodings.encodings")[0], "max_source_positions": positions,
        "window_seconds": positions // ROWS_PER_SECOND, "mel_bands": file.shape("encoder.conv1.weight")[1],
    })  # fmt: skip


def _stack_tensors(stack: str) -> dict[str, Stored]:
    ours, theirs = f"{stack}.blocks.*", f"{stack}.layer_*"
    return {
        f"{ours}.attention.queries_keys_values": stored(f"{theirs}.self_attention.linear_0"),
        f"{ours}.attention.project": stored(f"{theirs}.self_attention.linear_1"),
        f"{ours}.attention_norm.norm": stored(f"{theirs}.self_attention.layer_norm"),
        f"{ours}.feed_forward.up": stored(f"{theirs}.ffn.linear_0"),
        f"{ours}.feed_forward.down": stored(f"{theirs}.ffn.linear_1"),
        f"{ours}.feed_forward_norm.norm": stored(f"{theirs}.ffn.layer_norm"),
        f"{stack}.final_norm": stored(f"{stack}.layer_norm"),
    }


_TENSORS: TensorTable = {
    "embedding.weight": stored("decoder.embeddings.weight|decoder.projection.weight"),
    "source_reader.conv1": stored("encoder.conv1"),
    "source_reader.conv2": stored("encoder.conv2"),
    "decoder.positions.weight": stored("decoder.position_encodings.encodings"),
    **_stack_tensors("encoder"),
    **_stack_tensors("decoder"),
    "decoder.blocks.*.cross.queries": stored("decoder.layer_*.attention.linear_0"),
    "decoder.blocks.*.cross.keys_values": stored("decoder.layer_*.attention.linear_1"),
    "decoder.blocks.*.cross.project": stored("decoder.layer_*.attention.linear_2"),
    "decoder.blocks.*.cross_norm.norm": stored("decoder.layer_*.attention.layer_norm"),
}


def whisper_folder(path: Path, settings: Mapping[str, Any], config: ModelConfig) -> ModelFolder:
    """Returns the directory with what Hugging Face's files of the same model would say about special tokens."""
    file = require_regular_file(path / "tokenizer.json")
    backend = read_backend(file.read_text(encoding="utf-8"), str(file))
    end = backend.token_to_id("<|endoftext|>")
    keys = {
        "model_type": "whisper", "bos_token_id": end, "eos_token_id": end,
        "decoder_start_token_id": backend.token_to_id("<|startoftranscript|>"),
        "no_timestamps_token_id": backend.token_to_id("<|notimestamps|>"),
        "suppress_tokens": settings.get("suppress_ids"), "begin_suppress_tokens": settings.get("suppress_ids_begin"),
    }  # fmt: skip
    if config.vocab_size >= MULTILINGUAL_VOCABULARY:
        keys["lang_to_id"] = {backend.id_to_token(id): id for id in settings.get("lang_ids") or []}
        keys["task_to_id"] = {"transcribe": backend.token_to_id("<|transcribe|>")}
    return ModelFolder(path, keys, config)
