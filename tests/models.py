"""Tiny untrained models with tokenizers, for tests of what is done with a model rather than of how good it is."""

from dataclasses import replace
from pathlib import Path

import torch

from seq2see.api import Model
from seq2see.config import Config, ModelConfig, TextConfig
from seq2see.decode.optimize import ready
from seq2see.directory import save_config, save_tokenizers, save_weights
from seq2see.model.registry import kind_of
from seq2see.text.tokenizer import Tokenizer

TINY = ModelConfig(width=16, heads=2, encoder_layers=1, decoder_layers=2, feed_forward=16, dropout=0.0)


def tiny_model(texts: list[str], model: ModelConfig = TINY, text: TextConfig | None = None) -> Model:
    torch.manual_seed(0)
    text = text or TextConfig()
    tokenizer = Tokenizer.train(texts, text.tokenizer, vocabulary=300, normalise=text.normalise)
    config = Config(model=replace(model, vocabulary=len(tokenizer)), text=text)
    network = ready(kind_of(config.model)(config.model).eval())  # as if loaded, to the last bit
    return Model(config, network, (tokenizer, tokenizer), {})


def save(model: Model, folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    save_config(folder, model.config)
    save_tokenizers(folder, model.tokenizers)
    save_weights(folder / "model.safetensors", model.network.state_dict())
    return folder
