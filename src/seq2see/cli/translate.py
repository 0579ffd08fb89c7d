"""`seq2see translate`: text, lines or documents in another language."""

import io
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, Literal, cast

import typer

from seq2see.cli.loading import Device, Int8, ModelPath, converse, in_terminal, loaded
from seq2see.cli.progress import progress
from seq2see.errors import UsageError, UserError

if TYPE_CHECKING:
    from seq2see.text.check.measure import Watch
    from seq2see.translate.lines import Render, Stream
    from seq2see.translate.translator import Translator

Format = Literal["text", "jsonl"]

_STANDARD = Path("-")
_LIKE_A_PATH = re.compile(r"\S*/\S*|\S+\.[A-Za-z]\w{0,7}")


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
    from seq2see.translate.document import is_document

    if format == "text" and nbest > 1:
        raise UsageError(f"--nbest {nbest} gives several translations, and a line has room for one: add --format jsonl")
    files, words = _told_apart(inputs or [])
    documents = [file for file in files if is_document(file)]
    _check(files, documents, format, out)

    from seq2see.translate.lines import as_json, translated
    from seq2see.translate.notes import Notes
    from seq2see.translate.translator import Translator

    notes = Notes(lambda text: typer.echo(f"seq2see: {text}", err=True))
    translator = Translator(loaded(model, "encoder-decoder", device, int8), notes, max(beam, nbest))
    if not (inputs or out) and in_terminal() and format == "text":
        converse("> ", lambda text: _answer(text, translator), "Type a sentence to see its translation.")
        return
    with progress(bool(files) and (out is not None or not sys.stdout.isatty())) as watch:
        if documents:
            _translate_documents(files, out, translator, everything, watch)
        else:
            render: Render = translated if format == "text" else partial(as_json, nbest=nbest)
            _translate_lines(files, words, out, render, translator, watch)
    notes.sum_up()


def _told_apart(inputs: Sequence[str]) -> tuple[list[Path], str]:
    """The files that the arguments name, or the text that they are."""
    present = [name == "-" or os.path.exists(name) for name in inputs]
    missing = [name for name, there in zip(inputs, present, strict=True) if not there]
    if any(present) and missing:
        raise UserError(f"{missing[0]}: no such file")
    if missing and all(map(_LIKE_A_PATH.fullmatch, missing)):
        raise UserError(f'{missing[0]}: no such file; if it is text, echo "{missing[0]}" | seq2see translate')
    return ([], " ".join(missing)) if missing else (list(map(Path, inputs)), "")


def _check(files: Sequence[Path], documents: Sequence[Path], format: Format, out: Path | None) -> None:
    """Whether so many files, of these kinds, can be written where they should."""
    for file in files:
        if file.is_dir():
            raise UserError(f"{file} is a directory where a file is wanted: name the files in it")
    if not documents:
        if out is not None and out.is_dir():
            raise UserError(f"{out} is a directory, and lines go into one file: name that")
        return
    if format == "jsonl":
        raise UsageError(f"{documents[0]} keeps its form, which is not jsonl: leave out --format")
    if len(documents) < len(files):
        other = next(file for file in files if file not in documents)
        raise UsageError(f"{documents[0]} is a document and {other} is lines: translate them one after the other")
    if len(files) > 1 and (out is None or out.is_file()):
        raise UsageError(f"{len(files)} documents do not fit into one file: name a directory by --out")
    if len({file.name for file in files}) < len(files):
        raise UsageError(f"two of the {len(files)} documents have the same name: translate them one after the other")


def _answer(text: str, translator: "Translator") -> None:
    typer.echo(translator.translate([text], ["what you typed"])[0])


def _translate_lines(
    files: Sequence[Path], words: str, out: Path | None, render: "Render", translator: "Translator", watch: "Watch"
) -> None:
    from seq2see.translate.lines import ended, read

    with _writing(out) as output:
        for file in files or [_STANDARD]:
            name = "standard input" if file == _STANDARD else str(file)
            advance = watch(file.name, _size(file))
            with _reading(file, words) as stream:
                chunks = read(stream, "the text" if words else name, translator.notes)
                for lines in ended(chunks) if len(files) > 1 else chunks:
                    output.write(render(lines, translator).encode())
                    output.flush()
                    advance(sum(line.size for line in lines))


def _translate_documents(
    files: Sequence[Path], out: Path | None, translator: "Translator", everything: bool, watch: "Watch"
) -> None:
    from seq2see.translate.document import translate as translate_document

    for file in files:
        content = translate_document(file, translator, everything, watch)
        with _writing(out / file.name if out is not None and (out.is_dir() or len(files) > 1) else out) as output:
            output.write(content)


@contextmanager
def _reading(file: Path, words: str) -> Iterator["Stream"]:
    """The bytes of a file, decompressed; of standard input; or of the text in the command itself."""
    from seq2see.text.formats.lines import open_bytes

    if words:
        yield io.BytesIO(words.encode(errors="surrogateescape") + b"\n")
    elif file == _STANDARD:
        yield cast("Stream", sys.stdin.buffer)
    else:
        with open_bytes(file) if file.is_file() else file.open("rb") as stream:
            yield cast("Stream", stream)


@contextmanager
def _writing(out: Path | None) -> Iterator[BinaryIO]:
    """Standard output, or a file that is there only when it is whole."""
    from seq2see.files import written_whole

    if out is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    try:
        with written_whole(out) as part, part.open("wb") as output:
            yield output
    except OSError as error:
        raise UserError(f"cannot write {out}: {error.strerror}") from error


def _size(file: Path) -> int | None:
    """How many bytes there are to translate, if that can be known beforehand."""
    from seq2see.text.formats.tables import PACKED

    return file.stat().st_size if file.is_file() and file.suffix not in PACKED else None
