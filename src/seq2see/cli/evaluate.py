"""`seq2see evaluate`: scores a translator, a file of translations or a language model, and shows where it is weak."""

import warnings
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, Literal

from seq2see.cli.model_options import Compute, Languages, ModelChoice
from seq2see.cli.options import Options
from seq2see.cli.output import check_plot, print_json
from seq2see.config import Boundaries, DataConfig, option
from seq2see.config.search import Search
from seq2see.errors import Notice, UsageError, terminal
from seq2see.storage.bundled import LANGUAGE_MODEL, About

if TYPE_CHECKING:
    from seq2see.api import Model
    from seq2see.evaluate.alignment import GoldPairs
    from seq2see.evaluate.datasets import TestSet
    from seq2see.evaluate.translation import Evaluation

PHRASE_WORDS = 4  # of BLEU's longest phrases
PAIRS = {"help": "Sentence pairs in a .tsv, .jsonl, .tmx or .po file, instead of --src and --ref."}
PAIRED = Options("pairs", "pictures", "sounds", "columns", "fields", "languages", pairs=PAIRS)


@dataclass(frozen=True)
class TestOptions:
    """What is evaluated: the files of a test set, and the systems besides the chosen model."""

    src: Path | None = option(None, "Sentences to translate.", metavar="FILE")
    ref: list[Path] | None = option(
        None,
        "Reference translations, line by line; several files, or a .jsonl with several per row.",
        metavar="FILE...",
    )
    data: Annotated[DataConfig, PAIRED] = field(default_factory=DataConfig)
    hyp: Path | None = option(None, "Score this file of translations instead of a model.", metavar="FILE")
    against: Path | None = option(
        None, "Model directory or file of translations to compare with, with significance tests.", metavar="PATH"
    )
    align: Path | None = option(None, "Gold word alignments to score the cross-attention.", metavar="FILE")
    words: Literal["punctuation", "spaces"] = option(
        "punctuation", "How gold alignments count words: punctuation marks separately, or split at spaces only."
    )

    @property
    def kind(self) -> str:
        """What the model reads, if not text."""
        return "pictures" if self.data.pictures else "sounds" if self.data.sounds else ""

    @property
    def given(self) -> bool:
        files = (self.src, self.ref, self.data.pairs, self.hyp, self.against, self.align, self.kind)
        return any(files)

    def read(self) -> "TestSet":
        from seq2see.evaluate.datasets import read_pairs, read_test_set

        data, plain = self.data, bool(self.src or self.ref)
        if self.kind:
            if plain or data.pairs or self.align or (data.pictures and data.sounds):
                raise UsageError(f"--{self.kind} is a test set of its own: leave out other files and --align")
            return read_pairs(data)
        if data.pairs and plain:
            raise UsageError("give either --pairs, or --src and --ref, not both")
        if data.pairs:
            return read_pairs(data)
        if not self.ref:
            raise UsageError(
                "missing test set: use --src FILE and --ref FILE, or --pairs FILE; with --hyp, --ref FILE; for a language "
                "model, --text FILE"
            )
        return read_test_set(self.src, self.ref)

    def gold(self, test: "TestSet") -> "GoldPairs | None":
        from seq2see.data.word_spans import whitespace_spans, wordpunct_spans
        from seq2see.evaluate.alignment import GoldPairs

        if self.align is None:
            return None
        if not test.sources:
            raise UsageError("--align needs the source sentences: --src FILE")
        pairs = [(source, row[0]) for source, row in zip(test.sources, test.references, strict=True)]
        return GoldPairs.read(self.align, pairs, wordpunct_spans if self.words == "punctuation" else whitespace_spans)


@dataclass(frozen=True)
class HeldOut:
    """The text for a language model."""

    text: list[Path] | None = option(None, "Held-out text for a language model.", metavar="FILE...")
    boundaries: Boundaries | None = option(None, "Where a document ends; by default as in training.")
    stride: int = option(0, "Tokens by which the context window advances; 0 for half a window.", min=0)


@dataclass(frozen=True)
class Scoring:
    search: Annotated[Search, Options("beam", panel="Scoring")] = Search()
    tokenize: str = option(
        "intl", "sacreBLEU's tokenizer for BLEU, such as 13a; intl also splits off the danda (।).", metavar="NAME"
    )
    worst: int = option(5, "Number of worst translations to show.", min=0)


@dataclass(frozen=True)
class Report:
    as_json: bool = option(False, "Print the results as JSON.", flag="--json")
    out: Path | None = option(
        None, "Plot the results into a .png, .svg or .pdf file (needs seq2see\\[plot]).", metavar="FILE"
    )


def evaluate(
    *,
    chosen: ModelChoice,
    test: Annotated[TestOptions, Options(panel="Text")],
    held_out: Annotated[HeldOut, Options(panel="Language model")],
    scoring: Annotated[Scoring, Options(panel="Scoring")],
    languages: Languages,
    compute: Compute,
    report: Report,
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
    """
    check_plot(report.out)
    if held_out.text:
        if chosen.to or test.given:
            raise UsageError(
                "--text evaluates a language model and excludes --to, --src, --ref, --pairs, --hyp, --against, --align, "
                "--pictures and --sounds"
            )
        _evaluate_language_model(chosen.path(LANGUAGE_MODEL), held_out.text, held_out, compute, report)
        return
    if test.hyp is not None and (chosen.model or chosen.to or test.align):
        raise UsageError("--hyp scores a file of translations and excludes --model, --to and --align")
    _evaluate_translations(chosen, test, scoring, _Loader(languages, compute, test.kind), report)


def _evaluate_translations(
    chosen: ModelChoice, options: TestOptions, scoring: Scoring, loader: "_Loader", report: Report
) -> None:
    from seq2see.cli.evaluation_report import plot_translation, print_translation
    from seq2see.evaluate.alignment import alignment_by_head
    from seq2see.evaluate.breakdown import word_tokenizer
    from seq2see.evaluate.translation import evaluate

    test = options.read()
    word_tokenizer(scoring.tokenize)  # an unknown name fails before anything is translated, like the files below
    gold = options.gold(test)
    system = _read_system(options.hyp, test) if options.hyp else loader.load(chosen.path(), test)
    baseline = None
    if options.against is not None:
        is_file = options.against.is_file()
        baseline = _read_system(options.against, test) if is_file else loader.load(options.against, test)
    notes: list[str] = []
    evaluation = evaluate(
        system.translate(test, scoring.search, notes),
        test,
        data=system.data,
        baseline=baseline.translate(test, scoring.search, []) if baseline else None,
        alignment=[] if gold is None or system.model is None else alignment_by_head(system.model, gold),
        tokenize=scoring.tokenize,
        worst=scoring.worst,
        recognition=bool(options.kind),
    )
    evaluation = replace(evaluation, warnings=(*evaluation.warnings, *notes))
    if report.as_json:
        names = {"system": system.name, "baseline": baseline.name if baseline else None, "test": test.name}
        print_json({**names, **asdict(evaluation)}, indent=2)
    else:
        shown = _worth_printing(evaluation, test, scoring.tokenize) if options.kind else evaluation
        print_translation(shown, system.name, test.name, baseline.name if baseline else "")
    if report.out is not None:
        plot_translation(evaluation, system.name, report.out)


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


@dataclass(frozen=True)
class _System:
    """A model, or a file of translations."""

    name: str
    model: "Model | None"
    translations: tuple[str, ...] = ()
    data: DataConfig | None = None  # its training files, if they can be here: a bundled model comes without them

    def translate(self, test: "TestSet", search: Search, notes: list[str]) -> list[str]:
        """Returns the translations, and adds to `notes` how many of them need attention."""
        if self.model is None:
            return list(self.translations)
        from rich.text import Text

        if self.model.config.model.source != "tokens":
            with terminal(stderr=True).status(Text(f"{self.name}: reading {len(test):,} files")):
                return self.model.transcribe(test.sources, **vars(search))
        from seq2see.translate.translator import Translator
        from seq2see.translate.warning_log import WarningLog

        log = WarningLog(lambda text: None)
        with terminal(stderr=True).status(Text(f"{self.name}: translating {len(test):,} sentences")):
            translations = Translator(self.model, log, search).translate(test.sources, [""] * len(test))
        notes += [f"{kind}: {count:,} of {len(test):,}" for kind, count in log.counts.items()]
        return translations


def _read_system(path: Path, test: "TestSet") -> _System:
    from seq2see.evaluate.datasets import read_text_lines, require_equal_length

    translations = read_text_lines(path)
    require_equal_length(path, translations, Path(test.name), [row[0] for row in test.references])
    return _System(str(path), None, tuple(translations))


@dataclass(frozen=True)
class _Loader:
    """Loads translators, or models that read pictures or sounds."""

    languages: Languages
    compute: Compute
    kind: str

    def load(self, path: Path, test: "TestSet") -> _System:
        if not test.sources:
            raise UsageError("missing sentences to translate: --src FILE")
        model = self.compute.load_of_shape(path, "encoder-decoder", "use --text FILE")
        source = model.config.model.source
        if source != (self.kind or "tokens"):
            remedy = "--src FILE and --ref FILE" if source == "tokens" else f"--{source} LIST"
            raise UsageError(f"{model.label} reads {'text' if source == 'tokens' else source}: use {remedy}")
        data = None if _trained_elsewhere(model) else model.config.data
        return _System(model.label, self.languages.choose(model), data=data)


def _trained_elsewhere(model: "Model") -> bool:
    """Whether this is a bundled model; says then what it was trained on, since a test set from there proves little."""
    about = About.load(model.folder) if model.folder else None
    if about is None:
        return False
    sources = f"{model.label} was trained on {', '.join(about.sources)}"
    warnings.warn(
        f"{sources}: sentences from there may be in its training data, and score too high", Notice, stacklevel=2
    )
    return True


def _evaluate_language_model(path: Path, text: list[Path], options: HeldOut, compute: Compute, report: Report) -> None:
    from seq2see.cli.evaluation_report import plot_language_model, print_language_model
    from seq2see.data.corpus import format_paths, plain_text
    from seq2see.evaluate.language_model import evaluate_language_model

    model = compute.load_of_shape(path, "decoder", "use --src FILE and --ref FILE")
    _trained_elsewhere(model)
    documents = plain_text(text, options.boundaries or model.config.data.boundaries)
    evaluation = evaluate_language_model(model, documents, options.stride)
    name, test = model.label, format_paths(text)
    if report.as_json:
        print_json({"system": name, "test": test, **asdict(evaluation)}, indent=2)
    else:
        print_language_model(evaluation, name, test)
    if report.out is not None:
        plot_language_model(evaluation, name, report.out)
