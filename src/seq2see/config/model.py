"""The options of a model. By default it is the Transformer of the paper."""

import math
from dataclasses import dataclass, fields
from typing import Literal

from seq2see.config.extensions import extension_names, has_extension
from seq2see.config.toml import option
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
    picture_height: int = option(32, "Height in pixels to which pictures are resized, with their aspect ratio.")
    patch_size: int = option(16, "Height and width of a picture patch in pixels.")
    channels: int = option(1, "Channels of pictures: 1 (grey) or 3 (red, green, blue).")
    mel_bands: int = option(80, "Number of mel bands of a sound's log-mel spectrogram.")
    window_seconds: int = option(
        0, "Cut sounds into windows of this length and pad them to it (Whisper: 30); 0: whole sounds, unpadded."
    )
    vocab_size: int = option(8000, "Vocabulary size of the target, and of the source unless source_vocab_size is set.")
    source_vocab_size: int = option(0, "Vocabulary size of the source; 0: same vocabulary as the target.")
    width: int = option(512, "Width of the token vectors (d_model).")
    heads: int = option(8, "Number of attention heads.")
    key_value_heads: int = option(0, "Number of key and value heads (grouped-query attention); 0: same as heads.")
    head_width: int = option(0, "Width of each head (d_k); 0: width / heads.")
    encoder_layers: int = option(6, "Number of encoder layers.")
    decoder_layers: int = option(6, "Number of decoder layers.")
    feed_forward: int = option(2048, "Inner width of the feed-forward layers (d_ff).")
    activation: Activation = option("relu", "Activation of the feed-forward layers; swiglu and geglu are gated.")
    norm: Norm = option("layer", "Layer norm or RMS norm.")
    norm_first: bool = option(
        False, "Normalise before each sub-layer (pre-norm) instead of after it (post-norm, the paper)."
    )
    output_norm: bool = option(False, "Also normalise each sub-layer's output before adding it (Gemma).")
    norm_epsilon: float = option(1e-5, "Added to the variance for numerical stability.")
    query_key_norm: bool = option(False, "RMS-normalise the queries and keys of each head (Qwen 3, Gemma 3).")
    attention_scale: float = option(0.0, "Factor of the attention scores; 0: 1 / √head_width.")
    attention_cap: float = option(0.0, "Limit scaled scores to ±cap by cap · tanh(score / cap) (Gemma 2); 0: no limit.")
    attention_window: int = option(
        0, "Number of latest tokens that local decoder layers attend to; 0: all layers are global."
    )
    local_layers: tuple[int, ...] = option((), "Decoder layers limited to attention_window; empty: all.")
    positions: Positions = option(
        "sinusoidal",
        "Positional encoding; sinusoidal-halves stores sines, then cosines; -fairseq and -whisper are variants of it.",
    )
    encoder_positions: EncoderPositions = option(
        "same", "Positional encoding of the encoder, if another; grid: sinusoids of a patch's row and of its column."
    )
    rotary_base: float = option(10000.0, "Base of the rotary frequencies (theta).")
    local_rotary_base: float = option(
        0.0, "Base of the rotary frequencies of local layers (Gemma 3); 0: as rotary_base."
    )
    rotary_factors: tuple[float, ...] = option((), "Divisor of each rotary frequency (longer contexts); empty: all 1.")
    rotary_magnitude: float = option(1.0, "Factor of rotated queries and keys (YaRN).")
    relative_buckets: int = option(
        32, "Number of distance ranges with a bias of their own, for relative positions (T5)."
    )
    relative_distance: int = option(128, "Distance from which all relative positions share one bias.")
    max_positions: int = option(1024, "Number of learned positions, and context window of a language model.")
    max_source_positions: int = option(0, "As max_positions, for the source of an encoder-decoder; 0: max_positions.")
    segments: int = option(0, "Number of segment embeddings (BERT: 2); 0: none.")
    embedding_norm: bool = option(False, "Normalise the sum of token and position embeddings (BERT).")
    scale_embeddings: bool = option(True, "Multiply embeddings by √width, as in the paper.")
    tie_embeddings: TieEmbeddings = option(
        "all", "Share embeddings: all (source, target and output), target (target and output) or none."
    )
    output_bias: bool = option(False, "Add a bias to the logits (Marian).")
    logit_scale: float = option(1.0, "Factor of the logits (T5).")
    logit_cap: float = option(0.0, "Limit logits to ±cap by cap · tanh(logit / cap) (Gemma 2); 0: no limit.")
    masked_head: bool = option(False, "Predict masked tokens with an encoder: dense, activation, norm, logits (BERT).")
    pooler: bool = option(False, "Map the first token's vector to one of the sequence: dense, tanh (BERT).")
    classifier: bool = option(
        False, "Write one token, predicted from the first vector of an encoder of pictures or sounds (ViT)."
    )
    bias: Bias = option(
        "everywhere",
        "Which linear layers have a bias; norms have one only with everywhere; qkv: not the output of attention.",
    )
    dropout: float = option(0.1, "Dropout of embeddings and of sub-layer outputs.")
    attention_dropout: float = option(0.0, "Dropout of attention weights.")
    activation_dropout: float = option(0.0, "Dropout inside the feed-forward layers.")

    def __post_init__(self) -> None:
        for name in ("vocab_size", "width", "heads", "encoder_layers", "decoder_layers", "feed_forward",
                     "max_positions", "picture_height", "patch_size", "mel_bands"):  # fmt: skip
            self._require(getattr(self, name) >= 1, name, "must be at least 1")
        for name in ("source_vocab_size", "key_value_heads", "head_width", "segments", "attention_scale", "attention_cap",
                     "window_seconds", "max_source_positions", "attention_window", "local_rotary_base",
                     "logit_cap"):  # fmt: skip
            self._require(getattr(self, name) >= 0, name, "must not be negative")
        for f in fields(self):
            limit = MAX_LAYERS if f.name.endswith("_layers") else MAX_SIZE
            if f.type is int:
                self._require(getattr(self, f.name) <= limit, f.name, f"must be at most {limit:,}")
        for name in ("dropout", "attention_dropout", "activation_dropout"):
            self._require(0 <= getattr(self, name) < 1, name, "must be at least 0 and less than 1")
        for name in ("norm_epsilon", "rotary_base", "rotary_magnitude", "logit_scale"):
            self._require(getattr(self, name) > 0, name, "must be greater than 0")
        if not has_extension("models", self.kind):
            raise UserError(
                f'model.kind = "{self.kind}" is not a valid choice: {did_you_mean(self.kind, extension_names("models"))}'
            )
        if self.kind in ("rnn", "rnn-attention"):
            self._check_recurrent()
        if not self.head_width:
            step = math.lcm(self.heads, 2)  # sinusoids come in pairs
            smaller, larger = self.width // step * step, -(-self.width // step) * step
            choice = " or ".join(str(width) for width in (smaller, larger) if width)
            self._require(
                self.width % self.heads == 0,
                "width",
                f"is not divisible by model.heads = {self.heads}: use width {choice}, or set model.head_width",
            )
        divides = self.heads % self.actual_key_value_heads == 0
        self._require(divides, "key_value_heads", f"must divide model.heads = {self.heads}")
        self._check_source()
        self._check_positions()
        self._check_local_layers()
        self._check_vocabularies()
        for name in ("masked_head", "pooler", "classifier"):
            self._require(
                not getattr(self, name) or self.shape == "encoder", name,
                f'requires an encoder, but model.shape is "{self.shape}"',
            )  # fmt: skip
        if self.classifier:
            self._require(self.source != "tokens", "classifier", 'requires model.source = "pictures" or "sounds"')
            self._require(not self.masked_head, "classifier", "excludes model.masked_head")

    def _check_source(self) -> None:
        if self.source == "tokens":
            return
        self._require(self.has_encoder, "source", f'requires an encoder, but model.shape is "{self.shape}"')
        for name in ("source_vocab_size", "segments"):
            self._require(getattr(self, name) == 0, name, f'must be 0 for model.source = "{self.source}"')
        if self.source == "pictures":
            self._require(self.channels in (1, 3), "channels", "must be 1 (grey) or 3 (red, green, blue)")
            self._require(
                self.picture_height % self.patch_size == 0, "picture_height",
                f"is not divisible by model.patch_size = {self.patch_size}",
            )  # fmt: skip

    def _check_positions(self) -> None:
        self._require(
            not self.max_source_positions or self.shape == "encoder-decoder", "max_source_positions",
            f'requires an encoder-decoder, but model.shape is "{self.shape}": set model.max_positions',
        )  # fmt: skip
        self._require(
            self.encoder_positions == "same" or self.has_encoder, "encoder_positions",
            f'requires an encoder, but model.shape is "{self.shape}"',
        )  # fmt: skip
        if self.encoder_positions == "grid":
            self._require(
                self.source == "pictures",
                "encoder_positions",
                f'requires pictures, but model.source is "{self.source}"',
            )
            self._require(self.width % 4 == 0, "width", "must be divisible by 4 for grid positions")
        tables: dict[str, int] = {self.positions: self.max_positions} if self.has_decoder else {}
        if self.has_encoder:
            kind = self.actual_encoder_positions
            tables[kind] = max(tables.get(kind, 0), self.actual_max_source_positions)
        for kind, length in tables.items() if self.kind == "transformer" else ():
            if not kind.startswith(("sinusoidal", "grid")):
                continue
            self._require(self.width % 2 == 0, "width", f"must be even for {kind} positions")
            name = "max_positions" if length == self.max_positions else "max_source_positions"
            self._require(
                length * self.width <= MAX_TABLE, name,
                f"× model.width = {self.width} makes a table of sinusoids of more than {MAX_TABLE:,} numbers: "
                "use fewer positions, or rotary ones",
            )  # fmt: skip
        if self.positions == "rotary":
            self._require(
                self.actual_head_width % 2 == 0, "head_width" if self.head_width else "width",
                f"gives head width {self.actual_head_width}, which must be even for rotary positions",
            )  # fmt: skip
            count, expected = len(self.rotary_factors), self.actual_head_width // 2
            self._require(
                count in (0, expected) and all(factor > 0 for factor in self.rotary_factors), "rotary_factors",
                f"has {count} numbers: it needs {expected}, half the head width, all greater than 0",
            )  # fmt: skip
        if self.positions == "relative":
            self._require(
                self.relative_buckets >= 4 and self.relative_buckets % 4 == 0, "relative_buckets",
                "must be a positive multiple of 4",
            )  # fmt: skip
            self._require(
                self.relative_distance > self.relative_buckets // 2, "relative_distance",
                f"must be greater than half of model.relative_buckets = {self.relative_buckets}",
            )  # fmt: skip

    def _check_local_layers(self) -> None:
        if not self.attention_window:
            self._require(not self.local_layers, "local_layers", "needs model.attention_window")
            return
        self._require(self.has_decoder, "attention_window", f'requires a decoder, but model.shape is "{self.shape}"')
        self._require(
            all(0 <= layer < self.decoder_layers for layer in self.local_layers), "local_layers",
            f"must be numbers from 0 to {self.decoder_layers - 1}",
        )  # fmt: skip

    def _check_vocabularies(self) -> None:
        separate_source = self.source_vocab_size not in (0, self.vocab_size)
        self._require(
            not (separate_source and self.tie_embeddings == "all"), "source_vocab_size",
            f"differs from model.vocab_size = {self.vocab_size}, so they cannot share embeddings: "
            'set model.tie_embeddings to "target"',
        )  # fmt: skip
        self._require(
            not separate_source or self.shape == "encoder-decoder", "source_vocab_size",
            f'requires an encoder-decoder, but model.shape is "{self.shape}": set model.vocab_size',
        )  # fmt: skip

    def _check_recurrent(self) -> None:
        for_kind = f'for model.kind = "{self.kind}"'
        self._require(self.shape == "encoder-decoder", "shape", f"must be encoder-decoder {for_kind}")
        self._require(self.heads == 1, "heads", f"must be 1 {for_kind}: its attention, if any, has one head")
        if self.kind == "rnn":
            self._require(
                self.encoder_layers == self.decoder_layers, "encoder_layers",
                f"must equal model.decoder_layers = {self.decoder_layers} {for_kind}: "
                "each encoder layer passes its state to the same decoder layer",
            )  # fmt: skip
        else:
            self._require(self.width % 2 == 0, "width", f"must be even {for_kind}: each direction has half the width")
        defaults = {f.name: f.default for f in fields(self)}
        for name in _TRANSFORMER_OPTIONS:
            self._require(
                getattr(self, name) == defaults[name], name,
                f'applies only to Transformers, but model.kind is "{self.kind}": remove it',
            )  # fmt: skip

    def _require(self, holds: bool, name: str, requirement: str) -> None:
        if not holds:
            raise UserError(f"model.{name} = {getattr(self, name)} {requirement}")

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
