"""The built-in English–Hindi corpus, with gold word alignments: the files of `seq2see data sample`, packed with the package.

A grammar produced every sentence; `recipes/grammar/` has it, and describes the corpus. The lessons, the demo and the page train
on it.
"""

import json
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from seq2see.errors import UserError
from seq2see.storage.bundled import BUNDLED
from seq2see.tensors.files import atomic_write

ARCHIVE = BUNDLED / "sample-corpus.tar.xz"

# How a model learns the corpus in two minutes on two CPU cores.
TRAINING_PRESET = "tiny"
TRAINING_SETTINGS = [
    "text.tokenizer=word", "text.vocab_size=4000", "text.shared_vocab=false", "model.encoder_layers=2",
    "model.decoder_layers=2", "model.heads=8", "model.feed_forward=512", "model.norm_first=true", "model.dropout=0",
    "train.batch_tokens=600", "train.schedule=cosine", "train.lr=3e-3", "train.warmup_steps=200", "train.beta2=0.95",
    "train.weight_decay=0.3", "train.label_smoothing=0.05", "train.steps=0", "train.patience=0",
    "train.validate_every=1500", "train.validation_sentences=200", "train.average_checkpoints=1", "train.metric=loss",
]  # fmt: skip


@dataclass(frozen=True)
class Pair:
    source: str
    target: str
    references: tuple[str, ...]  # all correct translations, the target first; in training only the target
    alignment: tuple[tuple[int, int], ...]  # positions in split_words(source) and split_words(target)


@dataclass(frozen=True)
class SampleCorpus:
    train: list[Pair]
    valid: list[Pair]
    test: list[Pair]
    longer: list[Pair]


def load_corpus() -> SampleCorpus:
    files = {name: content.decode().splitlines() for name, content in corpus_files().items()}
    return SampleCorpus(*(_pairs(files, name) for name in ("train", "valid", "test", "longer")))


def _pairs(files: Mapping[str, list[str]], name: str) -> list[Pair]:
    targets = files[f"{name}.hi"]
    rows = files.get(f"{name}.jsonl")
    references = [tuple(json.loads(row)["references"]) for row in rows] if rows else [(text,) for text in targets]
    links = [[link.partition("-") for link in line.split()] for line in files[f"{name}.align"]]
    alignments = [tuple((int(i), int(j)) for i, _, j in row) for row in links]
    return [Pair(*fields) for fields in zip(files[f"{name}.en"], targets, references, alignments, strict=True)]


def corpus_files() -> dict[str, bytes]:
    """Returns the files of the corpus by name."""
    with tarfile.open(ARCHIVE) as archive:
        members = [(member.name, archive.extractfile(member)) for member in archive]
        return {name: file.read() for name, file in members if file}


def write_files(files: Mapping[str, bytes], folder: Path) -> None:
    """Writes files to a folder, each atomically. An existing file with different content is an error and not overwritten."""
    for name, content in files.items():
        path = folder / name
        if path.exists() and path.read_bytes() != content:
            raise UserError(f"{path} already exists with different content: remove it, or choose another directory")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            with atomic_write(folder / name) as temporary:
                temporary.write_bytes(content)
    except OSError as error:
        raise UserError(f"cannot write to {folder}: {error.strerror or error}; choose another directory") from error
