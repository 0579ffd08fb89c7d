"""What can be chosen about a model and its training, with its type, its default and a sentence of help.

A configuration is a frozen dataclass with one section per subject. It is read from TOML, from presets and from
overrides such as `model.width=256`, always through the same checks: an unknown key, a wrong type or an impossible
combination is one line that names the key, the value and the remedy. Nothing here imports torch.
"""

import math
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, TypeVar, get_args, get_origin, get_type_hints

from seq2see.errors import UsageError, UserError, nearest

T = TypeVar("T")

ModelKind = Literal["transformer", "rnn", "rnn-attention"]
Shape = Literal["encoder-decoder", "decoder", "encoder"]
Positions = Literal["sinusoidal", "sinusoidal-halves", "learned", "rotary", "none"]
Activation = Literal["relu", "gelu", "gelu-tanh", "silu", "swiglu"]
Norm = Literal["layer", "rms"]
Bias = Literal["everywhere", "attention", "feed-forward", "nowhere"]
Tie = Literal["all", "target", "none"]
Kind = Literal["bpe", "character", "word"]
Normalise = Literal["none", "NFC"]
Boundaries = Literal["blank-line", "file"]
Schedule = Literal["paper", "inverse-sqrt", "cosine", "constant-linear", "constant"]
Averaged = Literal["best", "last"]
Metric = Literal["bleu", "chrf", "loss"]
Precision = Literal["auto", "float32", "bf16"]


def option(default: T, help: str) -> T:
    """A field with its default and its sentence of help."""
    return field(default=default, metadata={"help": help})


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The Transformer of the paper by default; each later idea is one option, and so is what came before."""

    kind: ModelKind = option(
        "transformer", "or what came before: rnn (2014, one state is all the decoder gets), rnn-attention (2015)"
    )
    shape: Shape = option("encoder-decoder", "encoder-decoder translates, decoder writes on, encoder reads")
    vocabulary: int = option(8000, "tokens the model writes, and reads too unless source_vocabulary is given")
    source_vocabulary: int = option(
        0, "tokens of the source side where it has a vocabulary of its own; 0: the same one"
    )
    width: int = option(512, "numbers in the vector of one token (d_model)")
    heads: int = option(8, "attention heads, each with its own queries, keys and values")
    key_value_heads: int = option(
        0, "heads that keys and values have, shared by groups of queries; 0: as many as heads"
    )
    head_width: int = option(0, "numbers in one head's query (d_k); 0: width / heads")
    encoder_layers: int = option(6, "blocks in the encoder stack")
    decoder_layers: int = option(6, "blocks in the decoder stack")
    feed_forward: int = option(2048, "width inside the feed-forward layer")
    activation: Activation = option("relu", "what makes the feed-forward layer non-linear")
    norm: Norm = option("layer", "layer norm, or its simpler root-mean-square form")
    norm_first: bool = option(False, "norm before each sub-layer (later models) rather than after the sum (the paper)")
    norm_epsilon: float = option(1e-5, "added to the variance before its square root")
    positions: Positions = option("sinusoidal", "how the order of the words enters; -halves stores sines, then cosines")
    rotary_base: float = option(10000.0, "slowest wavelength of rotary positions, in units of 2π")
    longest: int = option(1024, "positions in a learned table, and the context window of a language model")
    segments: int = option(0, "kinds of segment told apart by a learned vector (BERT: 2); 0: none")
    embedding_norm: bool = option(False, "norm on the sum of embedding and position (BERT)")
    scale_embeddings: bool = option(True, "multiply embeddings by √width, as the paper does")
    tie: Tie = option("all", "one table for source, target and output; or for target and output; or none shared")
    output_bias: bool = option(False, "add a learned number to each logit (Marian)")
    bias: Bias = option("everywhere", "which linear maps add a bias; norms shift only with everywhere")
    dropout: float = option(0.1, "share of each sub-layer's output and of the embedded input dropped in training")
    attention_dropout: float = option(0.0, "share of the attention weights dropped in training")
    activation_dropout: float = option(0.0, "share of the feed-forward layer's inner values dropped in training")

    def __post_init__(self) -> None:
        for name in ("vocabulary", "width", "heads", "encoder_layers", "decoder_layers", "feed_forward", "longest"):
            self._require(getattr(self, name) >= 1, name, "must be at least 1")
        for name in ("source_vocabulary", "key_value_heads", "head_width", "segments"):
            self._require(getattr(self, name) >= 0, name, "must not be negative")
        for name in ("dropout", "attention_dropout", "activation_dropout"):
            self._require(0 <= getattr(self, name) < 1, name, "must be at least 0 and less than 1")
        for name in ("norm_epsilon", "rotary_base"):
            self._require(getattr(self, name) > 0, name, "must be greater than 0")
        if self.kind != "transformer":
            self._check_recurrent()
        if not self.head_width:
            step = math.lcm(self.heads, 2)  # sinusoids come in pairs
            down, up = self.width // step * step, -(-self.width // step) * step
            choice = " or ".join(str(width) for width in (down, up) if width)
            self._require(
                self.width % self.heads == 0,
                "width",
                f"cannot be divided among model.heads = {self.heads}; take width {choice}, or set model.head_width",
            )
        groups = self.key_value_heads or self.heads
        self._require(self.heads % groups == 0, "key_value_heads", f"must divide model.heads = {self.heads}")
        if self.kind == "transformer" and self.positions in ("sinusoidal", "sinusoidal-halves"):
            self._require(self.width % 2 == 0, "width", f"must be even for {self.positions} positions")
        if self.positions == "rotary":
            self._require(
                self.width_of_head % 2 == 0, "head_width" if self.head_width else "width",
                f"gives heads of width {self.width_of_head}, which must be even for rotary positions",
            )  # fmt: skip
        own_source = self.source_vocabulary not in (0, self.vocabulary)
        self._require(
            not (own_source and self.tie == "all"), "source_vocabulary",
            f'differs from model.vocabulary = {self.vocabulary}, so one table cannot serve both: set model.tie to "target"',
        )  # fmt: skip
        self._require(
            not own_source or self.shape == "encoder-decoder", "source_vocabulary",
            f'is only for an encoder-decoder; model.shape is "{self.shape}": set model.vocabulary',
        )  # fmt: skip

    def _check_recurrent(self) -> None:
        of_kind = f'where model.kind is "{self.kind}"'
        self._require(self.shape == "encoder-decoder", "shape", f"must be encoder-decoder {of_kind}")
        self._require(self.heads == 1, "heads", f"must be 1 {of_kind}: its attention, if any, has one head")
        if self.kind == "rnn":
            self._require(
                self.encoder_layers == self.decoder_layers, "encoder_layers",
                f"must be model.decoder_layers = {self.decoder_layers} {of_kind}: each layer hands its state to its like",
            )  # fmt: skip
        else:
            self._require(self.width % 2 == 0, "width", f"must be even {of_kind}: each direction has half of it")
        defaults = {f.name: f.default for f in fields(self)}
        for name in _OF_TRANSFORMERS:
            self._require(
                getattr(self, name) == defaults[name], name,
                f'is an option of Transformers, and model.kind is "{self.kind}": leave it out',
            )  # fmt: skip

    def _require(self, holds: bool, name: str, complaint: str) -> None:
        if not holds:
            raise UserError(f"model.{name} = {getattr(self, name)} {complaint}")

    @property
    def has_encoder(self) -> bool:
        return self.shape != "decoder"

    @property
    def has_decoder(self) -> bool:
        return self.shape != "encoder"

    @property
    def cross_layers(self) -> int:
        """Layers of the decoder that look at the source."""
        if self.shape != "encoder-decoder" or self.kind == "rnn":
            return 0
        return 1 if self.kind == "rnn-attention" else self.decoder_layers

    @property
    def width_of_head(self) -> int:
        return self.head_width or self.width // self.heads

    @property
    def groups(self) -> int:
        """Heads that keys and values have."""
        return self.key_value_heads or self.heads

    @property
    def attention_bias(self) -> bool:
        return self.bias in ("everywhere", "attention")

    @property
    def feed_forward_bias(self) -> bool:
        return self.bias in ("everywhere", "feed-forward")


_OF_TRANSFORMERS = (
    "key_value_heads", "head_width", "feed_forward", "activation", "norm", "norm_first", "norm_epsilon", "positions",
    "rotary_base", "segments", "embedding_norm", "bias", "attention_dropout", "activation_dropout",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """The files that a run reads. Paths are as they were given."""

    src: tuple[str, ...] = option((), "source sentences, one a line")
    tgt: tuple[str, ...] = option((), "their translations, line by line")
    pairs: tuple[str, ...] = option((), "instead: .tsv, .jsonl, .tmx or .po")
    columns: str = option("", "columns of a TSV: numbers from 1, or names in its first line")
    fields: str = option("", "fields of JSON lines")
    languages: str = option("", "languages of a TMX, or the endings of the files in a directory")
    text: tuple[str, ...] = option((), "plain text, for a language model")
    boundaries: Boundaries = option("blank-line", "where documents of plain text end")
    valid_src: tuple[str, ...] = option((), "the validation set; without one, pairs are held out of the training set")
    valid_tgt: tuple[str, ...] = option((), "its translations")
    valid_pairs: tuple[str, ...] = option((), "instead: a file of pairs")
    valid_text: tuple[str, ...] = option((), "the validation text")


@dataclass(frozen=True, kw_only=True)
class TextConfig:
    """How text becomes tokens."""

    tokenizer: Kind = option("bpe", "byte-level BPE; or one token a character, or one a word, for teaching")
    vocabulary: int = option(0, "tokens at most; 0: chosen by the size of the corpus")
    shared: bool = option(True, "one vocabulary for source and target")
    normalise: Normalise = option("NFC", "canonical composition before tokenizing, in training and in use; or none")
    dropout: float = option(0.0, "BPE-dropout: share of merges left out, drawn anew each epoch")
    documents: bool = option(False, "a language model's attention stops where a document does")

    def __post_init__(self) -> None:
        if not 0 <= self.dropout < 1:
            raise UserError(f"text.dropout = {self.dropout} must be at least 0 and less than 1")


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How a model is trained. The defaults are the paper's, but for what the size of the corpus decides."""

    steps: int = option(0, "stop after so many steps; 0: no such limit")
    epochs: float = option(0.0, "stop after so many rounds through the corpus; 0: no such limit")
    minutes: float = option(0.0, "stop after so much time; 0: no such limit")
    tokens: int = option(4096, "target tokens in a step, over all processes and micro-batches")
    accumulate: int = option(
        1, "micro-batches that a step is cut into; processes share them; 0: as few as fit in memory"
    )
    schedule: Schedule = option("inverse-sqrt", "how the learning rate goes on after the warm-up")
    lr: float = option(1e-3, "the highest learning rate; for the paper's schedule, a factor")
    warmup: int = option(1000, "steps in which the learning rate rises")
    beta1: float = option(0.9, "Adam's memory of the gradient")
    beta2: float = option(0.98, "Adam's memory of its square")
    epsilon: float = option(1e-9, "added to Adam's denominator")
    weight_decay: float = option(0.0, "share of each weight matrix that decays per unit of learning rate")
    clip: float = option(1.0, "longest gradient; a longer one is scaled down; 0: any")
    label_smoothing: float = option(0.1, "share of the target's probability spread over all tokens")
    r_drop: float = option(0.0, "weight of the divergence between two dropped-out passes (R-Drop); 0: one pass")
    ema: float = option(0.0, "decay of a running mean of the weights, which is then what is scored; 0: none")
    average: int = option(5, "checkpoints whose weights are averaged in the end; 1: none")
    average_of: Averaged = option("best", "the best checkpoints on the validation set, or the last")
    validate_every: int = option(0, "steps between validations; 0: about an epoch")
    validate_on: int = option(500, "sentences that are translated at each validation, at most; all at the end")
    metric: Metric = option("bleu", "what counts on the validation set; a language model has only loss")
    patience: int = option(0, "stop after so many validations without a better score; 0: never")
    save_minutes: float = option(5.0, "minutes between checkpoints; one is also written at each validation")
    save_every: int = option(0, "steps between checkpoints, if minutes are not what counts")
    tensorboard: bool = option(False, "also write event files for TensorBoard (needs seq2see[tensorboard])")
    snapshots: bool = option(True, "keep small copies of the weights at steps 1, 2, 4, … to replay the training")
    precision: Precision = option("auto", "auto is bf16 on a GPU, and float32 on a CPU below width 512")
    compile: bool = option(True, "compile the step, on CUDA")
    shard: bool = option(False, "shard the model over the processes (FSDP) rather than copy it (DDP)")
    seed: int = option(1, "where all random numbers come from")

    def __post_init__(self) -> None:
        for name in ("steps", "epochs", "minutes", "weight_decay", "clip", "r_drop", "validate_every",
                     "patience", "save_every", "accumulate"):  # fmt: skip
            self._require(getattr(self, name) >= 0, name, "must not be negative")
        for name in ("tokens", "average", "warmup", "validate_on"):
            self._require(getattr(self, name) >= 1, name, "must be at least 1")
        for name in ("lr", "epsilon", "save_minutes"):
            self._require(getattr(self, name) > 0, name, "must be greater than 0")
        for name in ("beta1", "beta2", "label_smoothing", "ema"):
            self._require(0 <= getattr(self, name) < 1, name, "must be at least 0 and less than 1")

    def _require(self, holds: bool, name: str, complaint: str) -> None:
        if not holds:
            raise UserError(f"train.{name} = {getattr(self, name)} {complaint}")


@dataclass(frozen=True, kw_only=True)
class Config:
    """Everything that a run or a model directory states in its config.toml."""

    FORMAT: ClassVar[int] = 1

    format: int = option(FORMAT, "version of this file's format")
    data: DataConfig = DataConfig()
    text: TextConfig = TextConfig()
    model: ModelConfig = ModelConfig()
    train: TrainConfig = TrainConfig()

    def __post_init__(self) -> None:
        if self.format != self.FORMAT:
            raise UserError(
                f"format = {self.format}, but this seq2see reads format {self.FORMAT}: use the seq2see that wrote the file"
            )

    @classmethod
    def load(cls, path: Path | str) -> Self:
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"cannot read {path}: {error}") from error
        try:
            return cls.from_toml(text)
        except UserError as error:
            raise UserError(f"{path}: {error}") from error

    @classmethod
    def from_toml(cls, text: str) -> Self:
        try:
            table = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise UserError(f"not valid TOML: {error}") from error
        return build(cls, table)

    def to_toml(self) -> str:
        """The file, every key with its help as a comment, so that it explains itself."""
        return "\n".join(_toml_lines(self, "")) + "\n"

    def override(self, assignments: Iterable[str]) -> Self:
        """A copy with settings such as `model.width=256` changed, all at once, so that their order does not matter."""
        table: dict[str, Any] = {}
        for assignment in assignments:
            key, equals, text = assignment.partition("=")
            if not equals:
                raise UsageError(f'"{assignment}" is no setting: write KEY=VALUE, such as model.width=256')
            *sections, last = key.strip().split(".")
            place = table
            for section in sections:
                place = place.setdefault(section, {})
                if not isinstance(place, dict):
                    raise UsageError(f'"{assignment}" sets a key inside "{section}", which is a value')
            place[last] = _parse_value(text.strip())
        try:
            return build(type(self), table, base=self)
        except UserError as error:
            raise UsageError(str(error)) from error


def build(cls: type[T], table: Mapping[str, Any], base: T | None = None, where: str = "") -> T:
    """A dataclass from a table of plain values, checked; what the table leaves out comes from `base` or the defaults."""
    hints = get_type_hints(cls)
    known = {f.name: hints[f.name] for f in fields(cls)}  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    for key, value in table.items():
        if key not in known:
            raise UserError(f'unknown key "{where}{key}": {nearest(key, known)}')
        if is_dataclass(known[key]):
            if not isinstance(value, Mapping):
                raise UserError(f'"{where}{key}" is a section, so it takes keys of its own, not {_show(value)}')
            inner = getattr(base, key) if base is not None else None
            values[key] = build(known[key], value, base=inner, where=f"{where}{key}.")
        else:
            values[key] = _checked(known[key], value, where + key)
    return cls(**values) if base is None else replace(base, **values)  # type: ignore[type-var]


def _checked(kind: Any, value: Any, key: str) -> Any:
    if get_origin(kind) is Literal:
        if value not in get_args(kind):
            raise UserError(f"{key} = {_show(value)} is not a choice: {nearest(str(value), get_args(kind))}")
        return value
    if kind is float and type(value) is int:
        return float(value)
    if get_origin(kind) is tuple:
        values = value if isinstance(value, list) else [value]  # one file needs no brackets
        return tuple(_checked(get_args(kind)[0], each, key) for each in values)
    if type(value) is not kind:
        raise UserError(f"{key} = {_show(value)} must be {_KINDS[kind]}")
    return value


_KINDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}


def _parse_value(text: str) -> Any:
    """A TOML value, or, so that nobody has to quote twice in a shell, the bare text."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _toml_lines(section: Any, where: str) -> Iterator[str]:
    if where:
        yield ""
        yield f"[{where}]"
    subsections = []
    for f in fields(section):
        value = getattr(section, f.name)
        if is_dataclass(value):
            subsections.append((f.name, value))
        else:
            yield f"{f.name} = {_show(value)}".ljust(34) + f"  # {f.metadata['help']}"
    for name, value in subsections:
        yield from _toml_lines(value, f"{where}.{name}" if where else name)


def _show(value: Any) -> str:
    """A value as TOML writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        escaped = "".join(_ESCAPES.get(c) or (c if c.isprintable() else f"\\U{ord(c):08x}") for c in value)
        return f'"{escaped}"'
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_show, value))}]"
    return str(value)


_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t"}
