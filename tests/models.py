"""Tiny untrained models with tokenizers, for tests that need a model but not its quality."""

from dataclasses import replace
from pathlib import Path

import torch

from seq2see.api import Model
from seq2see.config import Config, ModelConfig, TextConfig
from seq2see.data.tokenizer import Tokenizer
from seq2see.decode.optimize import optimize_for_decoding
from seq2see.model.network import model_class
from seq2see.storage.bundled import BUNDLED, GRAMMAR
from seq2see.storage.directory import save_config, save_tokenizers, save_weights

GRAMMAR_MODEL = BUNDLED / GRAMMAR  # for tests that need quality
TINY = ModelConfig(width=16, heads=2, encoder_layers=1, decoder_layers=2, feed_forward=16, dropout=0.0)


def tiny_model(texts: list[str], model: ModelConfig = TINY, text: TextConfig | None = None) -> Model:
    torch.manual_seed(0)
    text = text or TextConfig()
    tokenizer = Tokenizer.train(texts, text.tokenizer, vocab_size=300, normalize=text.normalize)
    config = Config(model=replace(model, vocab_size=len(tokenizer)), text=text)
    network = optimize_for_decoding(model_class(config.model)(config.model).eval())  # bit-identical to a loaded model
    return Model(config, network, (tokenizer, tokenizer), {})


def save(model: Model, folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    save_config(folder, model.config)
    save_tokenizers(folder, model.tokenizers)
    save_weights(folder / "model.safetensors", model.network.state_dict())
    return folder
