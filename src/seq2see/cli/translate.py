"""`seq2see translate`: text, lines or documents in another language."""

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from seq2see.cli.model_options import Device, Int8, ModelPath, converse, in_terminal, loaded
from seq2see.cli.progress import progress
from seq2see.cli.streams import Source, sources, writing
from seq2see.errors import UsageError, UserError

if TYPE_CHECKING:
    from seq2see.text.check.statistics import Watch
    from seq2see.translate.lines import Render
    from seq2see.translate.translator import Translator

Format = Literal["text", "jsonl"]


def translate(
    inputs: Annotated[
        list[str] | None, typer.Argument(metavar="TEXT|FILE", help="Text, or files; else standard input.")
    ] = None,
    model: ModelPath = None,
    out: Annotated[
        Path | None, typer.Option(help="Write there; for several documents, a directory.", metavar="FILE")
    ] = None,
    beam: Annotated[int, typer.Option(help="Hypotheses that the search follows side by side.", min=1)] = 1,
    nbest: Annotated[int, typer.Option(help="Translations of each sentence, with --format jsonl.", min=1)] = 1,
    format: Annotated[
        Format, typer.Option(help="A line for each line, or an object with scores and word alignments.")
    ] = "text",
    everything: Annotated[
        bool, typer.Option("--all", help="Translate also the entries of a .po that have a translation.")
    ] = False,
    int8: Int8 = False,
    device: Device = "",
) -> None:
    """Translate text: as many lines come out as go in. Documents (.po .srt .vtt .md) keep their form.

    Examples:

    seq2see translate "How are you?"

    seq2see translate --model runs/en-hi < in.txt > out.txt

    seq2see translate --model runs/en-hi --beam 4 --nbest 3 --format jsonl in.txt --out out.jsonl

    seq2see translate --model runs/en-hi hi.po --out hi.po

    seq2see translate --model runs/en-hi guide.md README.md --out hi/
    """
    if format == "text" and nbest > 1:
        raise UsageError(f"--nbest {nbest} gives several translations, and a line has room for one: add --format jsonl")
    given = sources(inputs or [])
    documents = _documents(given, format, out)

    from seq2see.translate.lines import as_json, translated
    from seq2see.translate.notices import Notes
    from seq2see.translate.translator import Translator

    notes = Notes(lambda text: typer.echo(f"seq2see: {text}", err=True))
    translator = Translator(loaded(model, "encoder-decoder", device, int8), notes, max(beam, nbest))
    if not (inputs or out) and in_terminal() and format == "text":
        converse("> ", lambda text: _answer(text, translator), "Type a sentence to see its translation.")
        return
    # Where lines appear in the terminal, they are the progress.
    with progress(given[0].size is not None and (out is not None or not sys.stdout.isatty())) as watch:
        if documents:
            _translate_documents(documents, out, translator, everything, watch)
        else:
            render: Render = translated if format == "text" else partial(as_json, nbest=nbest)
            _translate_lines(given, out, render, translator, watch)
    notes.sum_up()


def _documents(given: Sequence[Source], format: Format, out: Path | None) -> list[Path]:
    """The documents to translate, or none where there are lines; so many must fit where they should go."""
    from seq2see.translate.documents import is_document

    files = [source.path for source in given if source.path]
    documents = [file for file in files if is_document(file)]
    if not documents:
        if out is not None and out.is_dir():
            raise UserError(f"{out} is a directory, and lines go into one file: name that")
        return []
    if format == "jsonl":
        raise UsageError(f"{documents[0]} keeps its form, which is not jsonl: leave out --format")
    if len(documents) < len(given):
        other = next(source.name for source in given if source.path not in documents)
        raise UsageError(f"{documents[0]} is a document and {other} is lines: translate them one after the other")
    if len(files) > 1 and (out is None or out.is_file()):
        raise UsageError(f"{len(files)} documents do not fit into one file: name a directory by --out")
    if len({file.name for file in files}) < len(files):
        raise UsageError(f"two of the {len(files)} documents have the same name: translate them one after the other")
    return documents


def _answer(text: str, translator: "Translator") -> None:
    typer.echo(translator.translate([text], ["what you typed"])[0])


def _translate_lines(
    given: Sequence[Source], out: Path | None, render: "Render", translator: "Translator", watch: "Watch"
) -> None:
    from seq2see.translate.lines import ended, read

    with writing(out) as output:
        for source in given:
            advance = watch(Path(source.name).name, source.size)
            with source.open() as stream:
                chunks = read(stream, source.name, translator.notes)
                for lines in ended(chunks) if len(given) > 1 else chunks:
                    output.write(render(lines, translator).encode())
                    output.flush()
                    advance(sum(line.size for line in lines))


def _translate_documents(
    files: Sequence[Path], out: Path | None, translator: "Translator", everything: bool, watch: "Watch"
) -> None:
    from seq2see.translate.documents import translate as translate_document

    for file in files:
        content = translate_document(file, translator, everything, watch)
        with writing(out / file.name if out is not None and (out.is_dir() or len(files) > 1) else out) as output:
            output.write(content)
