"""Prints what the build of the page takes from the Python package, as JSON: the API's schemas, and lines of model code.

Besides the schemas of the OpenAPI document there are two that no endpoint declares: the data of the self-contained page,
and `LessonResults`, the result of each lesson by name, which the API declares as a plain object.

The page shows a line of model code beside each step. What only records a value (`taps`) or is inactive outside training
(`dropout`) is left out, so that the mathematics remains. An excerpt is one statement, found by its file and a fragment that
only this statement contains. Layout does not matter: reformatting never breaks an excerpt, and a fragment that no longer
matches fails the build and a test.
"""

import ast
import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, create_model

import seq2see
from seq2see.course.lessons import LESSONS
from seq2see.server.explore.app import create_app
from seq2see.server.explore.static_export import EmbeddedData

SOURCE_DIRECTORY = Path(seq2see.__file__).parent
EXCERPTS: Mapping[str, tuple[str, str]] = {
    "tokens": ("model/network.py", 'taps("tokens"'),
    "embedding": ("model/network.py", "table(ids)"),
    "patches": ("formats/media/pictures.py", "squares.transpose(2, 0, 1, 3, 4)"),
    "patch_projection": ("model/source_readers.py", "self.projection(taps("),
    "mel_frames": ("formats/media/sounds.py", "mel_filters(bands) @ power"),
    "first_convolution": ("model/source_readers.py", "self.conv1(padded.mT)"),
    "second_convolution": ("model/source_readers.py", "self.conv2(convolved.mT)"),
    "segments": ("model/transformer.py", 'taps("segments"'),
    "positions": ("model/transformer.py", 'taps("positions"'),
    "layer_norm": ("model/layers.py", "(variance + self.eps)"),
    "rms_norm": ("model/layers.py", "(mean_square + self.eps)"),
    "queries_keys_values": ("model/layers.py", "self.queries_keys_values(x)"),
    "cross_queries": ("model/layers.py", "self.queries(x)"),
    "cross_keys_values": ("model/layers.py", "self.keys_values(p.memory.vectors)"),
    "query_key_norm": ("model/layers.py", 'taps("normed_queries"'),
    "rotation": ("model/layers.py", 'taps("rotated_queries"'),
    "scores": ("model/attention.py", 'taps("scores"'),
    "scaled": ("model/attention.py", 'taps("scaled"'),
    "capped": ("model/attention.py", 'taps("capped"'),
    "biased": ("model/attention.py", 'taps("biased"'),
    "masked": ("model/attention.py", 'taps("masked"'),
    "weights": ("model/attention.py", 'taps("weights"'),
    "heads": ("model/attention.py", "weights @ v"),
    "output_projection": ("model/layers.py", 'taps("projected"'),
    "up_projection": ("model/layers.py", "self.up(x)"),
    "activation": ("model/layers.py", "self.activation(hidden)"),
    "gated_activation": ("model/layers.py", 'taps("gate"'),
    "down_projection": ("model/layers.py", "self.down(self.dropout"),
    "output_norm": ("model/layers.py", "self.output_norm(y"),
    "residual": ("model/layers.py", 'x = around.after(self_taps("sum"'),
    "masked_head": ("model/layers.py", "self.dense(x)"),
    "masked_head_activation": ("model/layers.py", 'taps("post_activation", self.activation(x))'),
    "unembedding": ("model/network.py", "self.unembedding(vectors)"),
    "tied_unembedding": ("model/network.py", "F.linear(vectors"),
    "probabilities": ("inspect/trace.py", '["logits"].softmax(-1)'),
    "greedy": ("decode/search.py", "fast_topk(logprobs, 1)"),
    "rnn.encoder": ("course/recurrent/network.py", "run_lstm(lstm, x[backwards]"),
    "rnn.bidirectional_encoder": ("course/recurrent/network.py", "hidden, _ = run_lstm("),
    "rnn.last_state": ("course/recurrent/network.py", "hidden[last]"),
    "rnn.encoder_vectors": ("course/recurrent/network.py", 'return taps("vectors", x)'),
    "rnn.initial_state": ("course/recurrent/network.py", "torch.tanh(self.initial_state("),
    "rnn.keys_values": ("course/recurrent/network.py", 'cross("keys"'),
    "rnn.queries": ("course/recurrent/network.py", 'taps("queries"'),
    "rnn.energies": ("course/recurrent/network.py", "torch.tanh(queries + memory.keys)"),
    "rnn.weights": ("course/recurrent/network.py", 'taps("weights"'),
    "rnn.heads": ("course/recurrent/network.py", 'taps("heads"'),
    "rnn.decoder": ("course/recurrent/network.py", "run_lstm(lstm, x, layout, state"),
    "rnn.attending_decoder": ("course/recurrent/network.py", "self.cell(torch.cat("),
    "rnn.decoder_vectors": ("course/recurrent/network.py", 'taps("vectors", x), torch.stack('),
    "rnn.combined_vectors": ("course/recurrent/network.py", "torch.tanh(self.combine("),
}


def schemas() -> dict[str, Any]:
    result: dict[str, Any] = {**create_app({}).state.api.create().openapi()["components"]["schemas"]}
    # The prefix distinguishes the lessons' dataclasses from response models of the same name.
    for model, prefix in ((EmbeddedData, ""), (_lesson_results(), "Lesson_")):
        template = f"#/components/schemas/{prefix}{{model}}"
        schema = model.model_json_schema(mode="serialization", ref_template=template)
        result |= {prefix + name: definition for name, definition in schema.pop("$defs", {}).items()}
        result[model.__name__] = schema
    return result


def _lesson_results() -> type[BaseModel]:
    fields: dict[str, Any] = {name: (lesson.module.Result, ...) for name, lesson in LESSONS.items()}
    config = ConfigDict(json_schema_serialization_defaults_required=True)
    return create_model("LessonResults", __config__=config, **fields)


def code_excerpts() -> dict[str, dict[str, str]]:
    """Returns the file and the line of code of every excerpt."""
    return {name: {"file": file, "line": find_statement(file, text)} for name, (file, text) in EXCERPTS.items()}


def find_statement(file: str, fragment: str) -> str:
    """Returns the statement that equals the fragment, or else the only one that contains it, on one line."""
    statements, target = _statements(SOURCE_DIRECTORY / file), _normalize(fragment)
    matching = [found for found in statements if found[0] == target] or [
        found for found in statements if target in found[0]
    ]
    if len(matching) != 1:
        raise ValueError(f'{len(matching)} statements of {file} contain "{fragment}", expected 1: update EXCERPTS')
    _, text, node = matching[0]
    plain = ast.unparse(_Plain().visit(ast.parse(ast.unparse(node)).body[0]))
    return plain if "\n" in text or plain != ast.unparse(node) else text


@cache
def _statements(path: Path) -> list[tuple[str, str, ast.stmt]]:
    """The simple statements of a file: normalized, as they are written, and parsed."""
    source = path.read_text(encoding="utf-8")
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.stmt) and not hasattr(node, "body")]
    texts = [ast.get_source_segment(source, node) or "" for node in nodes]
    return [(_normalize(text), text, node) for text, node in zip(texts, nodes, strict=True)]


class _Plain(ast.NodeTransformer):
    """Replaces taps("scores", x) and self.dropout(x) by x, and leaves out arguments such as taps.at("norm")."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        function = ast.unparse(node.func)
        if function.endswith("taps") or function == "cross":
            return node.args[1]
        if function == "self.dropout":
            return node.args[0]
        node.args = [one for one in node.args if not re.match(r"(\w+_)?taps\b|NO_TAPS\b", ast.unparse(one))]
        return node


def _normalize(code: str) -> str:
    """Removes what a formatter may change: whitespace, trailing commas and the kind of quotes."""
    return re.sub(r",(?=[)\]}])", "", re.sub(r"\s", "", code).replace("'", '"'))


if __name__ == "__main__":
    print(json.dumps({"schemas": schemas(), "code": code_excerpts()}))
