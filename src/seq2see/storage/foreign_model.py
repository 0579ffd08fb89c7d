"""A model of another library, opened as it is: what a reader of another format hands to the core.

Everything except the weights is read when it is opened; the weights are converted one tensor at a time when it is loaded.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from seq2see.config import ModelConfig
from seq2see.config.extensions import extension_names, load_extension
from seq2see.data.tokenizer import Tokenizer
from seq2see.errors import foreign
from seq2see.model.network import Network
from seq2see.storage.chat import ConversationTemplate

if TYPE_CHECKING:
    from seq2see.model.pooling import Pooling

OUR_CONFIG = "config.toml"


class Weights(Protocol):
    """The weights of another library's model."""

    def tensors(
        self, network: Network, dtype: torch.dtype | None, column_major: Collection[str] = (), device: str = "cpu"
    ) -> Iterator[tuple[str, Tensor]]:
        """Yields the tensors of our model."""


@dataclass(frozen=True)
class ForeignModel:
    """A model of another library, opened but not loaded."""

    family: str
    config: ModelConfig
    weights: Weights
    tokenizers: tuple[Tokenizer, Tokenizer]
    chat_template: ConversationTemplate
    facts: Mapping[str, str] = field(default_factory=dict)  # to be shown
    pooling: "Pooling | None" = None  # of an encoder


@dataclass(frozen=True)
class Reader:
    """Reads the models of a format that is not ours; found by name, see `config.extensions`."""

    recognizes: Callable[[Path], bool]
    open: Callable[[Path], ForeignModel]


def find_reader(path: Path) -> Reader | None:
    """Returns the reader of a file or directory of another library's; None for a model directory of ours."""
    if (path / OUR_CONFIG).exists():
        return None
    readers: Iterator[Reader] = (load_extension("readers", name) for name in extension_names("readers"))
    return next((reader for reader in readers if reader.recognizes(path)), None)


def open_foreign(path: Path) -> ForeignModel | None:
    """Opens another library's model, whatever its files contain; None for a model directory of ours."""
    with foreign(f"cannot read {path}"):
        reader = find_reader(path)
        return reader.open(path) if reader else None
