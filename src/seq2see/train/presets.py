"""Named model configurations: the paper's two models, small models for small corpora, and well-known published models.

Each preset states its reason. A test compares the parameter counts with the published figures or with those of the
reference implementation.
"""

from dataclasses import dataclass, replace

from seq2see.config import Config, ModelConfig, TextConfig, TrainConfig
from seq2see.errors import UsageError, did_you_mean


@dataclass(frozen=True)
class Preset:
    """A model configuration, the reason for it, and suitable training options."""

    reason: str
    model: ModelConfig
    train: TrainConfig = TrainConfig(schedule="paper", lr=1.0, warmup_steps=4000, batch_tokens=25_000, steps=100_000)
    vocab_size: int = 32000


_MARIAN = ModelConfig(
    vocab_size=58101, activation="silu", positions="sinusoidal-halves", max_positions=512, output_bias=True
)
_GPT2 = ModelConfig(
    shape="decoder", vocab_size=50257, width=768, heads=12, decoder_layers=12, feed_forward=3072,
    activation="gelu-tanh", norm_first=True, positions="learned", max_positions=1024, scale_embeddings=False,
    attention_dropout=0.1,
)  # fmt: skip
_BERT = ModelConfig(
    shape="encoder", vocab_size=30522, width=768, heads=12, encoder_layers=12, feed_forward=3072, activation="gelu",
    norm_epsilon=1e-12, positions="learned", max_positions=512, segments=2, embedding_norm=True, scale_embeddings=False,
    attention_dropout=0.1,
)  # fmt: skip
_TRANSLATION_TRAIN = TrainConfig(batch_tokens=8192, steps=40_000, average_checkpoints=10, patience=10)
# Recurrent layers need a lower learning rate than Transformers, and no long warm-up.
_RECURRENT_TRAIN = replace(_TRANSLATION_TRAIN, lr=1e-3, warmup_steps=1000)

# The language models to train, after nanoGPT's.
_NANO = ModelConfig(
    shape="decoder", activation="gelu", norm_first=True, positions="learned", scale_embeddings=False, bias="nowhere"
)
_NANO_TRAIN = TrainConfig(
    schedule="cosine", warmup_steps=100, beta2=0.99, epsilon=1e-8, weight_decay=0.1, label_smoothing=0.0,
    average_checkpoints=1, metric="loss", validate_every=250,
)  # fmt: skip

_TINY_MEDIA = ModelConfig(
    width=128, heads=4, encoder_layers=4, decoder_layers=2, feed_forward=512, activation="gelu", norm_first=True,
    max_positions=256, dropout=0.1,
)  # fmt: skip
_TINY_PICTURES = replace(_TINY_MEDIA, source="pictures", encoder_positions="grid", picture_height=32, patch_size=8)
_TINY_MEDIA_TRAIN = TrainConfig(
    batch_tokens=512, lr=1e-3, schedule="cosine", warmup_steps=400, steps=6000, average_checkpoints=5, patience=10,
    validate_every=300, metric="cer",
)  # fmt: skip

PRESETS: dict[str, Preset] = {
    "tiny": Preset(
        "For up to about 50,000 sentence pairs, where small and strongly regularised models win (Multi30k: 41 BLEU at this "
        "size, 26 at 55 million parameters).",
        ModelConfig(width=128, heads=4, encoder_layers=4, decoder_layers=4, feed_forward=256, dropout=0.3),
        replace(_TRANSLATION_TRAIN, lr=5e-3, warmup_steps=2000, steps=8000, validate_every=400),
        vocab_size=8000,
    ),
    "quick": Preset(
        "For a few minutes on a CPU: two pre-norm layers and a small vocabulary learn the most from a few thousand small "
        "steps.",
        ModelConfig(
            width=128, heads=4, encoder_layers=2, decoder_layers=2, feed_forward=256, norm_first=True, dropout=0.1
        ),
        TrainConfig(batch_tokens=512, lr=3e-3, warmup_steps=400, steps=4000, average_checkpoints=5, patience=10),
        vocab_size=2000,
    ),
    "small": Preset(
        "For about 50,000 to a million pairs: wide enough to translate well, small enough to train on a CPU.",
        ModelConfig(width=256, heads=4, encoder_layers=3, decoder_layers=3, feed_forward=1024, dropout=0.2),
        replace(_TRANSLATION_TRAIN, lr=2e-3, warmup_steps=4000),
        vocab_size=12000,
    ),
    "rnn-2014": Preset(
        "The recurrent encoder-decoder of Sutskever et al. (2014), with as many parameters as `small`. The decoder receives "
        "one fixed-size state, whatever the sentence length.",
        ModelConfig(kind="rnn", width=360, heads=1, encoder_layers=2, decoder_layers=2, dropout=0.2),
        _RECURRENT_TRAIN,
        vocab_size=12000,
    ),
    "rnn-2015": Preset(
        "The recurrent model with attention of Bahdanau et al. (2015), also as large as `small`: a bidirectional encoder, "
        "one layer each, and attention to all source tokens at each step.",
        ModelConfig(kind="rnn-attention", width=400, heads=1, encoder_layers=1, decoder_layers=1, dropout=0.2),
        _RECURRENT_TRAIN,
        vocab_size=12000,
    ),
    "paper-base": Preset(
        "The base model of Attention Is All You Need, table 3: 63 million parameters with a shared vocabulary of 37,000.",
        ModelConfig(vocab_size=37000),
    ),
    "paper-big": Preset(
        "The big model of the same table: 214 million parameters, dropout 0.3 as for English-German.",
        ModelConfig(vocab_size=37000, width=1024, heads=16, feed_forward=4096, dropout=0.3),
    ),
    "baby-gpt": Preset(
        "A language model for up to about 20 MB of text: the size of nanoGPT's Shakespeare model, learned in minutes.",
        replace(
            _NANO, width=384, heads=6, decoder_layers=6, feed_forward=1536, max_positions=256, dropout=0.2,
            attention_dropout=0.2,
        ),
        replace(_NANO_TRAIN, batch_tokens=16384, lr=1e-3, steps=5000),
        vocab_size=4000,
    ),
    "quick-gpt": Preset(
        "A language model for a few minutes on a CPU: nanoGPT's settings for laptops, four layers of width 128.",
        replace(_NANO, width=128, heads=4, decoder_layers=4, feed_forward=512, max_positions=128, dropout=0.0),
        replace(_NANO_TRAIN, batch_tokens=1024, lr=2e-3, steps=2000),
        vocab_size=1000,
    ),
    "small-gpt": Preset(
        "A language model for more than 20 MB of text: eight layers, width 512, half a page of context.",
        replace(_NANO, heads=8, decoder_layers=8, max_positions=512, dropout=0.1),
        replace(
            _NANO_TRAIN, batch_tokens=32768, lr=6e-4, warmup_steps=500, beta2=0.95, steps=10_000, validate_every=500
        ),
        vocab_size=16000,
    ),
    "tiny-vision": Preset(
        "For pictures of text and other small pictures, in minutes on a CPU: patches of 8 × 8 grey pixels at height 32.",
        replace(_TINY_PICTURES, max_source_positions=1024),
        replace(_TINY_MEDIA_TRAIN, shift_pixels=2),
        vocab_size=2000,
    ),
    "tiny-vit": Preset(
        "For pictures of one thing each, in minutes on a CPU: an encoder alone, which names the picture by one word, as a "
        "Vision Transformer does.",
        replace(_TINY_PICTURES, shape="encoder", classifier=True, max_positions=1024),
        replace(_TINY_MEDIA_TRAIN, shift_pixels=2, batch_tokens=128),
        vocab_size=2000,
    ),
    "tiny-speech": Preset(
        "For short recordings of few words, in minutes on a CPU: Whisper's spectrogram and convolutions before a small "
        "encoder.",
        replace(_TINY_MEDIA, source="sounds", max_source_positions=1500),
        replace(_TINY_MEDIA_TRAIN, mask_bands=15, mask_frames=20),
        vocab_size=2000,
    ),
    "whisper-base": Preset(
        "Whisper base (OpenAI, 2022): speech in windows of 30 seconds, 74 million parameters.",
        ModelConfig(
            source="sounds", window_seconds=30, vocab_size=51865, width=512, heads=8, encoder_layers=6, decoder_layers=6,
            feed_forward=2048, activation="gelu", norm_first=True, positions="learned", max_positions=448,
            encoder_positions="sinusoidal-whisper", max_source_positions=1500, scale_embeddings=False, dropout=0.0,
        ),
        vocab_size=50000,
    ),
    "marian": Preset("opus-mt-en-de, the configuration of over a thousand published Marian models.", _MARIAN),
    "gpt2": Preset("GPT-2 small, the standard baseline for decoder-only models.", _GPT2),
    "gpt2-medium": Preset(
        "GPT-2 medium: twice as many layers, a third wider.",
        replace(_GPT2, width=1024, heads=16, decoder_layers=24, feed_forward=4096),
    ),
    "bert-base": Preset("BERT-base, uncased, without its pooler: a bidirectional encoder.", _BERT),
    "minilm-l6": Preset(
        "all-MiniLM-L6-v2, without its pooler: a sixth of BERT, for sentence embeddings.",
        replace(_BERT, width=384, encoder_layers=6, feed_forward=1536),
    ),
    "smollm2-135m": Preset(
        "SmolLM2-135M, a Llama: pre-norm RMSNorm, rotary positions, SwiGLU, three query heads per key head, no biases.",
        ModelConfig(
            shape="decoder", vocab_size=49152, width=576, heads=9, key_value_heads=3, decoder_layers=30,
            feed_forward=1536, activation="swiglu", norm="rms", norm_first=True, positions="rotary",
            rotary_base=100000.0, max_positions=8192, scale_embeddings=False, bias="nowhere", dropout=0.0,
        ),
    ),
}  # fmt: skip


# What to train instead if there is too little time.
SMALLER_PRESETS = {
    "paper-base": "small", "small": "tiny", "tiny": "quick", "small-gpt": "baby-gpt", "baby-gpt": "quick-gpt",
}  # fmt: skip


def preset(name: str) -> ModelConfig:
    if name not in PRESETS:
        raise UsageError(f'unknown preset "{name}": {did_you_mean(name, PRESETS)}')
    return PRESETS[name].model


def preset_for_size(pairs: int = 0, text_bytes: int = 0) -> str:
    """Returns the preset for a corpus of this many sentence pairs or bytes of text: small corpora need small models."""
    if text_bytes:
        return "baby-gpt" if text_bytes < 20_000_000 else "small-gpt"
    return "tiny" if pairs < 50_000 else "small" if pairs < 1_000_000 else "paper-base"


def preset_for_media(kind: str) -> str:
    return "tiny-vision" if kind == "pictures" else "tiny-speech"


def preset_config(name: str) -> Config:
    """Returns a preset with its training options. Its vocab_size is the maximum size of the tokenizer."""
    model, chosen = preset(name), PRESETS[name]
    return Config(model=model, train=chosen.train, text=TextConfig(vocab_size=chosen.vocab_size))
