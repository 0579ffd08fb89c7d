"""Writes a model as a Hugging Face directory that `transformers` opens: config.json, safetensors and a tokenizer."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from seq2see.config import ExportPrecision, ModelConfig
from seq2see.config.model import Shape
from seq2see.data.framing import Framing
from seq2see.data.tokenizer import Tokenizer
from seq2see.errors import UserError
from seq2see.exchange.check import BEAM, Check, Exporter, Samples, compare, count_equal, quiet
from seq2see.exchange.families import FAMILIES
from seq2see.exchange.files import WEIGHTS, read_config
from seq2see.exchange.nearest import Nearest, find_nearest
from seq2see.exchange.tables import Keys
from seq2see.exchange.tokenizer_files import TARGET
from seq2see.exchange.tokenizer_writer import FILES, copy_tokenizers, write_tokenizers
from seq2see.storage.foreign_model import find_reader
from seq2see.storage.pipeline import Pipeline

FORMAT = "Hugging Face"
DTYPES = {"float32": torch.float32, "bf16": torch.bfloat16, "float16": torch.float16}
NEVER = -1e4  # the bias of tokens that are never generated, as half precision can hold it


def write_huggingface(pipeline: Pipeline, folder: Path, precision: ExportPrecision, source: Path) -> list[str]:
    """Writes a model; one that comes from a Hugging Face directory keeps its family and tokenizers."""
    config, tokenizers = pipeline.config.model, pipeline.tokenizers
    original, dtype = _original(pipeline, source), DTYPES[precision]
    keys = special_token_keys(tokenizers[1].framing, config)
    preferred = str(read_config(original)["model_type"]) if original is not None else ""
    weights, offset = pipeline.network.state_dict(), 0
    try:
        found = find_family(config, keys, preferred)
    except UserError:
        joint = _joint_vocabulary(config)
        if joint is None:
            raise
        found, weights, offset = find_family(joint, keys), _joint_weights(weights, config), config.vocab_size
    family = FAMILIES[found.name]
    theirs = {
        "model_type": found.name,
        **family.foreign_config(found.config),
        **keys,
        "dtype": str(dtype).removeprefix("torch."),
    }
    _write_json(folder / "config.json", theirs)
    _write_json(folder / "generation_config.json", _generation(keys, config, tokenizers[1].framing))
    tensors = family.foreign_tensors(found.config, found.weights(weights))
    # Not save_file, whose file only its owner can read, and which hides the system's error on a full disk.
    (folder / WEIGHTS).write_bytes(save(_unique(tensors, dtype), {"format": "pt"}))
    if original is not None:
        copy_tokenizers(original, folder)
    else:
        write_tokenizers(folder, pipeline, offset)
    steps = [f"family {family.name}", *(rewriting.summary for rewriting in found.rewritings)]
    return [*steps, f"one vocabulary: ids of the source begin at {offset:,}"] if offset else steps


def _original(pipeline: Pipeline, source: Path) -> Path | None:
    """Returns the Hugging Face directory that a model is, or was trained from, if its tokenizers are still the model's."""
    for path in (source, Path(pipeline.config.train.init) if pipeline.config.train.init else None):
        if path is None or not path.is_dir() or not (reader := find_reader(path)):
            continue
        try:
            theirs = reader.open(path).tokenizers
        except UserError:
            continue
        if all(map(_same_tokens, theirs, pipeline.tokenizers)):
            return path
    return None


def _same_tokens(one: Tokenizer, other: Tokenizer) -> bool:
    # Not their fingerprints: the library changes the last digit of a score when it reads its own file.
    if len(one) != len(other) or one.framing != other.framing:
        return False
    return all(one.token_text(id) == other.token_text(id) for id in range(len(one)))


def _joint_vocabulary(config: ModelConfig) -> ModelConfig | None:
    """Returns the same translator with one vocabulary, the target's tokens before the source's, if it has two."""
    if config.shape != "encoder-decoder" or config.tie_embeddings != "target":
        return None
    size = config.vocab_size + (config.source_vocab_size or config.vocab_size)
    return replace(config, vocab_size=size, source_vocab_size=0, tie_embeddings="all", output_bias=True)


def _joint_weights(weights: Mapping[str, Tensor], config: ModelConfig) -> dict[str, Tensor]:
    joint = {name: tensor for name, tensor in weights.items() if name != "source_embedding.weight"}
    source, target = weights["source_embedding.weight"], weights["embedding.weight"]
    bias = weights.get("unembedding_bias", torch.zeros(config.vocab_size))
    joint["embedding.weight"] = torch.cat([target, source])
    joint["unembedding_bias"] = torch.cat([bias, torch.full((len(source),), NEVER)])
    return joint


def find_family(config: ModelConfig, keys: Keys, preferred: str = "") -> Nearest:
    """Returns the family of transformers that can hold a model; a model that none can hold is refused."""
    names = sorted(FAMILIES, key=lambda name: name != preferred)
    titles: dict[str, str] = {}
    for name in names:  # some names share a family
        if FAMILIES[name].name not in titles.values():
            titles[name] = FAMILIES[name].name
    return find_nearest(config, FORMAT, titles, lambda name, config: FAMILIES[name].held(config, keys))


def special_token_keys(framing: Framing, config: ModelConfig) -> Keys:
    """Returns the keys of config.json about special tokens."""
    keys: Keys = {"pad_token_id": framing.pad, "bos_token_id": framing.start, "eos_token_id": framing.end}
    if config.shape == "encoder-decoder":
        keys["decoder_start_token_id"] = framing.prompt[0] if framing.prompt else framing.start
    return keys


def _generation(keys: Keys, config: ModelConfig, framing: Framing) -> Keys:
    """Returns generation_config.json: the special tokens, and what generate() needs to give our outputs."""
    if not config.has_decoder:
        return {}
    keys = {**keys, "max_length": config.max_positions}
    if framing.other_ends:
        keys["eos_token_id"] = [framing.end, *framing.other_ends]
    if framing.forced:
        keys["forced_bos_token_id"] = framing.prompt[1]
    if framing.banned:
        keys["bad_words_ids"] = [[id] for id in framing.banned]
    return keys


def _unique(tensors: Any, dtype: torch.dtype) -> dict[str, Tensor]:
    """Collects tensors; two of ours that theirs stores once must be equal."""
    found: dict[str, Tensor] = {}
    for name, tensor in tensors:
        tensor = tensor.to(dtype) if tensor.is_floating_point() else tensor
        if name in found and not torch.equal(found[name], tensor):
            raise UserError(
                f"the source and target embeddings differ, but {FORMAT}'s class has one tensor {name} for both"
            )
        found[name] = tensor
    return found


def _write_json(path: Path, table: Mapping[str, Any]) -> None:
    if table:
        path.write_text(json.dumps(table, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


@torch.inference_mode()
def check_huggingface(samples: Samples, folder: Path) -> Check:
    """Loads an export in transformers and compares the logits, and the outputs of greedy and beam search."""
    import transformers

    config = samples.pipeline.config.model
    verbosity = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    try:
        with quiet():
            return _check(transformers, samples, folder, config)
    finally:
        transformers.logging.set_verbosity(verbosity)
        transformers.logging.enable_progress_bar()


def _check(transformers: Any, samples: Samples, folder: Path, config: ModelConfig) -> Check:
    classes = {"encoder-decoder": "AutoModelForSeq2SeqLM", "decoder": "AutoModelForCausalLM"}
    name = classes.get(config.shape, "AutoModelForMaskedLM" if config.masked_head else "AutoModel")
    model = getattr(transformers, name).from_pretrained(folder, dtype=torch.float32, local_files_only=True).eval()
    sizes = [len(tokenizer) for tokenizer in samples.pipeline.tokenizers]
    offset = sizes[1] if config.tie_embeddings == "target" and model.config.vocab_size == sum(sizes) else 0
    sources = [[id + offset for id in ids] for ids in samples.inputs]
    outputs = []
    for source, target in zip(sources, samples.targets, strict=True):
        extra = {"decoder_input_ids": torch.tensor([target])} if config.shape == "encoder-decoder" else {}
        result = model(input_ids=torch.tensor([source]), **extra)
        rows = (result.logits if config.predicts_tokens else result.last_hidden_state)[0].float()
        outputs.append(rows[:, : sizes[1]] if offset else rows)
    equal = {}
    if any((folder / name).exists() for name in FILES):
        equal["tokenized texts"] = count_equal(sources, _tokenize(transformers, samples, folder))
    if config.has_decoder:
        for beam, what in ((1, "greedy outputs"), (BEAM, f"outputs with beam {BEAM}")):
            equal[what] = count_equal(samples.outputs(beam), _generate(model, samples, sources, beam))
    quantity = "logits" if config.predicts_tokens else "vectors"
    return compare(f"transformers {transformers.__version__}", quantity, samples.results(), outputs, equal)


def _tokenize(transformers: Any, samples: Samples, folder: Path) -> list[list[int]]:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    return [tokenizer(text)["input_ids"] for text in samples.texts]


def _generate(model: Any, samples: Samples, sources: list[list[int]], beam: int) -> list[Sequence[int]]:
    """Generates one text at a time, without padding."""
    found = []
    special, translates = samples.special_tokens, model.config.is_encoder_decoder
    ends = {special.end, *special.other_ends}
    for ids in sources:
        start = len(special.prompt_with(())) if translates else len(ids)
        forced = special.forced if translates else 0
        out = model.generate(
            torch.tensor([ids]),
            num_beams=beam,
            do_sample=False,
            max_length=None,
            max_new_tokens=samples.new_tokens + forced,
        )
        row = out[0, start:].tolist()
        end = next((i for i, id in enumerate(row) if id in ends), len(row))
        found.append(row[:end])
    return found


USAGE: dict[Shape, str] = {
    "encoder-decoder": f"""from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

model, tokenizer = AutoModelForSeq2SeqLM.from_pretrained(PATH), AutoTokenizer.from_pretrained(PATH)
# If there is a directory {TARGET}/, the target has its own: AutoTokenizer.from_pretrained(PATH, subfolder="{TARGET}") decodes.
output = model.generate(**tokenizer("…", return_tensors="pt"))
print(tokenizer.decode(output[0], skip_special_tokens=True))""",
    "decoder": """from transformers import AutoModelForCausalLM, AutoTokenizer

model, tokenizer = AutoModelForCausalLM.from_pretrained(PATH), AutoTokenizer.from_pretrained(PATH)
output = model.generate(**tokenizer("…", return_tensors="pt"))
print(tokenizer.decode(output[0], skip_special_tokens=True))""",
    "encoder": """from transformers import AutoModel, AutoTokenizer

model, tokenizer = AutoModel.from_pretrained(PATH), AutoTokenizer.from_pretrained(PATH)
vectors = model(**tokenizer("…", return_tensors="pt")).last_hidden_state""",
}
EXPORTER = Exporter(
    precisions=("float32", "bf16", "float16"),
    runtime="transformers",
    package="transformers",
    write=write_huggingface,
    check=check_huggingface,
    usage=USAGE,
    has_tokenizers=True,
)
