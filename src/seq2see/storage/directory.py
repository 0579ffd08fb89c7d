"""A model is a directory: configuration, tokenizers, weights, scores and a model card.

    config.toml   tokenizer.json   (source.json, if the source has its own vocabulary)   model.safetensors
    scores.json   README.md   snapshots/   (chat.toml, the chat template of a language model, if it has one)
    words.txt, the words of the source in training   files.json, the sizes and hashes of the files
    (about.json, the languages, limits and data sources of a bundled model)

No file is a pickle, and all writes are atomic. A file that is missing, damaged, from another model or not a regular file is
reported before the model is used.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import save
from torch import Tensor

from seq2see.config import Config, InferencePrecision, TextConfig
from seq2see.data.known_words import KnownWords, load_words, save_words
from seq2see.data.tokenizer import Tokenizer
from seq2see.decode.optimize import column_major_weights, optimize_for_decoding
from seq2see.errors import UserError, foreign
from seq2see.model.network import Network, model_class
from seq2see.storage.bundled import find_model
from seq2see.storage.chat import FILE as CHAT_TEMPLATE
from seq2see.storage.chat import JINJA_FILE, ChatTemplate, ConversationTemplate, load_chat_template
from seq2see.storage.foreign_model import ForeignModel, open_foreign
from seq2see.storage.manifest import check_files, write_manifest
from seq2see.storage.pipeline import Pipeline
from seq2see.storage.scores import load_scores
from seq2see.tensors.device import bf16_supported, resolve_device
from seq2see.tensors.files import atomic_write, new_directory, write_text
from seq2see.tensors.quantize import dequantize
from seq2see.tensors.tensor_file import TensorFile

WEIGHTS = "model.safetensors"
WORDS = "words.txt"


class ModelFiles(NamedTuple):
    """Everything in a model directory except the weights."""

    folder: Path
    config: Config
    tokenizers: tuple[Tokenizer, Tokenizer]  # source, target
    scores: dict[str, Any]
    chat_template: ConversationTemplate
    known_words: KnownWords | None
    foreign: ForeignModel | None = None  # of another library


def load_pipeline(
    path: Path | str | None = None,
    device: str = "cpu",
    *,
    step: int | None = None,
    precision: InferencePrecision = "float32",
) -> Pipeline:
    """Loads the model in a directory, or a bundled one by name; with `step`, the snapshot taken at that training step.

    Also loads Hugging Face directories and GGUF files. The network is optimised for decoding in the given precision; int8 is
    for decoding on a CPU. With device "", the best available one is used.
    """
    files, device = load_files(path), resolve_device(device)
    file = folder = files.folder
    network: Network = model_class(files.config.model).on_meta_device(files.config.model)
    column_major = set[str]() if device.startswith("cuda") else column_major_weights(network)
    if files.foreign is not None and step is None:
        tensors = files.foreign.weights.tensors(network, torch.float32, column_major, device)
    else:
        file = folder / WEIGHTS if step is None else _existing_snapshot(folder, step)
        check_files(folder, [str(file.relative_to(folder))])
        if not file.exists():
            raise UserError(f"{folder} has no {WEIGHTS}: has training finished?")
        tensors = _stored_weights(file, device, column_major)
    try:
        with foreign("cannot read the weights"):
            network = network.with_weights(_read_weights(tensors))
    except UserError as error:
        if str(file) in str(error):
            raise
        raise UserError(f"{file}: {error}") from error
    network = _prepare_for_decoding(network.eval(), precision)
    network.use_engine = True
    pooling = files.foreign.pooling if files.foreign is not None else None
    return Pipeline(
        files.config,
        network,
        files.tokenizers,
        files.scores,
        files.chat_template,
        files.known_words,
        pooling,
        folder=folder,
    )


def load_files(path: Path | str | None) -> ModelFiles:
    """Loads everything except the weights, and checks that it belongs together."""
    folder = find_model(path)
    if model := open_foreign(folder):
        source, target = model.tokenizers
        shared = source is target or model.config.tie_embeddings == "all"  # Marian has two tokenizers with the same ids
        config = Config(model=model.config, text=TextConfig(shared_vocab=shared, normalize="none"))
        return ModelFiles(folder, config, model.tokenizers, {}, model.chat_template, None, model)
    if not (folder / "config.toml").exists():
        raise UserError(
            f"{folder} is not a model directory: it has no config.toml, and no config.json as of Hugging Face"
        )
    check_files(
        folder, ["config.toml", "tokenizer.json", "source.json", WORDS, f"{WORDS}.gz", CHAT_TEMPLATE, JINJA_FILE]
    )
    config, tokenizers = Config.load(folder / "config.toml"), load_tokenizers(folder)
    _check_vocabularies(folder, config, tokenizers)
    words = load_words(folder / WORDS)
    return ModelFiles(folder, config, tokenizers, load_scores(folder), load_chat_template(folder), words)


def _check_vocabularies(folder: Path, config: Config, tokenizers: tuple[Tokenizer, Tokenizer]) -> None:
    source, target = tokenizers
    model = config.model
    separate = model.shape == "encoder-decoder" and not config.text.shared_vocab
    if source is target and separate:
        raise UserError(f"{folder} has no source.json, the tokenizer of the source: copy the model directory again")
    for name, tokenizer, setting, size in (
        ("tokenizer.json", target, "vocab_size", model.vocab_size),
        ("source.json", source, "source_vocab_size", model.source_vocab_size or model.vocab_size),
    ):
        if len(tokenizer) != size:
            raise UserError(
                f"{folder / name} has {len(tokenizer):,} tokens, but model.{setting} in config.toml is {size:,}: it "
                "belongs to another model; copy the model directory again"
            )


def _stored_weights(file: Path, device: str, column_major: set[str]) -> Iterator[tuple[str, Tensor]]:
    """Yields the weights of a file of ours as float32.

    Each weight is copied out of the mapped file, in the layout for decoding: a mapped tensor need not start at a multiple of
    64 bytes, and the last bit of some products depends on that.
    """
    for name, weight in dequantize(TensorFile(file, device)):
        transpose = name in column_major and weight.dim() == 2
        yield name, weight.T.clone(memory_format=torch.contiguous_format).T if transpose else weight.clone()


def _read_weights(tensors: Iterable[tuple[str, Tensor]]) -> dict[str, Tensor]:
    """Reads all weights; a file that cannot be read, or holds NaN, is an error."""
    weights = {}
    for name, weight in tensors:
        weights[name] = weight
        # A NaN or an infinity would make the sum one, and a sum is fast.
        if not weight.sum().isfinite() and (bad := int((~weight.isfinite()).sum())):
            raise UserError(
                f"{bad:,} of the {weight.numel():,} values of tensor {name} are NaN or infinite: the training diverged or "
                "the file is damaged; use another snapshot or train again"
            )
    return weights


def _prepare_for_decoding(network: Network, precision: InferencePrecision) -> Network:
    if precision == "int8":
        from seq2see.decode.int8 import quantize_int8

        return quantize_int8(network)
    if precision == "float32":
        return optimize_for_decoding(network)
    if not network.embedding.weight.is_cuda and not bf16_supported():
        raise UserError(
            'this CPU does not support bf16: use precision "float32" or "int8"; if the CPU reports AMX but fails to run it, '
            "set ONEDNN_MAX_CPU_ISA=AVX512_CORE_FP16 in the environment"
        )
    return optimize_for_decoding(network.to(torch.bfloat16))


def snapshots(path: Path | str | None = None) -> list[int]:
    """Lists the training steps of which a model directory, or a bundled model, has the weights."""
    files = find_model(path).glob("snapshots/step-*.safetensors")
    return sorted(int(file.stem.removeprefix("step-")) for file in files)


def snapshot_file(folder: Path, step: int) -> Path:
    return folder / "snapshots" / f"step-{step:08d}.safetensors"


def _existing_snapshot(folder: Path, step: int) -> Path:
    known = snapshots(folder)
    if step not in known:
        raise UserError(
            f"{folder} has no snapshot of step {step:,}; available steps: {', '.join(map(str, known)) or 'none'}"
        )
    return snapshot_file(folder, step)


def save_weights(path: Path, weights: Mapping[str, Tensor], dtype: torch.dtype | None = torch.float32) -> None:
    """Saves weights in the given dtype, or each in its own if dtype is None."""
    with atomic_write(path) as part:
        # Not save_file: on a full disk it raises its own error instead of the system's OSError.
        part.write_bytes(save({name: w.detach().to("cpu", dtype).contiguous() for name, w in weights.items()}))


def save_tokenizers(folder: Path, tokenizers: tuple[Tokenizer, Tokenizer]) -> None:
    source, target = tokenizers
    target.save(folder / "tokenizer.json")
    if source is not target:
        source.save(folder / "source.json")


def load_tokenizers(folder: Path) -> tuple[Tokenizer, Tokenizer]:
    target = Tokenizer.load(folder / "tokenizer.json")
    source_path = folder / "source.json"
    return (Tokenizer.load(source_path) if source_path.is_file() else target), target


def save_config(folder: Path, config: Config) -> None:
    write_text(folder / "config.toml", config.to_toml())


def save_pipeline(pipeline: Pipeline, folder: Path) -> None:
    """Writes a complete model directory, or nothing."""
    weights = pipeline.network.state_dict()
    if weights.keys() != model_class(pipeline.config.model).weight_names(pipeline.config.model):
        raise UserError(
            "this model was converted for inference (bf16, int8 or for_inference): load it in float32 to save it"
        )
    with new_directory(folder) as temporary:
        save_config(temporary, pipeline.config)
        save_tokenizers(temporary, pipeline.tokenizers)
        save_weights(temporary / WEIGHTS, weights)
        write_text(temporary / "scores.json", json.dumps(dict(pipeline.scores), indent=1, ensure_ascii=False))
        if pipeline.chat_template != ChatTemplate():
            pipeline.chat_template.save(temporary / CHAT_TEMPLATE)
        if pipeline.known_words is not None:
            save_words(temporary / WORDS, pipeline.known_words)
        write_manifest(temporary)
