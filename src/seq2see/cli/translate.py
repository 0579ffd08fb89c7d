"""`seq2see translate`: translates text, lines or documents."""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from seq2see.cli.inputs import TextInput, resolve_inputs
from seq2see.cli.model_options import Compute, Languages, ModelChoice, is_interactive, prompt_loop
from seq2see.cli.options import Options
from seq2see.cli.output import open_output, printed_warnings, progress, refuse_overwriting
from seq2see.cli.ray.options import RayOptions
from seq2see.config import option
from seq2see.config.extensions import has_extension
from seq2see.config.search import Search
from seq2see.errors import UsageError, UserError
from seq2see.tensors.files import check_output

if TYPE_CHECKING:
    from seq2see.api import Model
    from seq2see.errors import ProgressFactory
    from seq2see.translate.translator import Translator

Format = Literal["text", "jsonl"]
IN_PLACE = (".po", ".pot")  # files that keep the source text, and so can be their own output
FILES_AT_ONCE = 64  # pictures or sounds in memory


@dataclass(frozen=True)
class Output:
    """What is written, where, and how the translations are chosen."""

    out: Path | None = option(None, "Output file; for several documents, a directory.", metavar="FILE")
    search: Annotated[Search, Options("beam")] = Search()
    nbest: int = option(1, "Number of translations per sentence, with --format jsonl.", min=1)
    format: Format = option("text", "One line of text per line, or one JSON object with scores and word alignments.")
    glossary: Path | None = option(
        None, "Translations to use: a term, a tab and its translation per line.", metavar="FILE"
    )
    retranslate: bool = option(False, "Also replace existing translations in a .po file.", flag="--all")
    languages: Languages = field(default_factory=Languages)
    timestamps: bool = option(False, "Write subtitles (.srt): what a recording says, and when.")

    def __post_init__(self) -> None:
        if self.format == "text" and self.nbest > 1:
            raise UsageError(f"--nbest {self.nbest} gives several translations per sentence: add --format jsonl")

    @property
    def nbest_search(self) -> Search:
        return replace(self.search, beam=max(self.search.beam, self.nbest), nbest=self.nbest)

    def check(self, sources: Sequence[TextInput]) -> None:
        """Raises a UsageError if an input would be overwritten."""
        refuse_overwriting(self.glossary, self.out)
        for source in sources:
            if source.path and source.path.suffix.lower() not in IN_PLACE:
                out = self.out / source.path.name if self.out and self.out.is_dir() else self.out
                refuse_overwriting(source.path, out)


def translate(
    inputs: list[str] | None = option(
        None, "Text or files, also pictures or sounds; by default standard input.", argument=True, metavar="TEXT|FILE"
    ),
    *,
    chosen: ModelChoice,
    output: Output,
    compute: Compute,
    ray: RayOptions,
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
    on_cluster, path, sources = ray.on_cluster, chosen.path(), resolve_inputs(inputs or [])
    if on_cluster:
        _translate_on_ray(sources, path, output, compute, ray)
        return
    output.check(sources)
    documents = _documents(sources, output)
    from seq2see.translate.translator import Translator

    terms = {}
    if output.glossary:
        from seq2see.translate.glossary import read_glossary

        terms = read_glossary(output.glossary)
    model = output.languages.choose(compute.load_of_shape(path, "encoder-decoder"))
    if model.config.model.source != "tokens":
        _transcribe(sources, model, output)
        return
    _refuse_media(sources, output, model.label)
    translator = Translator(model, printed_warnings(), output.nbest_search, glossary=terms)
    if not (inputs or output.out) and is_interactive() and output.format == "text":
        prompt_loop("> ", lambda text: _print_translation(text, translator), "Type a sentence to see its translation.")
        return
    _translate(sources, documents, output, translator)


def _translate(
    sources: Sequence[TextInput], documents: Sequence[Path], output: Output, translator: "Translator"
) -> None:
    # Lines that appear in the terminal show the progress themselves.
    with progress(sources[0].size is not None and (output.out is not None or not sys.stdout.isatty())) as bars:
        if documents:
            _translate_documents(documents, output, translator, bars)
        else:
            _translate_lines(sources, output, translator, bars)
    translator.warnings.summarize()


def _translate_on_ray(sources: list[TextInput], path: Path, output: Output, compute: Compute, ray: RayOptions) -> None:
    from seq2see.cli.ray.tasks import ModelOptions, TranslateShards
    from seq2see.formats.media.pairs import is_media

    if output.glossary is not None:
        raise UsageError("--glossary is for --engine local: leave one of them out")
    for source in sources:
        if source.path and (_is_document(source.path) or is_media(source.path)):
            raise UsageError(
                f"{source.path} is not plain text, and --engine ray takes no other files: leave out --engine"
            )
    languages = (output.languages.source_language, output.languages.target_language)
    options = ModelOptions(path, compute.device, compute.precision, languages)
    ray.run(sources, output.out, TranslateShards(options, output.nbest_search, output.format == "jsonl", ray.field))


def _refuse_media(sources: Sequence[TextInput], output: Output, label: str) -> None:
    """Raises a UsageError if a model of text would get recordings or pictures."""
    if output.timestamps:
        raise UsageError(f"--timestamps is for recordings, but {label} reads text")
    if not any(source.path for source in sources):
        return
    from seq2see.formats.media.pairs import is_media

    if media := next((source for source in sources if source.path and is_media(source.path)), None):
        raise UsageError(f"{media.name} is a picture or sound, but {label} reads text")


def _transcribe(sources: Sequence[TextInput], model: "Model", output: Output) -> None:
    """Writes the text of each picture or sound on a line of its own, or of one sound as subtitles."""
    from seq2see.formats.media.transcription import format_subtitles, transcribe_segments
    from seq2see.translate.translator import one_line

    kind, as_json, search = model.config.model.source, output.format == "jsonl", output.nbest_search
    if output.nbest > 1:
        raise UsageError(f"--nbest {output.nbest} is for text: a picture or sound gets one output")
    if output.glossary is not None:
        raise UsageError(f"--glossary is for text, but {model.label} reads {kind}")
    if not all(source.path for source in sources):
        raise UsageError(f"this model reads {kind}: give the files, as in seq2see translate --model DIRECTORY FILE")
    paths = [str(source.path) for source in sources]
    if output.timestamps and not as_json and len(paths) > 1:
        raise UsageError(f"--timestamps writes the subtitles of one sound, not of {len(paths)}: use --format jsonl")
    with open_output(output.out) as stream:
        for path in paths if output.timestamps else ():
            segments = transcribe_segments(model, path, search)
            table = {"file": path, "segments": [asdict(segment) for segment in segments]}
            stream.write((_json_line(table) if as_json else format_subtitles(segments)).encode())
            stream.flush()
        for start in range(0, 0 if output.timestamps else len(paths), FILES_AT_ONCE):
            part = paths[start : start + FILES_AT_ONCE]
            for path, text in zip(part, model.transcribe(part, **vars(search)), strict=True):
                line = _json_line({"file": path, "text": text}) if as_json else f"{one_line(text)}\n"
                stream.write(line.encode())
            stream.flush()


def _json_line(table: dict[str, Any]) -> str:
    return json.dumps(table, ensure_ascii=False) + "\n"


def _is_document(path: Path) -> bool:
    return has_extension("documents", path.suffix.lower())


def _documents(sources: Sequence[TextInput], output: Output) -> list[Path]:
    """Returns the documents among the inputs, or none if they are lines; checks that the output can hold them."""
    out = output.out
    files = [source.path for source in sources if source.path]
    documents = [file for file in files if _is_document(file)]
    if not documents:
        if out is not None and out.is_dir():
            raise UserError(f"{out} is a directory: lines need one output file")
        if out is not None:
            check_output(out)
        return []
    if output.format == "jsonl":
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
    warnings = printed_warnings()  # a new log, which shows the first warnings of each input
    typer.echo(replace(translator, warnings=warnings).translate([text], ["input"])[0])


def _translate_lines(
    sources: Sequence[TextInput], output: Output, translator: "Translator", bars: "ProgressFactory"
) -> None:
    from seq2see.cli.lines import translate_lines, translate_lines_as_json, with_final_newline

    convert = translate_lines_as_json if output.format == "jsonl" else translate_lines
    with open_output(output.out) as stream:
        for source in sources:
            advance = bars(Path(source.name).name, source.size)
            chunks = source.read(translator.warnings)
            for lines in with_final_newline(chunks) if len(sources) > 1 else chunks:
                stream.write(convert(lines, translator).encode())
                stream.flush()
                advance(sum(line.size for line in lines))


def _translate_documents(
    files: Sequence[Path], output: Output, translator: "Translator", bars: "ProgressFactory"
) -> None:
    from seq2see.formats.documents import translate_document

    for file in files:
        content = translate_document(file, translator, output.retranslate, bars)
        out = output.out
        with open_output(out / file.name if out is not None and out.is_dir() else out) as stream:
            stream.write(content)
