"""All options of a model and its training, with their types, defaults and help texts.

A configuration is a frozen dataclass with one section per subject. It is read from TOML, from presets and from settings
given by the user, always through the same checks. Nothing here imports torch.
"""

from typing import Literal

from seq2see.config.file import Config as Config
from seq2see.config.file import differences as differences
from seq2see.config.model import Activation as Activation
from seq2see.config.model import Bias as Bias
from seq2see.config.model import ModelConfig as ModelConfig
from seq2see.config.model import Positions as Positions
from seq2see.config.model import Shape as Shape
from seq2see.config.model import TieEmbeddings as TieEmbeddings
from seq2see.config.toml import build as build
from seq2see.config.toml import option as option
from seq2see.config.training import Boundaries as Boundaries
from seq2see.config.training import DataConfig as DataConfig
from seq2see.config.training import Normalization as Normalization
from seq2see.config.training import TextConfig as TextConfig
from seq2see.config.training import TokenizerKind as TokenizerKind
from seq2see.config.training import TrainConfig as TrainConfig

InferencePrecision = Literal["float32", "bf16", "int8"]
ExportFormat = Literal["huggingface", "ctranslate2", "onnx", "gguf"]
ExportPrecision = Literal["float32", "bf16", "float16", "int8"]
