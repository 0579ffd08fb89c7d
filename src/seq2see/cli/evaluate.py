"""`seq2see evaluate`: scores a translator, a file of translations or a language model, and shows where it is weak."""

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from seq2see.cli import corpus_options as c
from seq2see.cli.engine_options import Engine, Workers, check_engine
from seq2see.cli.model_options import (
    Device,
    ModelPath,
    Precision,
    SourceLanguage,
    TargetLanguage,
    To,
    choose_model,
    load_model_of_shape,
    with_languages,
)
from seq2see.cli.streams import check_plot
from seq2see.config import Boundaries, InferencePrecision
from seq2see.config.search import Search
from seq2see.errors import UsageError
from seq2see.storage.bundled import LANGUAGE_MODEL, model_label

if TYPE_CHECKING:
    from seq2see.api import Model
    from seq2see.cli.ray.tasks import ModelOptions
    from seq2see.data.corpus import PairOptions
    from seq2see.data.formats.media import MediaKind
    from seq2see.evaluate.datasets import TestSet
    from seq2see.evaluate.translation import Evaluation
    from seq2see.inspect.alignment_error import GoldPairs
    from seq2see.translate.warning_log import WarningLog

WordBoundaries = Literal["punctuation", "spaces"]
PHRASE_WORDS = 4  # of BLEU's longest phrases
_TEST_SET, _LANGUAGE_MODEL, _SCORING = "Text", "Language model", "Scoring"


def evaluate(
    model: ModelPath = None,
    to: To = None,
    src: Annotated[
        Path | None, typer.Option(help="Sentences to translate.", metavar="FILE", rich_help_panel=_TEST_SET)
    ] = None,
    ref: Annotated[
        list[Path] | None,
        typer.Option(
            help="Reference translations, line by line; several files, or a .jsonl with several per row.",
            metavar="FILE...",
            rich_help_panel=_TEST_SET,
        ),
    ] = None,
    pairs: Annotated[
        list[Path] | None,
        typer.Option(
            help="Sentence pairs in a .tsv, .jsonl, .tmx or .po file, instead of --src and --ref.",
            metavar="FILE...",
            rich_help_panel=_TEST_SET,
        ),
    ] = None,
    pictures: c.Pictures = None,
    sounds: c.Sounds = None,
    columns: c.Columns = None,
    fields: c.Fields = None,
    languages: c.Languages = None,
    hyp: Annotated[
        Path | None,
        typer.Option(
            help="Score this file of translations instead of a model.", metavar="FILE", rich_help_panel=_TEST_SET
        ),
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option(
            help="Model directory or file of translations to compare with, with significance tests.",
            metavar="PATH",
            rich_help_panel=_TEST_SET,
        ),
    ] = None,
    align: Annotated[
        Path | None,
        typer.Option(
            help="Gold word alignments to score the cross-attention.", metavar="FILE", rich_help_panel=_TEST_SET
        ),
    ] = None,
    words: Annotated[
        WordBoundaries,
        typer.Option(
            help="How gold alignments count words: punctuation marks separately, or split at spaces only.",
            rich_help_panel=_TEST_SET,
        ),
    ] = "punctuation",
    text: Annotated[
        list[Path] | None,
        typer.Option(help="Held-out text for a language model.", metavar="FILE...", rich_help_panel=_LANGUAGE_MODEL),
    ] = None,
    boundaries: Annotated[
        Boundaries | None,
        typer.Option(help="Where a document ends; by default as in training.", rich_help_panel=_LANGUAGE_MODEL),
    ] = None,
    stride: Annotated[
        int,
        typer.Option(
            help="Tokens by which the context window advances; 0 for half a window.",
            min=0,
            rich_help_panel=_LANGUAGE_MODEL,
        ),
    ] = 0,
    beam: Annotated[int, typer.Option(help="Beam size.", min=1, rich_help_panel=_SCORING)] = 1,
    tokenize: Annotated[
        str,
        typer.Option(
            help="sacreBLEU's tokenizer for BLEU, such as 13a; intl also splits off the danda (।).",
            metavar="NAME",
            rich_help_panel=_SCORING,
        ),
    ] = "intl",
    worst: Annotated[
        int, typer.Option(help="Number of worst translations to show.", min=0, rich_help_panel=_SCORING)
    ] = 5,
    source_language: SourceLanguage = None,
    target_language: TargetLanguage = None,
    precision: Precision = "float32",
    device: Device = "",
    engine: Engine = "local",
    workers: Workers = 0,
    work: Annotated[
        Path | None,
        typer.Option(
            help="Directory that keeps what Ray has translated, so that the command can be repeated after a failure.",
            metavar="DIRECTORY",
            rich_help_panel="Many texts",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(help="Plot the results into a .png, .svg or .pdf file (needs seq2see\\[plot]).", metavar="FILE"),
    ] = None,
) -> None:
    """Score a translator, a reader of pictures or sounds, a file of translations or a language model.

    Shows BLEU, chrF++ and TER, for pictures and sounds also error rates, and where the model is weak.

    Examples:

    seq2see evaluate --model runs/en-hi --src test.en --ref test.hi

    seq2see evaluate --to fr --src test.en --ref test.fr

    seq2see evaluate --model runs/en-hi --against runs/old --src test.en --ref test.hi

    seq2see evaluate --hyp mine.hi --ref test.hi --ref other.hi --json

    seq2see evaluate --model runs/digits --sounds test.tsv

    seq2see evaluate --model runs/books --text held-out.txt

    seq2see evaluate --engine ray --model runs/en-hi --src test.en --ref test.hi --work scored/
    """
    check_plot(out)
    check_engine(engine, workers, "--work" if work else "")
    if work and (text or hyp):
        raise UsageError("--work keeps translations of a model: leave it out")
    cluster = _Cluster(workers, work) if engine == "ray" else None
    if text:
        if to or src or ref or pairs or hyp or against or align or pictures or sounds:
            raise UsageError(
                "--text evaluates a language model and excludes --to, --src, --ref, --pairs, --hyp, --against, --align, "
                "--pictures and --sounds"
            )
        language_model = choose_model(model, default=LANGUAGE_MODEL)
        _evaluate_language_model(language_model, device, precision, text, boundaries, stride, as_json, out, cluster)
        return
    if hyp is not None and (model or to or align):
        raise UsageError("--hyp scores a file of translations and excludes --model, --to and --align")
    from seq2see.cli.evaluation_report import plot_translation, print_translation
    from seq2see.data.corpus import PairOptions
    from seq2see.evaluate.breakdown import word_tokenizer
    from seq2see.evaluate.translation import alignment_by_head
    from seq2see.evaluate.translation import evaluate as evaluate_translations

    kind: MediaKind | None = "pictures" if pictures else "sounds" if sounds else None
    if kind and cluster:
        raise UsageError(f"--engine ray translates text, not --{kind}: leave out --engine")
    if kind:
        test = _media_test_set(kind, pictures, sounds, bool(src or ref or pairs or align), columns or "", fields or "")
    else:
        test = _test_set(src, ref, PairOptions(pairs=pairs or (), columns=columns, fields=fields, languages=languages))
    word_tokenizer(tokenize)  # an unknown name fails before anything is translated, like the files below
    gold = None if align is None else _gold(align, test, words)
    pair = (source_language, target_language)
    system = (
        _system_from_file(hyp, test)
        if hyp
        else _system_from_model(choose_model(model, to), device, precision, test, pair, kind, cluster)
    )
    baseline = None
    if against is not None:
        baseline = (
            _system_from_file(against, test)
            if against.is_file()
            else _system_from_model(against, device, precision, test, pair, kind, cluster)
        )
    notes: list[str] = []
    evaluation = evaluate_translations(
        system.translate(test, beam, notes), test, data=system.model.config.data if system.model else None,
        baseline=baseline.translate(test, beam, []) if baseline else None,
        alignment=[] if gold is None or system.model is None else alignment_by_head(system.model, gold),
        tokenize=tokenize, worst=worst, recognition=kind is not None,
    )  # fmt: skip
    evaluation = replace(evaluation, warnings=(*evaluation.warnings, *notes))
    if as_json:
        names = {"system": system.name, "baseline": baseline.name if baseline else None, "test": test.name}
        typer.echo(json.dumps({**names, **asdict(evaluation)}, ensure_ascii=False, indent=2))
    else:
        shown = _worth_printing(evaluation, test, tokenize) if kind else evaluation
        print_translation(shown, system.name, test.name, baseline.name if baseline else "")
    if out is not None:
        plot_translation(evaluation, system.name, out)


def _worth_printing(evaluation: "Evaluation", test: "TestSet", tokenize: str) -> "Evaluation":
    """Returns what is worth printing of what a model has read: the texts with an error; BLEU and counts of words for captions.

    BLEU counts phrases of four words, and is 0 for shorter texts even if they are right.
    """
    from seq2see.evaluate.breakdown import word_tokenizer

    split = word_tokenizer(tokenize)
    worst = tuple(each for each in evaluation.worst if each.translation.split() != each.reference.split())
    if median(len(split(row[0])) for row in test.references) >= PHRASE_WORDS:
        return replace(evaluation, worst=worst)
    scores = tuple(score for score in evaluation.scores if score.name != "BLEU")
    comparison = tuple(row for row in evaluation.comparison if row.name != "BLEU")
    return replace(evaluation, worst=worst, scores=scores, comparison=comparison, by_length=(), by_frequency=())


def _media_test_set(
    kind: "MediaKind", pictures: c.Files, sounds: c.Files, other: bool, columns: str, fields: str
) -> "TestSet":
    from seq2see.evaluate.datasets import read_media

    if other or (pictures and sounds):
        raise UsageError(f"--{kind} is a test set of its own: leave out other files and --align")
    return read_media(pictures or sounds or [], kind, columns, fields)


def _test_set(src: Path | None, ref: list[Path] | None, options: "PairOptions") -> "TestSet":
    from seq2see.evaluate.datasets import read_pairs, read_test_set

    if options.pairs and (src or ref):
        raise UsageError("give either --pairs, or --src and --ref, not both")
    if options.pairs:
        return read_pairs(options)
    if not ref:
        raise UsageError(
            "missing test set: use --src FILE and --ref FILE, or --pairs FILE; with --hyp, --ref FILE; for a language model, "
            "--text FILE"
        )
    return read_test_set(src, ref)


@dataclass(frozen=True)
class _Cluster:
    """Where Ray translates."""

    workers: int
    work: Path | None


@dataclass(frozen=True)
class _System:
    """A model, or a file of translations."""

    name: str
    model: "Model | None"
    translations: tuple[str, ...] = ()
    options: "ModelOptions | None" = None
    cluster: _Cluster | None = None

    def translate(self, test: "TestSet", beam: int, notes: list[str]) -> list[str]:
        """Returns the translations, and adds to `notes` how many of them need attention."""
        if self.model is None:
            return list(self.translations)
        from rich.console import Console

        if self.model.config.model.source != "tokens":
            with Console(stderr=True).status(f"{self.name}: reading {len(test):,} files"):
                return self.model.transcribe(test.sources, beam=beam)
        from seq2see.translate.translator import Translator
        from seq2see.translate.warning_log import WarningLog

        log = WarningLog(lambda text: None)
        with Console(stderr=True).status(f"{self.name}: translating {len(test):,} sentences"):
            if self.cluster and self.options:
                translations = _translate_on(self.cluster, self.options, test, beam, log)
            else:
                translations = Translator(self.model, log, Search(beam=beam)).translate(test.sources, [""] * len(test))
        notes += [f"{kind}: {count:,} of {len(test):,}" for kind, count in log.counts.items()]
        return translations


def _translate_on(
    cluster: _Cluster, options: "ModelOptions", test: "TestSet", beam: int, log: "WarningLog"
) -> list[str]:
    from seq2see.cli.ray.job import translate_texts
    from seq2see.cli.ray.tasks import TranslateTexts

    work = cluster.work
    if work is not None:  # with --against, two models share it
        work.mkdir(exist_ok=True)
        work = work / Path(options.path or "bundled").resolve().name
    return translate_texts(test.sources, TranslateTexts(options, Search(beam=beam)), cluster.workers, work, log)


def _system_from_file(path: Path, test: "TestSet") -> _System:
    from seq2see.evaluate.datasets import read_text_lines, require_equal_length

    translations = read_text_lines(path)
    require_equal_length(path, translations, Path(test.name), [row[0] for row in test.references])
    return _System(str(path), None, tuple(translations))


def _system_from_model(
    path: Path,
    device: str,
    precision: InferencePrecision,
    test: "TestSet",
    languages: tuple[str | None, str | None],
    kind: "MediaKind | None",
    cluster: _Cluster | None,
) -> _System:
    from seq2see.cli.ray.tasks import ModelOptions

    if not test.sources:
        raise UsageError("missing sentences to translate: --src FILE")
    model = load_model_of_shape(path, "encoder-decoder", device, precision, "use --text FILE")
    source = model.config.model.source
    if source != (kind or "tokens"):
        remedy = "--src FILE and --ref FILE" if source == "tokens" else f"--{source} LIST"
        raise UsageError(f"{model_label(path)} reads {'text' if source == 'tokens' else source}: use {remedy}")
    options = ModelOptions(path, device, precision, languages)
    return _System(model_label(path), with_languages(model, *languages), (), options, cluster)


def _gold(path: Path, test: "TestSet", words: WordBoundaries) -> "GoldPairs":
    from seq2see.data.word_spans import whitespace_spans, wordpunct_spans
    from seq2see.inspect.alignment_error import GoldPairs

    if not test.sources:
        raise UsageError("--align needs the source sentences: --src FILE")
    pairs = [(source, row[0]) for source, row in zip(test.sources, test.references, strict=True)]
    return GoldPairs.read(path, pairs, wordpunct_spans if words == "punctuation" else whitespace_spans)


def _evaluate_language_model(
    path: Path, device: str, precision: InferencePrecision, text: list[Path], boundaries: Boundaries | None,
    stride: int, as_json: bool, out: Path | None, cluster: _Cluster | None,
) -> None:  # fmt: skip
    from seq2see.cli.evaluation_report import plot_language_model, print_language_model
    from seq2see.data.corpus import format_paths, plain_text
    from seq2see.evaluate.language_model import evaluate_language_model

    model = load_model_of_shape(path, "decoder", device, precision, "use --src FILE and --ref FILE")
    documents = plain_text(text, boundaries or model.config.data.boundaries)
    map_batches = None
    if cluster is not None:
        from seq2see.cli.ray.ray_map import ray_map
        from seq2see.cli.ray.tasks import ModelOptions, WindowLosses

        task, workers = WindowLosses(ModelOptions(path, device, precision)), cluster.workers
        map_batches = lambda batches: ray_map(task, list(batches), workers)  # noqa: E731
    evaluation = evaluate_language_model(model, documents, stride, map_batches)
    name = model_label(path)
    if as_json:
        typer.echo(
            json.dumps({"system": name, "test": format_paths(text), **asdict(evaluation)}, ensure_ascii=False, indent=2)
        )
    else:
        print_language_model(evaluation, name, format_paths(text))
    if out is not None:
        plot_language_model(evaluation, name, out)
