"""`seq2see embed`: vectors of whole texts by an encoder."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from seq2see.cli.inputs import TextInput, resolve_inputs
from seq2see.cli.model_options import Compute
from seq2see.cli.output import open_output, printed_warnings
from seq2see.cli.ray.options import RayOptions
from seq2see.config import option
from seq2see.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor

    from seq2see.translate.warning_log import WarningLog

PoolingName = Literal["mean", "first", "last", "max", "pooler"]


def embed(
    model: Annotated[
        Path, typer.Option("--model", help="Directory of an encoder, ours or Hugging Face's.", metavar="DIRECTORY")
    ],
    inputs: list[str] | None = option(
        None, "Text or files; by default standard input.", argument=True, metavar="TEXT|FILE"
    ),
    out: Path | None = option(
        None, "Output file: .npy for an array, otherwise one JSON object per line.", metavar="FILE"
    ),
    similarity: tuple[str, str] | None = option(
        None, "Print the cosine similarity of two texts instead.", metavar="TEXT TEXT"
    ),
    pooling: PoolingName | None = option(
        None, "How the tokens' vectors become one; by default as the model's files say, or mean."
    ),
    normalize: bool | None = option(
        None, "Scale vectors to length 1; by default as the model's files say.", flag="--normalize/--no-normalize"
    ),
    *,
    compute: Compute,
    ray: RayOptions,
) -> None:
    """Turn every line of text into a vector with an encoder.

    Examples:

    seq2see embed --model all-MiniLM-L6-v2 sentences.txt --out vectors.npy

    seq2see embed --model all-MiniLM-L6-v2 --similarity "A cat sleeps." "A kitten naps."

    seq2see embed --engine ray --model all-MiniLM-L6-v2 shards/*.jsonl --out vectors/
    """
    if similarity is not None and (inputs or out or ray.engine == "ray"):
        raise UsageError("--similarity compares two texts: leave out the input, --out and --engine")
    on_cluster = ray.on_cluster
    sources = [] if similarity is not None else resolve_inputs(inputs or [])
    if on_cluster:
        from seq2see.cli.ray.tasks import EmbedShards, ModelOptions

        options = ModelOptions(model, compute.device, compute.precision)
        ray.run(sources, out, EmbedShards(options, pooling, normalize, ray.field))
        return
    encoder = compute.load_of_shape(model, "encoder")
    from seq2see.model.pooling import Pooling

    chosen = (encoder.pooling or Pooling()).with_options(pooling, normalize)
    if similarity is not None:
        first, second = encoder.embed(list(similarity), chosen)
        typer.echo(f"{float(first @ second / (first.norm() * second.norm())):.4f}")
        return
    reads_text = encoder.config.model.source == "tokens"
    warnings = printed_warnings()
    texts = _lines(sources, warnings) if reads_text else list(inputs or [])
    vectors = encoder.embed(texts, chosen)
    with open_output(out) as output:
        output.write(_npy(vectors) if out is not None and out.suffix == ".npy" else _json_lines(texts, vectors))
    warnings.summarize()


def _lines(sources: Sequence[TextInput], warnings: "WarningLog") -> list[str]:
    return [line.text for source in sources for lines in source.read(warnings) for line in lines]


def _npy(vectors: "Tensor") -> bytes:
    import io

    import numpy as np

    buffer = io.BytesIO()
    np.save(buffer, vectors.numpy())
    return buffer.getvalue()


def _json_lines(texts: list[str], vectors: "Tensor") -> bytes:
    rows = zip(texts, vectors.tolist(), strict=True)
    lines = [json.dumps({"text": text, "vector": vector}, ensure_ascii=False) + "\n" for text, vector in rows]
    return "".join(lines).encode()
