"""`seq2see export`: writes a model in the format of another library."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seq2see.cli.output import print_facts, print_json
from seq2see.config import ExportFormat, ExportPrecision, option

if TYPE_CHECKING:
    from seq2see.exchange.export import Exported


def export(
    to: Annotated[
        ExportFormat, typer.Option("--to", help="The format: of transformers, CTranslate2, ONNX or llama.cpp.")
    ],
    out: Annotated[Path, typer.Option(help="New directory for the exported model.", metavar="DIRECTORY")],
    model: Path | None = option(
        None,
        "Model directory, ours or Hugging Face's, or a GGUF file; by default the bundled en-hi.",
        argument=True,
        metavar="MODEL",
    ),
    precision: ExportPrecision = option(
        "float32", "Precision of the weights; huggingface has no int8, onnx only float32 and int8."
    ),
    as_json: bool = option(False, "Print the result as JSON.", flag="--json"),
) -> None:
    """Write a model in the format of another library, and compare it there with our own.

    The card, the licence and the scores go with it. A model that the format cannot hold is refused with the reason.

    Examples:

    seq2see export runs/en-hi --to huggingface --out en-hi-hf

    seq2see export runs/en-hi --to ctranslate2 --precision int8 --out en-hi-ct2

    seq2see export runs/my-gpt --to gguf --precision float16 --out my-gpt-gguf
    """
    from seq2see.exchange.export import check_target, export_model
    from seq2see.storage.bundled import find_model
    from seq2see.storage.directory import load_pipeline

    check_target(out, to, precision)
    source = find_model(model)
    exported = export_model(load_pipeline(source, "cpu"), source, out, to, precision)
    if as_json:
        result = {
            "directory": str(exported.path),
            "format": to,
            "precision": precision,
            "steps": exported.steps,
            "files": exported.files,
            "check": None if exported.check is None else vars(exported.check),
        }
        print_json(result)
        return
    _print(exported, to, precision)


def _print(exported: "Exported", to: ExportFormat, precision: str) -> None:
    from seq2see.exchange.export import EXPORTERS

    facts = {
        "directory": str(exported.path),
        "format": f"{to}, {precision}: {'; '.join(exported.steps)}",
        "files": "\n".join(f"{size:>13,}  {name}" for name, size in exported.files.items()),
        "check": EXPORTERS[to].not_checked if exported.check is None else str(exported.check),
    }
    print_facts(facts)
