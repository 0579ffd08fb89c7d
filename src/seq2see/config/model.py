"""The options of a model. By default it is the Transformer of the paper."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Literal

from seq2see.config.extensions import extension_names, has_extension
from seq2see.config.toml import check_limits, option
from seq2see.errors import UserError, did_you_mean

Shape = Literal["encoder-decoder", "decoder", "encoder"]
Source = Literal["tokens", "pictures", "sounds"]
Positions = Literal[
    "sinusoidal", "sinusoidal-halves", "sinusoidal-fairseq", "sinusoidal-whisper", "learned", "rotary", "relative", "none"
]  # fmt: skip
EncoderPositions = Literal["same", "sinusoidal", "sinusoidal-whisper", "grid", "learned", "none"]
Activation = Literal["relu", "gelu", "gelu-tanh", "silu", "swiglu", "geglu"]
Norm = Literal["layer", "rms"]
Bias = Literal["everywhere", "attention", "qkv", "feed-forward", "nowhere"]
TieEmbeddings = Literal["all", "target", "none"]

Checks = Iterator[tuple[bool, str, str]]  # what must hold, the option that it is about, and how to say so

# Far more than any model has; a larger number is a mistake that would exhaust memory.
MAX_LAYERS, MAX_SIZE, MAX_TABLE = 1_000, 1 << 20, 1 << 28


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """By default the Transformer of the paper; later ideas and earlier recurrent models are options."""

    kind: str = option(
        "transformer", "Transformer, or a recurrent model: rnn (2014, without attention), rnn-attention (2015)."
    )
    shape: Shape = option("encoder-decoder", "Encoder-decoder (translation), decoder (language model) or encoder.")
    source: Source = option(
        "tokens", "What the encoder reads: tokens of text, patches of pictures or frames of sounds."
    )
    picture_height: int = option(32, "Height in pixels to which pictures are resized, with their aspect ratio.", min=1)
    patch_size: int = option(16, "Height and width of a picture patch in pixels.", min=1)
    channels: int = option(1, "Channels of pictures: 1 (grey) or 3 (red, green, blue).")
    mel_bands: int = option(80, "Number of mel bands of a sound's log-mel spectrogram.", min=1)
    window_seconds: int = option(
        0, "Cut sounds into windows of this length and pad them to it (Whisper: 30); 0: whole sounds, unpadded.", min=0
    )
    vocab_size: int = option(
        8000, "Vocabulary size of the target, and of the source unless source_vocab_size is set.", min=1
    )
    source_vocab_size: int = option(0, "Vocabulary size of the source; 0: same vocabulary as the target.", min=0)
    width: int = option(512, "Width of the token vectors (d_model).", min=1)
    heads: int = option(8, "Number of attention heads.", min=1)
    key_value_heads: int = option(
        0, "Number of key and value heads (grouped-query attention); 0: same as heads.", min=0
    )
    head_width: int = option(0, "Width of each head (d_k); 0: width / heads.", min=0)
    encoder_layers: int = option(6, "Number of encoder layers.", min=1)
    decoder_layers: int = option(6, "Number of decoder layers.", min=1)
    feed_forward: int = option(2048, "Inner width of the feed-forward layers (d_ff).", min=1)
    activation: Activation = option("relu", "Activation of the feed-forward layers; swiglu and geglu are gated.")
    norm: Norm = option("layer", "Layer norm or RMS norm.")
    norm_first: bool = option(
        False, "Normalise before each sub-layer (pre-norm) instead of after it (post-norm, the paper)."
    )
    output_norm: bool = option(False, "Also normalise each sub-layer's output before adding it (Gemma).")
    norm_epsilon: float = option(1e-5, "Added to the variance for numerical stability.", above=0)
    query_key_norm: bool = option(False, "RMS-normalise the queries and keys of each head (Qwen 3, Gemma 3).")
    attention_scale: float = option(0.0, "Factor of the attention scores; 0: 1 / √head_width.", min=0)
    attention_cap: float = option(
        0.0, "Limit scaled scores to ±cap by cap · tanh(score / cap) (Gemma 2); 0: no limit.", min=0
    )
    attention_window: int = option(
        0, "Number of latest tokens that local decoder layers attend to; 0: all layers are global.", min=0
    )
    local_layers: tuple[int, ...] = option((), "Decoder layers limited to attention_window; empty: all.")
    positions: Positions = option(
        "sinusoidal",
        "Positional encoding; sinusoidal-halves stores sines, then cosines; -fairseq and -whisper are variants of it.",
    )
    encoder_positions: EncoderPositions = option(
        "same", "Positional encoding of the encoder, if another; grid: sinusoids of a patch's row and of its column."
    )
    rotary_base: float = option(10000.0, "Base of the rotary frequencies (theta).", above=0)
    local_rotary_base: float = option(
        0.0, "Base of the rotary frequencies of local layers (Gemma 3); 0: as rotary_base.", min=0
    )
    rotary_factors: tuple[float, ...] = option((), "Divisor of each rotary frequency (longer contexts); empty: all 1.")
    rotary_magnitude: float = option(1.0, "Factor of rotated queries and keys (YaRN).", above=0)
    relative_buckets: int = option(
        32, "Number of distance ranges with a bias of their own, for relative positions (T5)."
    )
    relative_distance: int = option(128, "Distance from which all relative positions share one bias.")
    max_positions: int = option(1024, "Number of learned positions, and context window of a language model.", min=1)
    max_source_positions: int = option(
        0, "As max_positions, for the source of an encoder-decoder; 0: max_positions.", min=0
    )
    segments: int = option(0, "Number of segment embeddings (BERT: 2); 0: none.", min=0)
    embedding_norm: bool = option(False, "Normalise the sum of token and position embeddings (BERT).")
    scale_embeddings: bool = option(True, "Multiply embeddings by √width, as in the paper.")
    tie_embeddings: TieEmbeddings = option(
        "all", "Share embeddings: all (source, target and output), target (target and output) or none."
    )
    output_bias: bool = option(False, "Add a bias to the logits (Marian).")
    logit_scale: float = option(1.0, "Factor of the logits (T5).", above=0)
    logit_cap: float = option(0.0, "Limit logits to ±cap by cap · tanh(logit / cap) (Gemma 2); 0: no limit.", min=0)
    masked_head: bool = option(False, "Predict masked tokens with an encoder: dense, activation, norm, logits (BERT).")
    pooler: bool = option(False, "Map the first token's vector to one of the sequence: dense, tanh (BERT).")
    classifier: bool = option(
        False, "Write one token, predicted from the first vector of an encoder of pictures or sounds (ViT)."
    )
    bias: Bias = option(
        "everywhere",
        "Which linear layers have a bias; norms have one only with everywhere; qkv: not the output of attention.",
    )
    dropout: float = option(0.1, "Dropout of embeddings and of sub-layer outputs.", min=0, below=1)
    attention_dropout: float = option(0.0, "Dropout of attention weights.", min=0, below=1)
    activation_dropout: float = option(0.0, "Dropout inside the feed-forward layers.", min=0, below=1)

    def __post_init__(self) -> None:
        check_limits(self, "model.")
        for f in fields(self):
            limit = MAX_LAYERS if f.name.endswith("_layers") else MAX_SIZE
            if f.type is int and getattr(self, f.name) > limit:
                raise UserError(f"model.{f.name} = {getattr(self, f.name)} must be at most {limit:,}")
        if not has_extension("models", self.kind):
            hint = did_you_mean(self.kind, extension_names("models"))
            raise UserError(f'model.kind = "{self.kind}" is not a valid choice: {hint}')
        for checks in (self._recurrent, self._sizes, self._parts, self._positions, self._sinusoids):
            for holds, name, requirement in checks():
                if not holds:
                    raise UserError(f"model.{name} = {getattr(self, name)} {requirement}")

    def _recurrent(self) -> Checks:
        if self.kind not in ("rnn", "rnn-attention"):
            return
        kind, layers = f'for model.kind = "{self.kind}"', f"must equal model.decoder_layers = {self.decoder_layers}"
        yield self.shape == "encoder-decoder", "shape", f"must be encoder-decoder {kind}"
        yield self.heads == 1, "heads", f"must be 1 {kind}: its attention, if any, has one head"
        if self.kind == "rnn":
            passed = "each encoder layer passes its state to the same decoder layer"
            yield self.encoder_layers == self.decoder_layers, "encoder_layers", f"{layers} {kind}: {passed}"
        else:
            yield self.width % 2 == 0, "width", f"must be even {kind}: each direction has half the width"
        only = f'applies only to Transformers, but model.kind is "{self.kind}": remove it'
        for f in fields(self):
            if f.name in _TRANSFORMER_OPTIONS:
                yield getattr(self, f.name) == f.default, f.name, only

    def _sizes(self) -> Checks:
        if not self.head_width:
            step = math.lcm(self.heads, 2)  # sinusoids come in pairs
            smaller, larger = self.width // step * step, -(-self.width // step) * step
            choice = " or ".join(str(width) for width in (smaller, larger) if width)
            hint = f"use width {choice}, or set model.head_width"
            yield self.width % self.heads == 0, "width", f"is not divisible by model.heads = {self.heads}: {hint}"
        divides = self.heads % self.actual_key_value_heads == 0
        yield divides, "key_value_heads", f"must divide model.heads = {self.heads}"
        if self.source_vocab_size not in (0, self.vocab_size):
            translates, shape = self.shape == "encoder-decoder", f'but model.shape is "{self.shape}"'
            hint = 'so they cannot share embeddings: set model.tie_embeddings to "target"'
            differs = f"differs from model.vocab_size = {self.vocab_size}, {hint}"
            yield self.tie_embeddings != "all", "source_vocab_size", differs
            yield translates, "source_vocab_size", f"requires an encoder-decoder, {shape}: set model.vocab_size"

    def _parts(self) -> Checks:
        """What some shapes and sources have and others do not."""
        shape, is_text = f'but model.shape is "{self.shape}"', self.source == "tokens"
        yield is_text or self.has_encoder, "source", f"requires an encoder, {shape}"
        for name in ("source_vocab_size", "segments"):
            yield is_text or getattr(self, name) == 0, name, f'must be 0 for model.source = "{self.source}"'
        if self.source == "pictures":
            divisible, patch = self.picture_height % self.patch_size == 0, f"model.patch_size = {self.patch_size}"
            yield self.channels in (1, 3), "channels", "must be 1 (grey) or 3 (red, green, blue)"
            yield divisible, "picture_height", f"is not divisible by {patch}"
        for name in ("masked_head", "pooler", "classifier"):
            yield not getattr(self, name) or self.shape == "encoder", name, f"requires an encoder, {shape}"
        if self.classifier:
            yield not is_text, "classifier", 'requires model.source = "pictures" or "sounds"'
            yield not self.masked_head, "classifier", "excludes model.masked_head"
        if self.attention_window:
            numbers = all(0 <= layer < self.decoder_layers for layer in self.local_layers)
            yield self.has_decoder, "attention_window", f"requires a decoder, {shape}"
            yield numbers, "local_layers", f"must be numbers from 0 to {self.decoder_layers - 1}"
        yield bool(self.attention_window or not self.local_layers), "local_layers", "needs model.attention_window"

    def _positions(self) -> Checks:
        shape = f'but model.shape is "{self.shape}"'
        translates = not self.max_source_positions or self.shape == "encoder-decoder"
        yield translates, "max_source_positions", f"requires an encoder-decoder, {shape}: set model.max_positions"
        has_own = self.encoder_positions == "same" or self.has_encoder
        yield has_own, "encoder_positions", f"requires an encoder, {shape}"
        if self.encoder_positions == "grid":
            is_picture = self.source == "pictures"
            yield is_picture, "encoder_positions", f'requires pictures, but model.source is "{self.source}"'
            yield self.width % 4 == 0, "width", "must be divisible by 4 for grid positions"
        if self.positions == "rotary":
            size, count = self.actual_head_width, len(self.rotary_factors)
            name = "head_width" if self.head_width else "width"
            positive = count in (0, size // 2) and all(factor > 0 for factor in self.rotary_factors)
            need = f"it needs {size // 2}, half the head width, all greater than 0"
            yield size % 2 == 0, name, f"gives head width {size}, which must be even for rotary positions"
            yield positive, "rotary_factors", f"has {count} numbers: {need}"
        if self.positions == "relative":
            buckets, half = self.relative_buckets, f"half of model.relative_buckets = {self.relative_buckets}"
            yield buckets >= 4 and buckets % 4 == 0, "relative_buckets", "must be a positive multiple of 4"
            yield self.relative_distance > buckets // 2, "relative_distance", f"must be greater than {half}"

    def _sinusoids(self) -> Checks:
        tables: dict[str, int] = {self.positions: self.max_positions} if self.has_decoder else {}
        if self.has_encoder:
            kind = self.actual_encoder_positions
            tables[kind] = max(tables.get(kind, 0), self.actual_max_source_positions)
        for kind, length in tables.items() if self.kind == "transformer" else ():
            if not kind.startswith(("sinusoidal", "grid")):
                continue
            yield self.width % 2 == 0, "width", f"must be even for {kind} positions"
            stretched = kind in ("sinusoidal-fairseq", "sinusoidal-whisper")
            yield self.width > 2 or not stretched, "width", f"must be at least 4 for {kind} positions"
            name = "max_positions" if length == self.max_positions else "max_source_positions"
            size = f"makes a table of sinusoids of more than {MAX_TABLE:,} numbers: use fewer positions, or rotary ones"
            yield length * self.width <= MAX_TABLE, name, f"× model.width = {self.width} {size}"

    @property
    def has_encoder(self) -> bool:
        return self.shape != "decoder"

    @property
    def has_decoder(self) -> bool:
        return self.shape != "encoder"

    @property
    def row_size(self) -> int:
        """Numbers in one row of a source that is not text: a patch of pixels, or a pair of mel frames; 0 for tokens."""
        sizes = {"tokens": 0, "pictures": self.patch_size**2 * self.channels, "sounds": 2 * self.mel_bands}
        return sizes[self.source]

    @property
    def patch_rows(self) -> int:
        """Patches in one column of a picture; patches are numbered column by column."""
        return self.picture_height // self.patch_size

    @property
    def actual_encoder_positions(self) -> str:
        return self.positions if self.encoder_positions == "same" else self.encoder_positions

    @property
    def actual_max_source_positions(self) -> int:
        return self.max_source_positions or self.max_positions

    @property
    def cross_layers(self) -> int:
        """Number of decoder layers with cross-attention."""
        if self.shape != "encoder-decoder" or self.kind == "rnn":
            return 0
        return 1 if self.kind == "rnn-attention" else self.decoder_layers

    @property
    def actual_head_width(self) -> int:
        return self.head_width or self.width // self.heads

    @property
    def actual_key_value_heads(self) -> int:
        return self.key_value_heads or self.heads

    def is_local(self, layer: int) -> bool:
        """Whether a decoder layer attends only to the latest tokens."""
        return self.attention_window > 0 and (not self.local_layers or layer in self.local_layers)

    @property
    def gated(self) -> bool:
        """Whether the feed-forward layers multiply their hidden values by a gate."""
        return self.activation in ("swiglu", "geglu")

    @property
    def predicts_tokens(self) -> bool:
        """Whether the model has logits: every decoder, a classifier, and an encoder with a head for masked tokens."""
        return self.has_decoder or self.masked_head or self.classifier

    @property
    def writes_text(self) -> bool:
        """Whether the model turns a source into text: translates, transcribes or classifies."""
        return self.shape == "encoder-decoder" or self.classifier

    @property
    def attention_bias(self) -> bool:
        """Of queries, keys and values."""
        return self.bias in ("everywhere", "attention", "qkv")

    @property
    def projection_bias(self) -> bool:
        """Of the output of attention."""
        return self.bias in ("everywhere", "attention")

    @property
    def feed_forward_bias(self) -> bool:
        return self.bias in ("everywhere", "feed-forward")


_TRANSFORMER_OPTIONS = (
    "key_value_heads", "head_width", "feed_forward", "activation", "norm", "norm_first", "norm_epsilon", "positions",
    "rotary_base", "segments", "embedding_norm", "bias", "attention_dropout", "activation_dropout", "output_norm",
    "query_key_norm", "attention_scale", "attention_cap", "attention_window", "local_layers", "local_rotary_base",
    "rotary_factors", "rotary_magnitude", "encoder_positions", "relative_buckets",
    "relative_distance", "logit_scale", "logit_cap", "masked_head",
    "pooler", "classifier",
)  # fmt: skip
