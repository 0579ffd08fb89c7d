"""Which class a configuration asks for."""

from seq2see.config import ModelConfig
from seq2see.model.recurrent import Recurrent
from seq2see.model.transformer import Transformer


def kind_of(config: ModelConfig) -> type[Transformer] | type[Recurrent]:
    return Transformer if config.kind == "transformer" else Recurrent
