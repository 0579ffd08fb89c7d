"""The files of a Hugging Face directory: JSON objects, and tensors in one or several safetensors files."""

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from torch import Tensor

from seq2see.config import ModelConfig
from seq2see.errors import UserError
from seq2see.tensors.files import require_regular_file
from seq2see.tensors.tensor_file import TensorFile

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
MAX_JSON_BYTES = 1 << 28
_CONVERT = (
    'python -c "from transformers import AutoModel; AutoModel.from_pretrained({0!r}).save_pretrained({0!r})" writes one'
)


def read_config(folder: Path) -> dict[str, Any]:
    try:
        return read_json(folder / "config.json")
    except UserError as error:
        raise UserError(f"{folder} is not a model directory: {error}") from error


def load_json(path: Path) -> Any:
    try:
        if require_regular_file(path).stat().st_size > MAX_JSON_BYTES:
            raise UserError(f"{path} is larger than {MAX_JSON_BYTES:,} bytes")
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"cannot read {path}: {error}") from error


def read_json(path: Path) -> dict[str, Any]:
    """Reads a file that holds one JSON object."""
    table = load_json(path)
    if not isinstance(table, dict):
        raise UserError(f"{path} does not contain a JSON object")
    return table


def read_text(path: Path) -> str:
    try:
        return require_regular_file(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read {path}: {error}") from error


class ShardedWeights(Mapping[str, Tensor]):
    """The tensors of one or several safetensors files, each read when it is needed."""

    def __init__(self, files: Collection[Path]) -> None:
        self._files: dict[str, TensorFile] = {}
        for path in files:
            try:
                file = TensorFile(require_regular_file(path))
            except (OSError, SafetensorError) as error:
                raise UserError(f"cannot read {path}: {error}; is the download complete?") from error
            self._files |= dict.fromkeys(file, file)

    @classmethod
    def open(cls, folder: Path) -> "ShardedWeights":
        """Opens the files that the index names, or else the only one."""
        if (folder / INDEX).exists():
            return cls(_indexed_files(folder))
        if (folder / WEIGHTS).exists():
            return cls([folder / WEIGHTS])
        files = sorted(folder.glob("*.safetensors"))
        if len(files) == 1:
            return cls(files)
        if files:
            raise UserError(
                f"{folder} has {len(files)} .safetensors files, but no {INDEX} that says which belong together"
            )
        if any(folder.glob("*.bin")):
            raise UserError(
                f"{folder} has its weights in .bin files, which can run any code when they are opened, and no .safetensors "
                f"file: {_CONVERT.format(str(folder))}"
            )
        raise UserError(
            f"{folder} has no .safetensors file: save the model with save_pretrained() of a recent version of transformers"
        )

    def __getitem__(self, name: str) -> Tensor:
        file = self._files[name]
        try:
            return file[name]
        except (OSError, SafetensorError, RuntimeError) as error:
            raise UserError(f"cannot read tensor {name} of {file.path}: {' '.join(str(error).split())}") from error

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)


def _indexed_files(folder: Path) -> list[Path]:
    names = read_json(folder / INDEX).get("weight_map")
    if not isinstance(names, dict) or not names:
        raise UserError(f"{folder / INDEX} has no weight_map")
    files = sorted({str(name) for name in names.values()})
    for name in files:
        # A path in an index must not lead out of the directory.
        if Path(name).name != name or not name.endswith(".safetensors"):
            raise UserError(f'{folder / INDEX} names "{name[:80]}", which is not a .safetensors file in this directory')
        if not (folder / name).is_file():
            raise UserError(f"{folder / name} is missing: {INDEX} names it; is the download complete?")
    return [folder / name for name in files]


@dataclass(frozen=True)
class ModelFolder:
    """A directory's small JSON files."""

    path: Path
    config: Mapping[str, Any]
    model: ModelConfig

    def json(self, name: str) -> dict[str, Any]:
        path = self.path / name
        return read_json(path) if path.exists() else {}

    @cached_property
    def tokenizer_config(self) -> dict[str, Any]:
        return self.json("tokenizer_config.json")

    @cached_property
    def generation_config(self) -> dict[str, Any]:
        return self.json("generation_config.json")

    @cached_property
    def generation(self) -> dict[str, Any]:
        """The settings for decoding, which older directories have in config.json."""
        return {**self.config, **self.generation_config}

    @cached_property
    def special_tokens_map(self) -> dict[str, Any]:
        return self.json("special_tokens_map.json")

    def special_token(self, name: str) -> str | None:
        """Returns the text of a special token such as `eos_token`."""
        value = self.tokenizer_config.get(name) or self.special_tokens_map.get(name)
        text = value.get("content") if isinstance(value, dict) else value
        return text if isinstance(text, str) else None

    def ids(self, name: str) -> list[int]:
        """Returns the ids under a key such as `eos_token_id`, of which there may be several."""
        for table in (self.generation_config, self.config):
            value = table.get(name)
            ids = value if isinstance(value, list) else [value]
            found = [id for id in ids if type(id) is int and 0 <= id < self.model.vocab_size]
            if found:
                return found
        return []
