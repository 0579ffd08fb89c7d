"""Maps a configuration to its model class."""

from seq2see.config import ModelConfig
from seq2see.model.recurrent import Recurrent
from seq2see.model.transformer import Transformer


def model_class(config: ModelConfig) -> type[Transformer] | type[Recurrent]:
    return Transformer if config.kind == "transformer" else Recurrent
