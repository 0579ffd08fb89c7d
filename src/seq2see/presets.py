"""Models with a name: the paper's two, two small ones of ours, and the shapes of well-known others.

Each preset says why it is as it is. The parameter counts are held to the published or the peer's own figure by a test.
"""

from dataclasses import dataclass, replace

from seq2see.config import ModelConfig
from seq2see.errors import UsageError, nearest


@dataclass(frozen=True)
class Preset:
    reason: str
    model: ModelConfig


_MARIAN = ModelConfig(
    vocabulary=58101, activation="silu", positions="sinusoidal-halves", longest=512, output_bias=True
)  # fmt: skip
_GPT2 = ModelConfig(
    shape="decoder", vocabulary=50257, width=768, heads=12, decoder_layers=12, feed_forward=3072,
    activation="gelu-tanh", norm_first=True, positions="learned", longest=1024, scale_embeddings=False,
    attention_dropout=0.1,
)  # fmt: skip
_BERT = ModelConfig(
    shape="encoder", vocabulary=30522, width=768, heads=12, encoder_layers=12, feed_forward=3072, activation="gelu",
    norm_epsilon=1e-12, positions="learned", longest=512, segments=2, embedding_norm=True, scale_embeddings=False,
    attention_dropout=0.1,
)  # fmt: skip

PRESETS: dict[str, Preset] = {
    "tiny": Preset(
        "For up to some 50,000 sentence pairs: small and strongly regularised wins there (Multi30k: 41 BLEU at this size, "
        "26 at 55 million parameters).",
        ModelConfig(width=128, heads=4, encoder_layers=4, decoder_layers=4, feed_forward=256, dropout=0.3),
    ),
    "small": Preset(
        "For some 50,000 to a million pairs, and for a CPU: wide enough to translate well, small enough to train in an "
        "hour or so.",
        ModelConfig(width=256, heads=4, encoder_layers=3, decoder_layers=3, feed_forward=1024, dropout=0.2),
    ),
    "paper-base": Preset(
        "The base model of Attention Is All You Need, table 3: 65 million parameters with 37,000 shared tokens.",
        ModelConfig(vocabulary=37000),
    ),
    "paper-big": Preset(
        "The big model of the same table: 213 million parameters, dropout 0.3 as for English-German.",
        ModelConfig(vocabulary=37000, width=1024, heads=16, feed_forward=4096, dropout=0.3),
    ),
    "marian": Preset("opus-mt-en-de, the shape of a thousand published Marian translators.", _MARIAN),
    "gpt2": Preset("GPT-2 small: the decoder that everyone measures against.", _GPT2),
    "gpt2-medium": Preset(
        "GPT-2 medium: twice the layers, a third wider.",
        replace(_GPT2, width=1024, heads=16, decoder_layers=24, feed_forward=4096),
    ),
    "bert-base": Preset("BERT-base, uncased, without its pooler: the encoder that reads both ways.", _BERT),
    "minilm-l6": Preset(
        "all-MiniLM-L6-v2, without its pooler: a sixth of BERT, made for sentence vectors.",
        replace(_BERT, width=384, encoder_layers=6, feed_forward=1536),
    ),
    "smollm2-135m": Preset(
        "SmolLM2-135M, a Llama: RMSNorm first, rotary positions, SwiGLU, three heads to a key, no biases.",
        ModelConfig(
            shape="decoder", vocabulary=49152, width=576, heads=9, key_value_heads=3, decoder_layers=30,
            feed_forward=1536, activation="swiglu", norm="rms", norm_first=True, positions="rotary",
            rotary_base=100000.0, longest=8192, scale_embeddings=False, bias="nowhere", dropout=0.0,
        ),
    ),
}  # fmt: skip


def preset(name: str) -> ModelConfig:
    if name not in PRESETS:
        raise UsageError(f'no preset is called "{name}": {nearest(name, PRESETS)}')
    return PRESETS[name].model
