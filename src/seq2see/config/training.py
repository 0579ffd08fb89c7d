"""The options of a run besides its model: its data, its tokenizers and its training."""

from dataclasses import dataclass
from typing import Literal

from seq2see.config.extensions import extension_names, has_extension
from seq2see.config.toml import check_limits, option
from seq2see.errors import UserError, did_you_mean

TokenizerKind = Literal["bpe", "character", "word"]
Normalization = Literal["none", "NFC"]
Boundaries = Literal["blank-line", "file"]
Schedule = Literal["paper", "inverse-sqrt", "cosine", "constant-linear", "constant"]
Precision = Literal["auto", "float32", "bf16"]


_PRESET_METRICS = ("bleu", "chrf", "cer", "loss")  # accepted without the table of all metrics, which imports sacreBLEU
_FILES = {"metavar": "FILE...", "panel": "Text"}
_LISTS = {"metavar": "LIST...", "panel": "Pictures and sounds"}
_HELD_OUT = {"metavar": "FILE...", "panel": "Validation and test"}


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Input files. Paths are stored as given."""

    src: tuple[str, ...] = option((), "Source sentences, one per line; or a directory of such files.", **_FILES)
    tgt: tuple[str, ...] = option(
        (), "Their translations, line by line; or a directory whose files are matched by name.", **_FILES
    )
    pairs: tuple[str, ...] = option(
        (), "Instead of --src and --tgt: .tsv, .jsonl, .tmx or .po, or a directory.", **_FILES
    )
    columns: str = option(
        "", "Columns of a TSV file: numbers, or names from its first line.", metavar="1,2", panel="Text"
    )
    fields: str = option("", "Fields of JSON lines; nested: translation.en.", metavar="en,hi", panel="Text")
    languages: str = option(
        "", "Languages of a TMX file, or file suffixes in a directory.", metavar="en,hi", panel="Text"
    )
    pictures: tuple[str, ...] = option(
        (), "Pictures with their texts: a .tsv (path, tab, text) or .jsonl, or a directory with .txt files.", **_LISTS
    )
    sounds: tuple[str, ...] = option((), "Sounds with their texts, likewise.", **_LISTS)
    text: tuple[str, ...] = option(
        (), "Plain text, or a directory of .txt files. All files may be compressed (.gz, .xz).", **_FILES
    )
    boundaries: Boundaries = option("blank-line", "What separates documents in plain text.", panel="Text")
    valid_src: tuple[str, ...] = option((), "Validation sentences.", **_HELD_OUT)
    valid_tgt: tuple[str, ...] = option((), "Their translations.", **_HELD_OUT)
    valid_pairs: tuple[str, ...] = option((), "Validation pairs, instead of --valid-src and --valid-tgt.", **_HELD_OUT)
    valid_pictures: tuple[str, ...] = option((), "Validation pictures.", **_LISTS)
    valid_sounds: tuple[str, ...] = option((), "Validation sounds.", **_LISTS)
    valid_text: tuple[str, ...] = option((), "Validation text.", **_HELD_OUT)


@dataclass(frozen=True, kw_only=True)
class TextConfig:
    """Tokenisation."""

    tokenizer: TokenizerKind = option("bpe", "Byte-level BPE; or one token per character or per word, for teaching.")
    vocab_size: int = option(0, "Maximum vocabulary size; 0: depends on the corpus size.")
    shared_vocab: bool = option(True, "Share one vocabulary between source and target.")
    normalize: Normalization = option("NFC", "Unicode normalisation before tokenisation, in training and inference.")
    bpe_dropout: float = option(0.0, "Probability of skipping a merge in training (BPE-dropout).", min=0, below=1)
    documents: bool = option(False, "Keep the attention of a language model within documents.")

    def __post_init__(self) -> None:
        check_limits(self, "text.")


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How a model is trained. The defaults are the paper's, except for those that depend on the size of the corpus."""

    steps: int = option(0, "Maximum number of training steps; 0: no limit.", min=0)
    epochs: float = option(0.0, "Maximum number of passes over the corpus; 0: no limit.", min=0)
    minutes: float = option(0.0, "Maximum training time in minutes; 0: no limit.", min=0)
    batch_tokens: int = option(4096, "Target tokens per step, over all processes and micro-batches.", min=1)
    gradient_accumulation: int = option(
        1, "Micro-batches per step, divided among the processes; 0: as few as fit in memory.", min=0
    )
    schedule: Schedule = option("inverse-sqrt", "Learning-rate schedule after the warm-up.")
    lr: float = option(1e-3, "Peak learning rate; for the paper's schedule, a factor.", above=0)
    warmup_steps: int = option(1000, "Steps over which the learning rate rises to its peak.", min=1)
    beta1: float = option(0.9, "Adam's decay rate for the mean of the gradient.", min=0, below=1)
    beta2: float = option(0.98, "Adam's decay rate for the mean of the squared gradient.", min=0, below=1)
    epsilon: float = option(1e-9, "Added to Adam's denominator.", above=0)
    weight_decay: float = option(
        0.0, "Decoupled weight decay (AdamW); applies to matrices only, not biases or norms.", min=0
    )
    max_grad_norm: float = option(1.0, "Gradient norm above which gradients are clipped; 0: no clipping.", min=0)
    label_smoothing: float = option(0.1, "Share of the target's probability spread over all tokens.", min=0, below=1)
    r_drop: float = option(0.0, "Weight of the divergence between two dropout passes (R-Drop); 0: one pass.", min=0)
    shift_pixels: int = option(0, "Shift pictures at random by up to this many pixels in training; 0: no shift.", min=0)
    mask_bands: int = option(
        0, "Maximum width in mel bands of the two bands masked in training (SpecAugment); 0: none.", min=0
    )
    mask_frames: int = option(
        0, "Maximum length in frames of the two masked stretches of time (SpecAugment); 0: none.", min=0
    )
    average_checkpoints: int = option(5, "Number of best checkpoints averaged at the end; 1: no averaging.", min=1)
    validate_every: int = option(0, "Steps between validations; 0: about one epoch.", min=0)
    validation_sentences: int = option(
        500, "Maximum number of sentences translated per validation; all at the end.", min=1
    )
    metric: str = option("bleu", "Validation metric that selects the best checkpoint; cer: of pictures and sounds.")
    patience: int = option(0, "Stop after this many validations without improvement; 0: never.", min=0)
    checkpoint_minutes: float = option(5.0, "Minutes between checkpoints; each validation also writes one.", above=0)
    checkpoint_steps: int = option(0, "Steps between checkpoints; overrides checkpoint_minutes; 0: off.", min=0)
    tensorboard: bool = option(False, "Also write TensorBoard event files (needs seq2see[tensorboard]).")
    snapshots: bool = option(True, "Keep small copies of the weights at steps 1, 2, 4, … to replay the training.")
    precision: Precision = option("auto", "Auto: bf16 on a GPU; on a CPU, float32 below width 512.")
    compile: bool = option(True, "Compile the training step with torch.compile (CUDA only).")
    fsdp: bool = option(False, "Shard the model across processes (FSDP) instead of replicating it (DDP).")
    seed: int = option(1, "Random seed.")
    init: str = option("", "Model directory whose weights and tokenizers the training starts from.")

    def __post_init__(self) -> None:
        check_limits(self, "train.")
        if self.metric not in _PRESET_METRICS and not has_extension("metrics", self.metric):
            hint = did_you_mean(self.metric, ["loss", *extension_names("metrics")])
            raise UserError(f'train.metric = "{self.metric}" is not a valid choice: {hint}')
