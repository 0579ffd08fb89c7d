"""`seq2see translate`: translates text, lines or documents."""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from seq2see.cli.corpus_options import refuse_overwriting
from seq2see.cli.engine_options import Engine, Field, Workers, check_engine, run_shards
from seq2see.cli.model_options import (
    Device,
    ModelPath,
    Precision,
    SourceLanguage,
    TargetLanguage,
    To,
    choose_model,
    is_interactive,
    load_model_of_shape,
    prompt_loop,
    with_languages,
)
from seq2see.cli.progress import progress
from seq2see.cli.streams import TextInput, open_output, resolve_inputs
from seq2see.config.search import Search
from seq2see.errors import UsageError, UserError
from seq2see.storage.bundled import model_label
from seq2see.tensors.files import check_output

if TYPE_CHECKING:
    from seq2see.api import Model
    from seq2see.errors import ProgressFactory
    from seq2see.translate.lines import TranslateChunk
    from seq2see.translate.translator import Translator

Format = Literal["text", "jsonl"]
IN_PLACE = (".po", ".pot")  # files that keep the source text, and so can be their own output
FILES_AT_ONCE = 64  # pictures or sounds in memory


def translate(
    inputs: Annotated[
        list[str] | None,
        typer.Argument(metavar="TEXT|FILE", help="Text or files, also pictures or sounds; by default standard input."),
    ] = None,
    model: ModelPath = None,
    to: To = None,
    out: Annotated[
        Path | None, typer.Option(help="Output file; for several documents, a directory.", metavar="FILE")
    ] = None,
    beam: Annotated[int, typer.Option(help="Beam size.", min=1)] = 1,
    nbest: Annotated[int, typer.Option(help="Number of translations per sentence, with --format jsonl.", min=1)] = 1,
    format: Annotated[
        Format, typer.Option(help="One line of text per line, or one JSON object with scores and word alignments.")
    ] = "text",
    glossary: Annotated[
        Path | None,
        typer.Option(help="Translations to use: a term, a tab and its translation per line.", metavar="FILE"),
    ] = None,
    retranslate: Annotated[
        bool, typer.Option("--all", help="Also replace existing translations in a .po file.")
    ] = False,
    source_language: SourceLanguage = None,
    target_language: TargetLanguage = None,
    timestamps: Annotated[
        bool, typer.Option("--timestamps", metavar="", help="Write subtitles (.srt): what a recording says, and when.")
    ] = False,
    precision: Precision = "float32",
    device: Device = "",
    engine: Engine = "local",
    workers: Workers = 0,
    field: Field = "text",
) -> None:
    """Translate text line by line, or documents (.po .srt .vtt .md .html) with their formatting; read pictures or sounds.

    Examples:

    seq2see translate "How are you?"

    seq2see translate --to hi "How are you?"

    seq2see translate --model runs/en-hi < in.txt > out.txt

    seq2see translate --model runs/en-hi --beam 4 --nbest 3 --format jsonl in.txt --out out.jsonl

    seq2see translate --to fr --glossary terms.tsv in.txt --out out.txt

    seq2see translate --model runs/en-hi hi.po --out hi.po

    seq2see translate --model runs/en-hi guide.md README.md --out hi/

    seq2see translate --model runs/digits one.wav two.wav

    seq2see translate --model nllb-200-distilled-600M --target-language fra_Latn "How are you?"

    seq2see translate --engine ray --model runs/en-hi shards/*.parquet --field en --out translated/
    """
    if format == "text" and nbest > 1:
        raise UsageError(f"--nbest {nbest} gives several translations per sentence: add --format jsonl")
    check_engine(engine, workers)
    search = Search(beam=max(beam, nbest), nbest=nbest)
    directory = choose_model(model, to)
    sources = resolve_inputs(inputs or [])
    if engine == "ray":
        if glossary is not None:
            raise UsageError("--glossary is for --engine local: leave one of them out")
        from seq2see.cli.ray.tasks import ModelOptions, TranslateShards

        options = ModelOptions(directory, device, precision, (source_language, target_language))
        _refuse_documents(sources)
        task = TranslateShards(options, search, format == "jsonl", field)
        run_shards(sources, out, task, workers)
        return
    refuse_overwriting(glossary, out)
    for source in sources:
        if source.path and source.path.suffix.lower() not in IN_PLACE:
            refuse_overwriting(source.path, out / source.path.name if out and out.is_dir() else out)
    documents = _documents(sources, format, out)

    from seq2see.data.formats.media import is_media
    from seq2see.translate.glossary import read_glossary
    from seq2see.translate.lines import translate_lines, translate_lines_as_json
    from seq2see.translate.translator import Translator
    from seq2see.translate.warning_log import WarningLog

    terms = read_glossary(glossary) if glossary else {}
    warnings = WarningLog(lambda text: typer.echo(f"seq2see: {text}", err=True))
    loaded = load_model_of_shape(directory, "encoder-decoder", device, precision)
    loaded = with_languages(loaded, source_language, target_language)
    if loaded.config.model.source != "tokens":
        if nbest > 1:
            raise UsageError(f"--nbest {nbest} is for text: a picture or sound gets one output")
        if glossary is not None:
            raise UsageError(f"--glossary is for text, but {model_label(directory)} reads {loaded.config.model.source}")
        _transcribe(sources, loaded, out, format, beam, timestamps)
        return
    if timestamps:
        raise UsageError(f"--timestamps is for recordings, but {model_label(directory)} reads text")
    if media := next((source for source in sources if source.path and is_media(source.path)), None):
        raise UsageError(f"{media.name} is a picture or sound, but {model_label(directory)} reads text")
    translator = Translator(loaded, warnings, search, glossary=terms)
    if not (inputs or out) and is_interactive() and format == "text":
        prompt_loop("> ", lambda text: _print_translation(text, translator), "Type a sentence to see its translation.")
        return
    # Lines that appear in the terminal show the progress themselves.
    with progress(sources[0].size is not None and (out is not None or not sys.stdout.isatty())) as bars:
        if documents:
            _translate_documents(documents, out, translator, retranslate, bars)
        else:
            translate_chunk = translate_lines_as_json if format == "jsonl" else translate_lines
            _translate_lines(sources, out, translate_chunk, translator, bars)
    warnings.summarize()


def _transcribe(
    sources: Sequence[TextInput], model: "Model", out: Path | None, format: Format, beam: int, timestamps: bool
) -> None:
    """Writes the text of each picture or sound on a line of its own, or of one sound as subtitles."""
    from seq2see.translate.transcription import format_subtitles, transcribe_segments
    from seq2see.translate.translator import one_line

    kind = model.config.model.source
    if not all(source.path for source in sources):
        raise UsageError(f"this model reads {kind}: give the files, as in seq2see translate --model DIRECTORY FILE")
    paths = [str(source.path) for source in sources]
    if timestamps and format == "text" and len(paths) > 1:
        raise UsageError(f"--timestamps writes the subtitles of one sound, not of {len(paths)}: use --format jsonl")
    with open_output(out) as output:
        for path in paths if timestamps else ():
            segments = transcribe_segments(model, path, Search(beam=beam))
            table = {"file": path, "segments": [asdict(segment) for segment in segments]}
            line = json.dumps(table, ensure_ascii=False) + "\n" if format == "jsonl" else format_subtitles(segments)
            output.write(line.encode())
            output.flush()
        for start in range(0, 0 if timestamps else len(paths), FILES_AT_ONCE):
            part = paths[start : start + FILES_AT_ONCE]
            for path, text in zip(part, model.transcribe(part, beam=beam), strict=True):
                line = (
                    json.dumps({"file": path, "text": text}, ensure_ascii=False)
                    if format == "jsonl"
                    else one_line(text)
                )
                output.write(f"{line}\n".encode())
            output.flush()


def _refuse_documents(sources: Sequence[TextInput]) -> None:
    from seq2see.data.formats.media import is_media
    from seq2see.translate.formats import is_document

    for source in sources:
        if source.path and (is_document(source.path) or is_media(source.path)):
            raise UsageError(
                f"{source.path} is not plain text, and --engine ray takes no other files: leave out --engine"
            )


def _documents(sources: Sequence[TextInput], format: Format, out: Path | None) -> list[Path]:
    """Returns the documents among the inputs, or none if they are lines; checks that the output can hold them."""
    from seq2see.translate.formats import is_document

    files = [source.path for source in sources if source.path]
    documents = [file for file in files if is_document(file)]
    if not documents:
        if out is not None and out.is_dir():
            raise UserError(f"{out} is a directory: lines need one output file")
        if out is not None:
            check_output(out)
        return []
    if format == "jsonl":
        raise UsageError(f"{documents[0]} is a document, which --format jsonl does not support: leave out --format")
    if len(documents) < len(sources):
        other = next(source.name for source in sources if source.path not in documents)
        raise UsageError(f"{documents[0]} is a document and {other} is not: translate them with separate commands")
    if len(files) > 1 and (out is None or out.is_file()):
        raise UsageError(f"{len(files)} documents need an output directory: --out DIRECTORY")
    if len({file.name for file in files}) < len(files):
        raise UsageError(f"two of the {len(files)} documents have the same name: translate them with separate commands")
    if out is not None and len(files) > 1:
        out.mkdir(exist_ok=True)
    if out is not None:
        check_output(out / files[0].name if out.is_dir() else out)
    return documents


def _print_translation(text: str, translator: "Translator") -> None:
    from seq2see.translate.warning_log import WarningLog

    warnings = WarningLog(translator.warnings.emit)  # a new one, which shows the first warnings of each input
    typer.echo(replace(translator, warnings=warnings).translate([text], ["input"])[0])


def _translate_lines(
    sources: Sequence[TextInput], out: Path | None, translate_chunk: "TranslateChunk", translator: "Translator",
    bars: "ProgressFactory",
) -> None:  # fmt: skip
    from seq2see.translate.lines import read_chunks, with_final_newline

    with open_output(out) as output:
        for source in sources:
            advance = bars(Path(source.name).name, source.size)
            with source.open() as stream:
                chunks = read_chunks(stream, source.name, translator.warnings)
                for lines in with_final_newline(chunks) if len(sources) > 1 else chunks:
                    output.write(translate_chunk(lines, translator).encode())
                    output.flush()
                    advance(sum(line.size for line in lines))


def _translate_documents(
    files: Sequence[Path], out: Path | None, translator: "Translator", retranslate: bool, bars: "ProgressFactory"
) -> None:
    from seq2see.translate.documents import translate_document

    for file in files:
        content = translate_document(file, translator, retranslate, bars)
        with open_output(out / file.name if out is not None and out.is_dir() else out) as output:
            output.write(content)
