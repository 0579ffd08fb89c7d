"""`seq2see evaluate`: how good a translator, a file of translations or a language model is, and where it is weak."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from seq2see.cli import corpus_options as c
from seq2see.cli.model_options import Device, Int8, ModelPath, loaded
from seq2see.config import Boundaries
from seq2see.errors import UsageError

if TYPE_CHECKING:
    from seq2see.api import Model
    from seq2see.evaluate.datasets import TestSet
    from seq2see.metrics.alignment import GoldPairs
    from seq2see.text.corpus import PairOptions

Words = Literal["marks", "spaces"]
_SET, _LANGUAGE, _HOW = "Text", "Language model", "How"


def evaluate(
    model: ModelPath = None,
    src: Annotated[Path | None, typer.Option(help="Sentences to translate.", rich_help_panel=_SET)] = None,
    ref: Annotated[
        list[Path] | None,
        typer.Option(
            help="Right translations, line by line; several files, or a .jsonl with several in a row.",
            metavar="FILE...", rich_help_panel=_SET,
        ),
    ] = None,
    pairs: Annotated[
        list[Path] | None,
        typer.Option(help="Instead: .tsv, .jsonl, .tmx or .po.", metavar="FILE...", rich_help_panel=_SET),
    ] = None,
    columns: c.Columns = None,
    fields: c.Fields = None,
    languages: c.Languages = None,
    hyp: Annotated[
        Path | None, typer.Option(help="Score this file of translations, and no model.", rich_help_panel=_SET)
    ] = None,
    against: Annotated[
        Path | None, typer.Option(
            help="Another model's directory, or its translations: is the difference chance?", rich_help_panel=_SET
        )
    ] = None,
    align: Annotated[
        Path | None, typer.Option(help="Gold word alignments: also score the cross-attention.", rich_help_panel=_SET)
    ] = None,
    words: Annotated[
        Words, typer.Option(
            help="Words of gold alignments: with marks apart, or all between spaces.", rich_help_panel=_SET
        )
    ] = "marks",
    text: Annotated[
        list[Path] | None,
        typer.Option(help="Text for a language model.", metavar="FILE...", rich_help_panel=_LANGUAGE),
    ] = None,
    boundaries: Annotated[
        Boundaries | None,
        typer.Option(help="Where a document ends; else as in training.", rich_help_panel=_LANGUAGE),
    ] = None,
    stride: Annotated[
        int, typer.Option(help="Tokens by which the context moves on; 0: half of it.", min=0, rich_help_panel=_LANGUAGE)
    ] = 0,
    beam: Annotated[int, typer.Option(help="Hypotheses that the search keeps.", min=1, rich_help_panel=_HOW)] = 1,
    tokenize: Annotated[
        str, typer.Option(help="BLEU's tokenizer; the default splits the danda too.", rich_help_panel=_HOW)
    ] = "intl",
    worst: Annotated[int, typer.Option(help="Worst sentences to show.", min=0, rich_help_panel=_HOW)] = 5,
    int8: Int8 = False,
    device: Device = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print everything for a program to read.")] = False,
    out: Annotated[Path | None, typer.Option(help="Draw it into a .png or .svg (needs seq2see\\[plot]).")] = None,
) -> None:  # fmt: skip
    """Score a translator (BLEU, chrF++, TER), a file of translations, or a language model, and see where it is weak.

    Examples:

    seq2see evaluate --model runs/en-hi --src test.en --ref test.hi

    seq2see evaluate --model runs/en-hi --against runs/old --src test.en --ref test.hi

    seq2see evaluate --hyp mine.hi --ref test.hi --ref other.hi --json

    seq2see evaluate --model runs/books --text held-out.txt
    """
    if text:
        if src or ref or pairs or hyp or against or align:
            raise UsageError(
                "--text is for a language model: it goes without --src, --ref, --pairs, --hyp and the like"
            )
        _evaluate_text(model, device, text, boundaries, stride, as_json, out)
        return
    if hyp is not None and (model or align):
        raise UsageError("--hyp scores a file of translations, which goes without --model and --align")
    from seq2see.cli.evaluation_report import draw_translation, show_translation
    from seq2see.evaluate.breakdown import words_by
    from seq2see.evaluate.translation import alignment_by_view
    from seq2see.evaluate.translation import evaluate as evaluated
    from seq2see.text.corpus import PairOptions

    test = _test_set(src, ref, PairOptions(pairs=pairs or (), columns=columns, fields=fields, languages=languages))
    # All that may be wrong is found before anything is translated.
    words_by(tokenize)
    gold = None if align is None else _gold(align, test, words)
    system = _written(hyp, test) if hyp else _translator(model, device, int8, test)
    other = None
    if against is not None:
        other = _written(against, test) if against.is_file() else _translator(against, device, int8, test)
    made = system.translations(test, beam)
    found = evaluated(
        made, test, data=system.model.config.data if system.model else None,
        theirs=other.translations(test, beam) if other else None,
        alignment=[] if gold is None or system.model is None else alignment_by_view(system.model, gold),
        tokenize=tokenize, worst=worst,
    )  # fmt: skip
    if as_json:
        names = {"system": system.name, "other": other.name if other else None, "test": test.name}
        typer.echo(json.dumps({**names, **asdict(found)}, ensure_ascii=False, indent=2))
    else:
        show_translation(found, system.name, test.name, other.name if other else "")
    if out is not None:
        draw_translation(found, system.name, out)


def _test_set(src: Path | None, ref: list[Path] | None, options: "PairOptions") -> "TestSet":
    from seq2see.evaluate.datasets import read_pairs, read_set

    if options.pairs and (src or ref):
        raise UsageError("give either --pairs, or --src and --ref, not both")
    if options.pairs:
        return read_pairs(options)
    if not ref:
        raise UsageError(
            "name the test set: --src FILE and --ref FILE, or --pairs FILE; a language model's is --text FILE"
        )
    return read_set(src, ref)


@dataclass(frozen=True)
class _System:
    """A model, or the file of what one has written."""

    name: str
    model: "Model | None"
    written: tuple[str, ...] = ()

    def translations(self, test: "TestSet", beam: int) -> list[str]:
        if self.model is None:
            return list(self.written)
        from rich.console import Console

        with Console(stderr=True).status(f"{self.name} translates {len(test):,} sentences"):
            return self.model.translate(test.sources, beam=beam)


def _written(path: Path, test: "TestSet") -> _System:
    from seq2see.evaluate.datasets import read_lines, require_in_step

    written = read_lines(path)
    require_in_step(path, written, Path(test.name), [row[0] for row in test.references])
    return _System(str(path), None, tuple(written))


def _translator(path: Path | None, device: str, int8: bool, test: "TestSet") -> _System:
    if not test.sources:
        raise UsageError("name the sentences to translate: --src FILE")
    return _System(
        str(path or "the bundled model"), loaded(path, "encoder-decoder", device, int8, "it takes --text FILE")
    )


def _gold(path: Path, test: "TestSet", words: Words) -> "GoldPairs":
    from seq2see.metrics.alignment import GoldPairs
    from seq2see.text.word_spans import marks_apart, spaced

    if not test.sources:
        raise UsageError("alignments are between sentences and translations: name the sentences by --src FILE")
    pairs = [(source, row[0]) for source, row in zip(test.sources, test.references, strict=True)]
    return GoldPairs.read(path, pairs, marks_apart if words == "marks" else spaced)


def _evaluate_text(
    path: Path | None, device: str, text: list[Path], boundaries: Boundaries | None, stride: int, as_json: bool,
    out: Path | None,
) -> None:  # fmt: skip
    from seq2see.cli.evaluation_report import draw_language, show_language
    from seq2see.evaluate.language_model import evaluate_text
    from seq2see.text.corpus import named, plain

    model = loaded(path, "decoder", device, remedy="it takes --src FILE and --ref FILE")
    found = evaluate_text(model, plain(text, boundaries or model.config.data.boundaries), stride)
    name = str(path)
    if as_json:
        typer.echo(json.dumps({"system": name, "test": named(text), **asdict(found)}, ensure_ascii=False, indent=2))
    else:
        show_language(found, name, named(text))
    if out is not None:
        draw_language(found, name, out)
