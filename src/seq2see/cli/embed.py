"""`seq2see embed`: vectors of whole texts by an encoder."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from seq2see.cli.engine_options import Engine, Field, Workers, check_engine, run_shards
from seq2see.cli.model_options import Device, Precision, load_model_of_shape
from seq2see.cli.streams import open_output, resolve_inputs
from seq2see.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor

PoolingName = Literal["mean", "first", "last", "max", "pooler"]


def embed(
    model: Annotated[
        Path, typer.Option("--model", help="Directory of an encoder, ours or Hugging Face's.", metavar="DIRECTORY")
    ],
    inputs: Annotated[
        list[str] | None, typer.Argument(metavar="TEXT|FILE", help="Text or files; by default standard input.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Output file: .npy for an array, otherwise one JSON object per line.", metavar="FILE"),
    ] = None,
    similarity: Annotated[
        tuple[str, str] | None,
        typer.Option(help="Print the cosine similarity of two texts instead.", metavar="TEXT TEXT"),
    ] = None,
    pooling: Annotated[
        PoolingName | None,
        typer.Option(help="How the tokens' vectors become one; by default as the model's files say, or mean."),
    ] = None,
    normalize: Annotated[
        bool | None,
        typer.Option(
            "--normalize/--no-normalize", help="Scale vectors to length 1; by default as the model's files say."
        ),
    ] = None,
    precision: Precision = "float32",
    device: Device = "",
    engine: Engine = "local",
    workers: Workers = 0,
    field: Field = "text",
) -> None:
    """Turn every line of text into a vector with an encoder.

    Examples:

    seq2see embed --model all-MiniLM-L6-v2 sentences.txt --out vectors.npy

    seq2see embed --model all-MiniLM-L6-v2 --similarity "A cat sleeps." "A kitten naps."

    seq2see embed --engine ray --model all-MiniLM-L6-v2 shards/*.jsonl --out vectors/
    """
    if similarity is not None and (inputs or out or engine == "ray"):
        raise UsageError("--similarity compares two texts: leave out the input, --out and --engine")
    check_engine(engine, workers)
    sources = [] if similarity is not None else resolve_inputs(inputs or [])
    if engine == "ray":
        from seq2see.cli.ray.tasks import EmbedShards, ModelOptions

        task = EmbedShards(ModelOptions(model, device, precision), pooling, normalize, field)
        run_shards(sources, out, task, workers)
        return
    encoder = load_model_of_shape(model, "encoder", device, precision)
    reads_text = encoder.config.model.source == "tokens"

    from seq2see.model.pooling import Pooling

    chosen = (encoder.pooling or Pooling()).with_options(pooling, normalize)
    if similarity is not None:
        first, second = encoder.embed(list(similarity), chosen)
        cosine = float(first @ second / (first.norm() * second.norm()))
        typer.echo(f"{cosine:.4f}")
        return

    from seq2see.translate.lines import read_chunks
    from seq2see.translate.warning_log import WarningLog

    warnings = WarningLog(lambda text: typer.echo(f"seq2see: {text}", err=True))
    texts = [] if reads_text else list(inputs or [])
    for source in sources if reads_text else ():
        with source.open() as stream:
            for lines in read_chunks(stream, source.name, warnings):
                texts += [line.text for line in lines]
    vectors = encoder.embed(texts, chosen)
    with open_output(out) as output:
        output.write(_npy(vectors) if out is not None and out.suffix == ".npy" else _json_lines(texts, vectors))
    warnings.summarize()


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
