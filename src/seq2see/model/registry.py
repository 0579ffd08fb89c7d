"""Maps a configuration to its model class."""

from seq2see.config import ModelConfig
from seq2see.config.extensions import load_extension
from seq2see.model.network import Network


def model_class(config: ModelConfig) -> type[Network]:
    found: type[Network] = load_extension("models", config.kind)
    return found
