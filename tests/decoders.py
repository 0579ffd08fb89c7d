"""Small models of several kinds to decode with, and what is asked of them."""

from dataclasses import replace

import torch

from seq2see.config import ModelConfig
from seq2see.decode.session import Vocabulary
from seq2see.model.transformer import Transformer

START, END = 1, 2
WORDS = Vocabulary(START, END)
PAPER = ModelConfig(
    vocabulary=60, width=32, heads=4, encoder_layers=2, decoder_layers=2, feed_forward=48, dropout=0.0, longest=64,
    output_bias=True,
)  # fmt: skip
TRANSLATORS = {
    "paper": PAPER,
    "learned, norm first": replace(PAPER, positions="learned", norm_first=True, activation="gelu"),
    "rotary, two heads a key": replace(PAPER, positions="rotary", key_value_heads=2, norm="rms"),
}
WRITER = replace(PAPER, shape="decoder", positions="learned", longest=24)


def model(config: ModelConfig = PAPER, ends: float = 2.0, seed: int = 0) -> Transformer:
    """Random weights large enough to matter, the end token favoured so that outputs differ in length."""
    torch.manual_seed(seed)
    made = Transformer(config).eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.15)
        if made.unembedding_bias is not None:
            made.unembedding_bias[END] += ends
    return made


def sentences(count: int, seed: int = 0) -> list[list[int]]:
    random = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 15, (count,), generator=random).tolist()
    return [[*torch.randint(3, 60, (n,), generator=random).tolist(), END] for n in lengths]
