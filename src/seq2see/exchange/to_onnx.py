"""Writes a model as ONNX graphs: encoder, decoder, and decoder with past, for any batch and length.

    encoder_model.onnx             input_ids, attention_mask → last_hidden_state, or logits
    decoder_model.onnx             the first pass: input_ids, … → logits and the caches, present.N.…
    decoder_with_past_model.onnx   later passes: also reads the caches, past_key_values.N.…

Files, inputs and outputs have the names that Hugging Face's Optimum gives them. A decoder without an encoder reads a mask of
all tokens so far; its prompts are padded on the left.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from seq2see.config.model import Shape
from seq2see.errors import UserError
from seq2see.exchange.check import Check, Exporter, Samples, compare, count_equal, quiet
from seq2see.exchange.padded_model import (
    Encoder,
    LanguageModel,
    TranslationDecoder,
    TranslationStep,
)
from seq2see.exchange.tokenizer_files import TARGET
from seq2see.model.transformer import Transformer
from seq2see.storage.pipeline import Pipeline

FORMAT = "ONNX"
INSTALL = 'writing ONNX models needs the package "onnxscript": pip install "seq2see[onnx]"'
ENCODER, DECODER, STEP = "encoder_model.onnx", "decoder_model.onnx", "decoder_with_past_model.onnx"
OPSET = 20
MAX_PROTOBUF = 2**31 - 2**24  # bytes of weights in one file; more go to a file beside it


BATCH, LENGTH, PAST, SOURCE = (
    2,
    3,
    5,
    7,
)  # of the examples: all differ, also from 1, so that no axis is taken for another
AXES = {BATCH: "batch", LENGTH: "length", PAST: "past", SOURCE: "source", PAST + LENGTH: "past + length"}


@dataclass(frozen=True)
class Graph:
    """One graph: its module, and its inputs and outputs by name, with an example of each input."""

    file: str
    module: nn.Module
    inputs: dict[str, Tensor]
    outputs: list[str]
    past: dict[str, Tensor] = field(default_factory=dict)  # caches, which the module takes as one list


def write_onnx(pipeline: Pipeline, folder: Path, precision: str) -> list[str]:
    """Writes the graphs of a model. Returns what was done, in a few words each."""
    network = pipeline.network
    if not isinstance(network, Transformer):
        raise UserError(f'{FORMAT} export is for Transformers, not for model.kind = "{network.config.kind}"')
    try:
        import_module("onnxscript")  # what torch.onnx translates with
    except ImportError:
        raise UserError(INSTALL) from None
    for graph in _graphs(network):
        _export(graph, folder / graph.file)
        if precision == "int8":
            _quantize(folder / graph.file)
    names = [graph.file.removesuffix("_model.onnx") for graph in _graphs(network)]
    return [f"opset {OPSET}", " · ".join(names), f"up to {network.config.max_positions:,} positions"]


def _graphs(network: Transformer) -> Iterator[Graph]:
    config = network.config
    heads, width = config.actual_key_value_heads, config.actual_head_width

    def ones(length: int) -> Tensor:
        return torch.ones(BATCH, length, dtype=torch.int64)

    def caches(**lengths: int) -> dict[str, Tensor]:
        return {
            f"past_key_values.{layer}.{kind.replace('_', '.')}": torch.zeros(BATCH, heads, length, width)
            for layer in range(config.decoder_layers)
            for kind, length in lengths.items()
        }

    if config.has_encoder:
        inputs = {"input_ids": ones(SOURCE), "attention_mask": ones(SOURCE)}
        yield Graph(ENCODER, Encoder(network), inputs, ["logits" if config.masked_head else "last_hidden_state"])
    if not config.has_decoder:
        return
    if config.has_encoder:
        past = caches(decoder_key=PAST, decoder_value=PAST, encoder_key=SOURCE, encoder_value=SOURCE)
        outputs = _present(past)
        vectors, mask = torch.zeros(BATCH, SOURCE, config.width), ones(SOURCE)
        inputs = {"input_ids": ones(LENGTH), "encoder_hidden_states": vectors, "encoder_attention_mask": mask}
        yield Graph(DECODER, TranslationDecoder(network), inputs, outputs)
        inputs = {"input_ids": ones(LENGTH), "encoder_attention_mask": ones(SOURCE)}
        own = [name for name in outputs if ".encoder." not in name]
        yield Graph(STEP, TranslationStep(network), inputs, own, past)
        return
    past = caches(key=PAST, value=PAST)
    inputs = {"input_ids": ones(LENGTH), "attention_mask": ones(LENGTH)}
    yield Graph(DECODER, LanguageModel(network), inputs, _present(past))
    inputs = {"input_ids": ones(LENGTH), "attention_mask": ones(PAST + LENGTH)}
    yield Graph(STEP, LanguageModel(network), inputs, _present(past), past)


def _present(past: Iterable[str]) -> list[str]:
    return ["logits", *(name.replace("past_key_values", "present") for name in past)]


def _export(graph: Graph, path: Path) -> None:
    weights = sum(p.numel() * p.element_size() for p in graph.module.parameters())
    examples, past = list(graph.inputs.values()), list(graph.past.values())
    with quiet(), _without_logs(), torch.no_grad():
        torch.onnx.export(
            graph.module.eval(),
            (*examples, past) if past else tuple(examples),
            str(path),
            input_names=[*graph.inputs, *graph.past],
            output_names=graph.outputs,
            dynamo=True,
            dynamic_shapes=(*map(_axes, examples), *([list(map(_axes, past))] if past else [])),
            opset_version=OPSET,
            external_data=weights > MAX_PROTOBUF,
            verbose=False,
        )


def _axes(example: Tensor) -> dict[int, str]:
    """Returns the dynamic axes of ids and vectors, [batch, length, …], or of a cache, [batch, heads, length, width]."""
    return {axis: AXES[example.shape[axis]] for axis in ((0, 2) if example.dim() == 4 else (0, 1))}


@contextmanager
def _without_logs() -> Iterator[None]:
    previous = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(previous)


def _quantize(path: Path) -> None:
    """Quantises the matrices to int8, by onnxruntime's own tool."""
    try:
        from onnxruntime.quantization import QuantType, quantize_dynamic
    except ImportError:
        raise UserError('int8 needs the package "onnxruntime": pip install "seq2see[onnx]"') from None
    temporary = path.with_name(f"float32-{path.name}")
    path.rename(temporary)
    with quiet(), _without_logs():
        quantize_dynamic(temporary, path, weight_type=QuantType.QInt8, per_channel=True)
    temporary.unlink()


class Runner:
    """Runs an export in onnxruntime, one batch at a time."""

    def __init__(self, folder: Path, threads: int = 0) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        options.intra_op_num_threads = threads
        self.sessions = {
            file: onnxruntime.InferenceSession(folder / file, options, providers=["CPUExecutionProvider"])
            for file in (ENCODER, DECODER, STEP)
            if (folder / file).exists()
        }

    def run(self, file: str, inputs: dict[str, Any]) -> dict[str, Any]:
        session = self.sessions[file]
        names = [output.name for output in session.get_outputs()]
        return dict(zip(names, session.run(names, inputs), strict=True))

    def first_pass(self, source: list[int], ids: list[int]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Reads a source, if there is one, and ids; returns the outputs, and the inputs that stay the same in later passes."""
        if not source:
            return self.run(DECODER, {"input_ids": np.array([ids]), "attention_mask": _mask(ids)}), {}
        memory = self.run(ENCODER, {"input_ids": np.array([source]), "attention_mask": _mask(source)})
        fixed = {"encoder_attention_mask": _mask(source)}
        inputs = {"input_ids": np.array([ids]), "encoder_hidden_states": memory["last_hidden_state"], **fixed}
        return self.run(DECODER, inputs), fixed

    def greedy(
        self, source: list[int], prompt: list[int], new_tokens: int, end: Sequence[int], banned: Sequence[int]
    ) -> list[int]:
        """Generates after a prompt: of a translator with a source, of a language model without one."""
        outputs, fixed = self.first_pass(source, prompt)
        past: dict[str, Any] = {}
        found: list[int] = []
        while True:
            past |= {name.replace("present", "past_key_values"): x for name, x in outputs.items() if name != "logits"}
            logits = outputs["logits"][0, -1].copy()
            logits[list(banned)] = -np.inf
            token = int(logits.argmax())
            if token in end:
                return found
            found.append(token)
            if len(found) == new_tokens:
                return found
            mask = fixed or {"attention_mask": _mask([*prompt, *found])}
            outputs = self.run(STEP, {"input_ids": np.array([[token]]), **mask, **past})


def _mask(ids: Sequence[int]) -> Any:
    return np.ones((1, len(ids)), dtype=np.int64)


def check_onnx(samples: Samples, folder: Path) -> Check:
    """Runs an export in onnxruntime: logits and greedy output."""
    import onnxruntime

    runner, config, special = Runner(folder), samples.pipeline.config.model, samples.special_tokens
    theirs, found = [], []
    for ids, target in zip(samples.inputs, samples.targets, strict=True):
        if config.has_decoder:
            source, prompt = (ids, special.prompt_with(())) if samples.translates else ([], ids)
            outputs, _ = runner.first_pass(source, target)
            ends = (special.end, *special.other_ends)
            found.append(runner.greedy(source, prompt, samples.new_tokens, ends, special.banned))
        else:
            outputs = runner.run(ENCODER, {"input_ids": np.array([ids]), "attention_mask": _mask(ids)})
        theirs.append(torch.from_numpy(next(iter(outputs.values()))[0]))
    equal = {"greedy outputs": count_equal(samples.outputs(), found)} if config.has_decoder else {}
    quantity = "logits" if config.predicts_tokens else "vectors"
    return compare(f"onnxruntime {onnxruntime.__version__}", quantity, samples.results(), theirs, equal)


# Each pass reads all tokens again; decoder_with_past_model.onnx would read only the new one, and the caches.
USAGE: dict[Shape, str] = {
    "encoder-decoder": f"""import numpy as np
import onnxruntime
from tokenizers import Tokenizer

source = Tokenizer.from_file(PATH + "/tokenizer.json")
target = source  # if there is a directory {TARGET}/: Tokenizer.from_file(PATH + "/{TARGET}/tokenizer.json")
encoder, decoder = (onnxruntime.InferenceSession(PATH + "/" + file) for file in ("{ENCODER}", "{DECODER}"))
ids = np.array([source.encode("…").ids])
mask, output = np.ones_like(ids), [START]
(memory,) = encoder.run(None, {{"input_ids": ids, "attention_mask": mask}})
while output[-1] != END and len(output) < 100:
    inputs = {{"input_ids": np.array([output]), "encoder_hidden_states": memory, "encoder_attention_mask": mask}}
    (logits,) = decoder.run(["logits"], inputs)
    output.append(int(logits[0, -1].argmax()))
print(target.decode(output))""",
    "decoder": f"""import numpy as np
import onnxruntime
from tokenizers import Tokenizer

tokenizer, decoder = Tokenizer.from_file(PATH + "/tokenizer.json"), onnxruntime.InferenceSession(PATH + "/{DECODER}")
output = tokenizer.encode("…").ids
while output[-1] != END and len(output) < 100:
    ids = np.array([output])
    (logits,) = decoder.run(["logits"], {{"input_ids": ids, "attention_mask": np.ones_like(ids)}})
    output.append(int(logits[0, -1].argmax()))
print(tokenizer.decode(output))""",
    "encoder": f"""import numpy as np
import onnxruntime
from tokenizers import Tokenizer

tokenizer, session = Tokenizer.from_file(PATH + "/tokenizer.json"), onnxruntime.InferenceSession(PATH + "/{ENCODER}")
ids = np.array([tokenizer.encode("…").ids])
print(session.run(None, {{"input_ids": ids, "attention_mask": np.ones_like(ids)}})[0])""",
}
EXPORTER = Exporter(
    precisions=("float32", "int8"),
    runtime="onnxruntime",
    package="onnxruntime",
    write=lambda pipeline, folder, precision, source: write_onnx(pipeline, folder, precision),
    check=check_onnx,
    usage=USAGE,
)
