"""Hugging Face models: a directory with config.json and safetensors, or a model object.

    model = from_huggingface("opus-mt-en-de/")        # the network alone; seq2see.load() also loads the tokenizer
    model = from_huggingface(hf_model)                # or a model object

transformers itself is not needed. A key of the configuration that is neither used nor known to be harmless is an error, and
so is a tensor left over.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from seq2see.config import ModelConfig
from seq2see.errors import UserError
from seq2see.exchange.families import FAMILIES
from seq2see.exchange.tables import Family, ForeignConfig, ForeignTensors, convert
from seq2see.model.network import Network
from seq2see.model.transformer import Transformer
from seq2see.tensors.files import require_regular_file
from seq2see.tensors.tensor_file import TensorFile

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
MAX_JSON_BYTES = 1 << 28
_CONVERT = (
    'python -c "from transformers import AutoModel; AutoModel.from_pretrained({0!r}).save_pretrained({0!r})" writes one'
)


def from_huggingface(source: nn.Module | Path | str) -> Transformer:
    """Returns the same model as a seq2see `Transformer`, in evaluation mode and in the dtype of its weights."""
    if isinstance(source, nn.Module):
        config: dict[str, Any] = source.config.to_dict()  # type: ignore[operator, union-attr]
        weights: Mapping[str, Tensor] = source.state_dict()
    else:
        config, weights = read_config(Path(source)), ShardedWeights.open(Path(source))
    model = ForeignWeights.open(config, weights)
    network = Transformer.on_meta_device(model.config)
    return network.with_weights(dict(model.tensors(network, None))).eval()


@dataclass(frozen=True)
class ForeignWeights:
    """The configuration of a model, converted, and its tensors, to be converted one at a time."""

    family: Family
    config: ModelConfig
    weights: Mapping[str, Tensor]

    @classmethod
    def open(cls, config: Mapping[str, Any], weights: Mapping[str, Tensor]) -> "ForeignWeights":
        family = find_family(config)
        names = ForeignTensors(weights, family.prefix).names
        return cls(family, family.model_config(ForeignConfig(config), names), weights)

    def tensors(
        self, network: Network, dtype: torch.dtype | None, column_major: Collection[str] = (), device: str = "cpu"
    ) -> Iterator[tuple[str, Tensor]]:
        """Yields the tensors of our model; a tensor of theirs that is left over is an error."""
        tensors = ForeignTensors(self.weights, self.family.prefix)
        yield from convert(network, self.family.tensors(self.config), tensors, dtype, column_major, device)
        tensors.require_all_used(self.family.ignored)


def find_family(config: Mapping[str, Any]) -> Family:
    model_type = str(config.get("model_type"))
    if model_type not in FAMILIES:
        raise UserError(f'model_type = "{model_type}" is not supported; supported: {", ".join(FAMILIES)}')
    return FAMILIES[model_type]


def read_config(folder: Path) -> dict[str, Any]:
    try:
        return read_json(folder / "config.json")
    except UserError as error:
        raise UserError(f"{folder} is not a model directory: {error}") from error


def read_json(path: Path) -> dict[str, Any]:
    """Reads a file that holds one JSON object."""
    try:
        if require_regular_file(path).stat().st_size > MAX_JSON_BYTES:
            raise UserError(f"{path} is larger than {MAX_JSON_BYTES:,} bytes")
        table = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"cannot read {path}: {error}") from error
    if not isinstance(table, dict):
        raise UserError(f"{path} does not contain a JSON object")
    return table


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
