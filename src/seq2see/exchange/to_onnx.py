"""Writes a model as ONNX graphs: encoder, decoder, and decoder with past, for any batch and length.

    encoder_model.onnx             input_ids, attention_mask → last_hidden_state, or logits
    decoder_model.onnx             the first pass: input_ids, … → logits and the caches, present.N.…
    decoder_with_past_model.onnx   later passes: also reads the caches, past_key_values.N.…

Files, inputs and outputs have the names that Hugging Face's Optimum gives them. A decoder without an encoder reads a mask of
all tokens so far; its prompts are padded on the left.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Graph:
    """One graph: its module with example inputs, and the names and dynamic axes of inputs and outputs."""

    file: str
    module: nn.Module
    inputs: tuple[Any, ...]
    names: list[str]
    axes: tuple[Any, ...]
    outputs: list[str]


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
    """Yields the graphs; all example sizes differ, also from 1, so that no axis is taken for another or a constant."""
    config = network.config
    batch, new, past, source = 2, 3, 5, 7
    B, L, P, U = "batch", "length", "past", "source"
    ids, mask = torch.ones(batch, new, dtype=torch.int64), torch.ones(batch, source, dtype=torch.int64)
    source_ids = torch.ones(batch, source, dtype=torch.int64)
    if config.has_encoder:
        output = "logits" if config.masked_head else "last_hidden_state"
        yield Graph(ENCODER, Encoder(network), (source_ids, mask), ["input_ids", "attention_mask"],
                    ({0: B, 1: U}, {0: B, 1: U}), [output])  # fmt: skip
    if not config.has_decoder:
        return
    shape = (batch, config.actual_key_value_heads)
    cached, from_source = (torch.zeros(*shape, n, config.actual_head_width) for n in (past, source))
    if config.has_encoder:
        memory = torch.zeros(batch, source, config.width)
        caches = cache_names(config.decoder_layers, ("decoder.key", "decoder.value", "encoder.key", "encoder.value"))
        yield Graph(
            DECODER, TranslationDecoder(network), (ids, memory, mask),
            ["input_ids", "encoder_hidden_states", "encoder_attention_mask"],
            ({0: B, 1: L}, {0: B, 1: U}, {0: B, 1: U}), ["logits", *(f"present.{name}" for name in caches)],
        )  # fmt: skip
        layer = [cached, cached, from_source, from_source]
        axes = [{0: B, 2: P}, {0: B, 2: P}, {0: B, 2: U}, {0: B, 2: U}]
        own = cache_names(config.decoder_layers, ("decoder.key", "decoder.value"))
        yield Graph(
            STEP, TranslationStep(network), (ids, mask, layer * config.decoder_layers),
            ["input_ids", "encoder_attention_mask", *(f"past_key_values.{name}" for name in caches)],
            ({0: B, 1: L}, {0: B, 1: U}, axes * config.decoder_layers), ["logits", *(f"present.{name}" for name in own)],
        )  # fmt: skip
        return
    caches = cache_names(config.decoder_layers, ("key", "value"))
    outputs = ["logits", *(f"present.{name}" for name in caches)]
    yield Graph(DECODER, LanguageModel(network), (ids, torch.ones_like(ids)), ["input_ids", "attention_mask"],
                ({0: B, 1: L}, {0: B, 1: L}), outputs)  # fmt: skip
    yield Graph(
        STEP, LanguageModel(network),
        (ids, torch.ones(batch, past + new, dtype=torch.int64), [cached] * 2 * config.decoder_layers),
        ["input_ids", "attention_mask", *(f"past_key_values.{name}" for name in caches)],
        ({0: B, 1: L}, {0: B, 1: "past + length"}, [{0: B, 2: P}] * 2 * config.decoder_layers), outputs,
    )  # fmt: skip


def cache_names(layers: int, kinds: Sequence[str]) -> list[str]:
    return [f"{layer}.{kind}" for layer in range(layers) for kind in kinds]


def _distinct(inputs: Any) -> Any:
    """Copies every tensor: torch takes one that occurs twice for a single input."""
    return inputs.clone() if isinstance(inputs, Tensor) else type(inputs)(map(_distinct, inputs))


def _export(graph: Graph, path: Path) -> None:
    weights = sum(p.numel() * p.element_size() for p in graph.module.parameters())
    with quiet(), _without_logs(), torch.no_grad():
        torch.onnx.export(
            graph.module.eval(), _distinct(graph.inputs), str(path), input_names=graph.names,
            output_names=graph.outputs, dynamo=True,
            dynamic_shapes=graph.axes, opset_version=OPSET, external_data=weights > MAX_PROTOBUF, verbose=False,
        )  # fmt: skip


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

    def greedy(
        self, source: list[int], prompt: list[int], new_tokens: int, end: Sequence[int], banned: Sequence[int]
    ) -> list[int]:
        """Generates after a prompt: of a translator with a source, of a language model without one."""
        ids = np.array([prompt])
        if source:
            inputs = {"input_ids": np.array([source]), "attention_mask": np.ones((1, len(source)), dtype=np.int64)}
            memory = self.run(ENCODER, inputs)["last_hidden_state"]
            fixed = {"encoder_attention_mask": inputs["attention_mask"]}
            outputs = self.run(DECODER, {"input_ids": ids, "encoder_hidden_states": memory, **fixed})
        else:
            outputs = self.run(DECODER, {"input_ids": ids, "attention_mask": np.ones_like(ids)})
        found: list[int] = []
        past = {name.replace("present", "past_key_values"): x for name, x in outputs.items() if name != "logits"}
        while True:
            logits = outputs["logits"][0, -1].copy()
            logits[list(banned)] = -np.inf
            token = int(logits.argmax())
            if token in end:
                return found
            found.append(token)
            if len(found) == new_tokens:
                return found
            mask = np.ones((1, len(prompt) + len(found)), dtype=np.int64)
            inputs = {"input_ids": np.array([[token]]), **(fixed if source else {"attention_mask": mask})}
            outputs = self.run(STEP, inputs | past)
            past |= {name.replace("present", "past_key_values"): x for name, x in outputs.items() if name != "logits"}


def check_onnx(samples: Samples, folder: Path) -> Check:
    """Runs an export in onnxruntime: logits and greedy output."""
    import onnxruntime

    runner, config = Runner(folder), samples.pipeline.config.model
    theirs: list[Tensor] = []
    for source, target in zip(samples.inputs, samples.targets, strict=True):
        inputs = {"input_ids": np.array([source]), "attention_mask": np.ones((1, len(source)), dtype=np.int64)}
        if config.has_encoder:
            outputs = runner.run(ENCODER, inputs)
        if config.shape == "encoder-decoder":
            translation = {
                "input_ids": np.array([target]), "encoder_hidden_states": outputs["last_hidden_state"],
                "encoder_attention_mask": inputs["attention_mask"],
            }  # fmt: skip
            outputs = runner.run(DECODER, translation)
        elif config.has_decoder:
            outputs = runner.run(DECODER, inputs)
        theirs.append(torch.from_numpy(next(iter(outputs.values()))[0]))
    equal = {}
    if config.has_decoder:
        special = samples.special_tokens
        ends = (special.end, *special.other_ends)
        found = [
            runner.greedy(ids, special.prompt_with(()), samples.new_tokens, ends, special.banned)
            if samples.translates
            else runner.greedy([], ids, samples.new_tokens, ends, special.banned)
            for ids in samples.inputs
        ]
        equal["greedy outputs"] = count_equal(samples.outputs(), found)
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
