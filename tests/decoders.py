"""Small random models and sentences for the tests of decoding."""

from dataclasses import replace

import torch

from seq2see.config import ModelConfig
from seq2see.data.framing import Framing
from seq2see.model.transformer import Transformer

START, END = 1, 2
SPECIAL_TOKENS = Framing(-1, START, END, (START,))
PAPER = ModelConfig(
    vocab_size=60,
    width=32,
    heads=4,
    encoder_layers=2,
    decoder_layers=2,
    feed_forward=48,
    dropout=0.0,
    max_positions=64,
    output_bias=True,
)
TRANSLATORS = {
    "paper": PAPER,
    "learned, norm first": replace(PAPER, positions="learned", norm_first=True, activation="gelu"),
    "rotary, grouped queries": replace(PAPER, positions="rotary", key_value_heads=2, norm="rms"),
}
LANGUAGE_MODEL = replace(PAPER, shape="decoder", positions="learned", max_positions=24)


def random_model(config: ModelConfig = PAPER, end_bias: float = 2.0, seed: int = 0) -> Transformer:
    """Returns a model with random weights; `end_bias` favours <end>, so that outputs differ in length."""
    torch.manual_seed(seed)
    built = Transformer(config).eval()
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.15)
        if built.unembedding_bias is not None:
            built.unembedding_bias[END] += end_bias
    return built


def exact_model(config: ModelConfig = PAPER, end_bias: float = 2.0) -> Transformer:
    """Returns a random model in float64: rounding, which depends on shapes and the processor, is too small to swap tokens."""
    return random_model(config, end_bias).double()


def random_sentences(count: int, seed: int = 0) -> list[list[int]]:
    random = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 15, (count,), generator=random).tolist()
    return [[*torch.randint(3, 60, (n,), generator=random).tolist(), END] for n in lengths]
