"""Models with a name: the paper's two, two small ones of ours, and the shapes of well-known others.

Each preset says why it is as it is. The parameter counts are held to the published or the peer's own figure by a test.
"""

from dataclasses import dataclass, replace

from seq2see.config import Config, ModelConfig, TextConfig, TrainConfig
from seq2see.errors import UsageError, nearest


@dataclass(frozen=True)
class Preset:
    """A model, why it is as it is, and how one of its kind is best trained."""

    reason: str
    model: ModelConfig
    train: TrainConfig = TrainConfig(schedule="paper", lr=1.0, warmup=4000, tokens=25_000, steps=100_000)
    vocabulary: int = 32000


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
# Recurrent layers want smaller steps than Transformers, and no long warm-up.
_RECURRENT = TrainConfig(tokens=8192, lr=1e-3, warmup=1000, steps=40_000, average=10, patience=10)

PRESETS: dict[str, Preset] = {
    "tiny": Preset(
        "For up to some 50,000 sentence pairs: small and strongly regularised wins there (Multi30k: 41 BLEU at this size, "
        "26 at 55 million parameters).",
        ModelConfig(width=128, heads=4, encoder_layers=4, decoder_layers=4, feed_forward=256, dropout=0.3),
        TrainConfig(tokens=8192, lr=5e-3, warmup=2000, steps=8000, average=10, patience=10, validate_every=400),
        vocabulary=8000,
    ),
    "small": Preset(
        "For some 50,000 to a million pairs, and for a CPU: wide enough to translate well, small enough to train in an "
        "hour or so.",
        ModelConfig(width=256, heads=4, encoder_layers=3, decoder_layers=3, feed_forward=1024, dropout=0.2),
        TrainConfig(tokens=8192, lr=2e-3, warmup=4000, steps=40_000, average=10, patience=10),
        vocabulary=12000,
    ),
    "rnn-2014": Preset(
        "What came before: the encoder-decoder of Sutskever and others, 2014, with as many parameters as `small`. Its "
        "decoder gets one state, however long the sentence.",
        ModelConfig(kind="rnn", width=360, heads=1, encoder_layers=2, decoder_layers=2, dropout=0.2),
        _RECURRENT,
        vocabulary=12000,
    ),
    "rnn-2015": Preset(
        "And with attention, as Bahdanau and others had it in 2015, again as large as `small`: both ways, one layer each, "
        "and a look at all words before each step.",
        ModelConfig(kind="rnn-attention", width=400, heads=1, encoder_layers=1, decoder_layers=1, dropout=0.2),
        _RECURRENT,
        vocabulary=12000,
    ),
    "paper-base": Preset(
        "The base model of Attention Is All You Need, table 3: 65 million parameters with 37,000 shared tokens.",
        ModelConfig(vocabulary=37000),
    ),
    "paper-big": Preset(
        "The big model of the same table: 213 million parameters, dropout 0.3 as for English-German.",
        ModelConfig(vocabulary=37000, width=1024, heads=16, feed_forward=4096, dropout=0.3),
    ),
    "baby-gpt": Preset(
        "A language model for up to some 20 MB of text: nanoGPT's character-level one, which learns Shakespeare in minutes.",
        ModelConfig(
            shape="decoder", width=384, heads=6, decoder_layers=6, feed_forward=1536, activation="gelu", norm_first=True,
            positions="learned", longest=256, scale_embeddings=False, bias="nowhere", dropout=0.2, attention_dropout=0.2,
        ),
        TrainConfig(
            tokens=16384, lr=1e-3, schedule="cosine", warmup=100, beta2=0.99, epsilon=1e-8, weight_decay=0.1, steps=5000,
            label_smoothing=0.0, average=1, metric="loss", validate_every=250,
        ),
        vocabulary=4000,
    ),
    "small-gpt": Preset(
        "A language model for more text than that: eight layers, 512 wide, half a page of context.",
        ModelConfig(
            shape="decoder", heads=8, decoder_layers=8, activation="gelu", norm_first=True, positions="learned", longest=512,
            scale_embeddings=False, bias="nowhere", dropout=0.1,
        ),
        TrainConfig(
            tokens=32768, lr=6e-4, schedule="cosine", warmup=500, beta2=0.95, epsilon=1e-8, weight_decay=0.1, steps=10_000,
            label_smoothing=0.0, average=1, metric="loss", validate_every=500,
        ),
        vocabulary=16000,
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


def by_size(pairs: int = 0, text_bytes: int = 0) -> str:
    """The preset for a corpus of so many sentence pairs, or of so much text: small data want small models."""
    if text_bytes:
        return "baby-gpt" if text_bytes < 20_000_000 else "small-gpt"
    return "tiny" if pairs < 50_000 else "small" if pairs < 1_000_000 else "paper-base"


def configuration(name: str) -> Config:
    """A preset with the training that suits it. Its vocabulary is what a tokenizer will have at most."""
    preset(name)
    chosen = PRESETS[name]
    return Config(model=chosen.model, train=chosen.train, text=TextConfig(vocabulary=chosen.vocabulary))
