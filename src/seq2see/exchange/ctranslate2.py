"""Reads Whisper models in CTranslate2's format, in which many are published: config.json, model.bin and tokenizer.json.

model.bin is a list of named tensors; CTranslate2 itself is not needed. Queries, keys and values are fused as in our model.
The sizes of the model follow from the shapes of its tensors, and its special tokens from their names.
"""

import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from torch import Tensor

from seq2see.config import ModelConfig
from seq2see.errors import UserError
from seq2see.exchange.families import WHISPER
from seq2see.exchange.files import ModelFolder, read_config, read_text
from seq2see.exchange.tables import ForeignConfig, ForeignWeights, Keys, tensor_table
from seq2see.exchange.tokenizer_files import load_foreign_tokenizers, read_backend
from seq2see.storage.chat import ChatTemplate
from seq2see.storage.foreign_model import ForeignModel, Reader
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


# Of every model of CTranslate2's, without the norms of self-attention and feed-forward, whose names depend on their kind.
STACKS = tensor_table("""
    <stack>.final_norm                               <stack>.layer_norm
    <stack>.blocks.*.attention.queries_keys_values   <stack>.layer_*.self_attention.linear_0
    <stack>.blocks.*.attention.project               <stack>.layer_*.self_attention.linear_1
    <stack>.blocks.*.cross.queries                   <stack>.layer_*.attention.linear_0
    <stack>.blocks.*.cross.keys_values               <stack>.layer_*.attention.linear_1
    <stack>.blocks.*.cross.project                   <stack>.layer_*.attention.linear_2
    <stack>.blocks.*.cross_norm.norm                 <stack>.layer_*.attention.layer_norm
    <stack>.blocks.*.feed_forward.down               <stack>.layer_*.ffn.linear_1
    decoder.positions.weight                         decoder.position_encodings.encodings
""")
FEED_FORWARD = "<stack>.blocks.*.feed_forward.up <stack>.layer_*.ffn.linear_0"
NORMS = """
    <stack>.blocks.*.attention_norm.norm             <stack>.layer_*.self_attention.layer_norm
    <stack>.blocks.*.feed_forward_norm.norm          <stack>.layer_*.ffn.layer_norm
"""
_WHISPER = f"""
    embedding                                        decoder.embeddings|decoder.projection
    source_reader.conv1                              encoder.conv1
    source_reader.conv2                              encoder.conv2
    {FEED_FORWARD}
    {NORMS}
"""
FAMILY = replace(
    WHISPER, prefix="", tensors={**STACKS, **tensor_table(_WHISPER)}, ignored=("encoder.position_encodings.encodings",)
)


def open_whisper(path: Path) -> ForeignModel:
    """Reads everything except the weights."""
    file = CTranslate2File(path / WEIGHTS)
    if file.spec != "WhisperSpec":
        raise UserError(f"{file.path} holds a {file.spec}: of CTranslate2's models, only Whisper is read")
    try:
        weights = ForeignWeights.open(FAMILY, ForeignConfig(_sizes(file)), file)
    except KeyError as error:
        raise UserError(f"{file.path} has no tensor {error}: is the download complete?") from error
    tokenizers = load_foreign_tokenizers(_folder(path, weights.config))
    facts = {"architecture": "WhisperSpec of CTranslate2"}
    return ForeignModel(FAMILY.name, weights.config, weights, tokenizers, ChatTemplate(), facts)


def _recognizes(path: Path) -> bool:
    return (path / WEIGHTS).exists() and (path / "config.json").exists() and "model_type" not in read_config(path)


READER = Reader(_recognizes, open_whisper)


def _sizes(file: CTranslate2File) -> Keys:
    """Returns what Hugging Face's config.json of the same model would say, told by the shapes of the tensors."""
    vocab_size, width = file.shape("decoder.embeddings.weight")
    keys: Keys = {
        "vocab_size": vocab_size,
        "d_model": width,
        "num_mel_bins": file.shape("encoder.conv1.weight")[1],
        "max_target_positions": file.shape("decoder.position_encodings.encodings")[0],
        "max_source_positions": file.shape("encoder.position_encodings.encodings")[0],
    }
    for stack in ("encoder", "decoder"):
        layers = [name for name in file if re.fullmatch(rf"{stack}\.layer_\d+\.ffn\.linear_0\.weight", name)]
        keys[f"{stack}_layers"] = len(layers)
        keys[f"{stack}_ffn_dim"] = file.shape(layers[0])[0] if layers else 0
        keys[f"{stack}_attention_heads"] = int(file[f"{stack}.num_heads"])
    return keys


def _folder(path: Path, config: ModelConfig) -> ModelFolder:
    """Returns the directory with what Hugging Face's files of the same model would say about special tokens."""
    settings, file = read_config(path), path / "tokenizer.json"
    backend = read_backend(read_text(file), str(file))
    end = backend.token_to_id("<|endoftext|>")
    keys: Keys = {
        "model_type": "whisper",
        "bos_token_id": end,
        "eos_token_id": end,
        "decoder_start_token_id": backend.token_to_id("<|startoftranscript|>"),
        "no_timestamps_token_id": backend.token_to_id("<|notimestamps|>"),
        "suppress_tokens": settings.get("suppress_ids"),
        "begin_suppress_tokens": settings.get("suppress_ids_begin"),
    }
    if config.vocab_size >= MULTILINGUAL_VOCABULARY:
        keys["lang_to_id"] = {backend.id_to_token(id): id for id in settings.get("lang_ids") or []}
        keys["task_to_id"] = {"transcribe": backend.token_to_id("<|transcribe|>")}
    return ModelFolder(path, keys, config)
