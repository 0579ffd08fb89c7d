"""`seq2see vectors`: words to numbers, and what the numbers say: neighbours, similarities, analogies, directions."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from seq2see.cli import corpus_options as c
from seq2see.config import Boundaries
from seq2see.errors import UsageError, UserError

if TYPE_CHECKING:
    from torch import Tensor

    from seq2see.course.vectors import Vectors

vectors_app = typer.Typer(help="Words to numbers: fit vectors on your text, and ask them.", no_args_is_help=True)

Method = Literal["word2vec", "tf-idf", "one-hot"]
Shown = Literal["dot", "cosine", "scaled", "all"]
_LEARNING = "Word2Vec"
File = Annotated[
    Path, typer.Option("--vectors", "-v", help="The vectors: .safetensors, or word2vec's text format as .txt or .vec.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print it for a program to read.")]
Count = Annotated[int, typer.Option("--count", "-n", help="How many words to show.", min=1)]
PairFile = Annotated[
    Path | None, typer.Option("--pairs", help="A file with two words a line, instead of or besides first:second.")
]
DEFAULT = Path("vectors.safetensors")


@vectors_app.command("fit", cls=c.Spread)
def fit(
    text: c.Text = None,
    method: Annotated[Method, typer.Option(help="How words become vectors.")] = "word2vec",
    out: Annotated[Path, typer.Option(help="The file to write; .txt or .vec: word2vec's text format.")] = DEFAULT,
    boundaries: Annotated[
        Boundaries, typer.Option(help="Where a document ends.", rich_help_panel="Text")
    ] = "blank-line",
    min_count: Annotated[
        int | None, typer.Option(help="Leave out rarer words; else 5 for word2vec, 1 for the others.", min=1)
    ] = None,
    keep_case: Annotated[bool, typer.Option("--keep-case", help="Tell Apple from apple.")] = False,
    objective: Annotated[
        Literal["skip-gram", "cbow"],
        typer.Option(help="Each near word foretells, or their mean.", rich_help_panel=_LEARNING),
    ] = "skip-gram",
    width: Annotated[int, typer.Option(help="Numbers of a vector.", min=1, rich_help_panel=_LEARNING)] = 100,
    window: Annotated[int, typer.Option(help="Words to each side.", min=1, rich_help_panel=_LEARNING)] = 5,
    negatives: Annotated[int, typer.Option(help="Random words a pair.", min=1, rich_help_panel=_LEARNING)] = 5,
    epochs: Annotated[int, typer.Option(help="Rounds through the text.", min=1, rich_help_panel=_LEARNING)] = 5,
    sample: Annotated[
        float, typer.Option(help="Skip words above this share; 0: none.", min=0, rich_help_panel=_LEARNING)
    ] = 1e-3,
    lr: Annotated[float, typer.Option(help="The learning rate, which falls.", rich_help_panel=_LEARNING)] = 0.025,
    seed: Annotated[int, typer.Option(help="Where random numbers come from.", rich_help_panel=_LEARNING)] = 1,
    device: Annotated[
        str, typer.Option(help="cpu, cuda or mps; else the best there is.", rich_help_panel=_LEARNING)
    ] = "",
) -> None:
    """Fit vectors on text: one a word, whatever it means in this place or that.

    Examples:

    seq2see vectors fit --text book.txt --out book

    seq2see vectors fit --text books/ --width 200 --epochs 10

    seq2see vectors fit --text book.txt --method tf-idf --out book-tf-idf
    """
    if not text:
        raise UsageError("name the text: --text FILE")
    from seq2see.course.vectors import Word2Vec, fit_one_hot, fit_tf_idf, fit_word2vec
    from seq2see.text.corpus import plain
    from seq2see.train.parallel import best_device

    documents = plain(text, boundaries)
    with _bar() as (reading, progress):
        if method == "word2vec":
            settings = Word2Vec(
                objective, width, window, negatives, epochs, min_count or 5, sample, lr, seed, not keep_case
            )
            made = fit_word2vec(documents, settings, device or best_device(), reading, progress)
        else:
            counted = fit_one_hot if method == "one-hot" else fit_tf_idf
            made = counted(documents, min_count or 1, not keep_case, reading)
    if made.method == "tf-idf" and made.width == 1:
        raise UserError(
            f"1 document has all {len(made):,} words, so that each is ln(1 / 1) = 0 times whatever: put blank lines between "
            "documents, or give a file for each and --boundaries file"
        )
    out = out if out.suffix in (".safetensors", ".txt", ".vec") else out.with_name(out.name + ".safetensors")
    made.save(out)
    typer.echo(f"{out}: {len(made):,} words, {made.width:,} numbers each ({made.method})", err=True)


@vectors_app.command("near")
def near(
    word: Annotated[str, typer.Argument()], vectors: File = DEFAULT, count: Count = 10, as_json: AsJson = False
) -> None:
    """The words most like one, by cosine.

    Example: seq2see vectors near apple --vectors book
    """
    made = _load(vectors)
    found = made.near(word, count)
    if as_json:
        typer.echo(json.dumps([each._asdict() for each in found], ensure_ascii=False))
        return
    for each in found:
        typer.echo(f"{each.score:7.3f}  {each.word}{_times(made, each.word)}")


@vectors_app.command("similarity")
def similarity(
    words: Annotated[list[str], typer.Argument(help='Words, or a whole document in quotes: "apple and an orange".')],
    vectors: File = DEFAULT,
    measure: Annotated[Shown, typer.Option(help="Dot product, cosine, dot product over √d.")] = "all",
    as_json: AsJson = False,
) -> None:
    """How alike words are: the table of each with each, by dot product, cosine and scaled dot product.

    Example: seq2see vectors similarity "an apple phone" --vectors book
    """
    from seq2see.course.vectors.word_counts import split
    from seq2see.similarity import MEASURES

    made = _load(vectors)
    # In a document, a word without a vector is left out; a word that is asked for by itself must be there.
    chosen: list[str] = []
    missing: list[str] = []
    for argument in words:
        document = [argument] if argument in made else split(argument, made.lower)
        single = len(document) < 2
        chosen += [argument] if single else [word for word in document if word in made]
        missing += [] if single else [word for word in document if word not in made]
    if missing:
        typer.echo(f"without a vector, and left out: {', '.join(dict.fromkeys(missing))}", err=True)
    if not chosen:
        raise UserError(f"none of the {len(missing)} words has a vector in {vectors}")
    shown = MEASURES if measure == "all" else (measure,)
    tables = {name: made.similarity(chosen, measure=name) for name in shown}
    if as_json:
        typer.echo(json.dumps({"words": chosen} | {k: v.tolist() for k, v in tables.items()}, ensure_ascii=False))
        return
    titles = {"dot": "dot product", "cosine": "cosine", "scaled": f"dot product / √{made.width:,}"}
    for name, table in tables.items():
        _print_table(titles[name], chosen, table)


@vectors_app.command("analogy")
def analogy(
    words: Annotated[list[str], typer.Argument(help="Three words: king man woman asks for king − man + woman.")],
    vectors: File = DEFAULT,
    answer: Annotated[str, typer.Option(help="What should come out: its true rank is told.")] = "",
    count: Count = 10,
    as_json: AsJson = False,
) -> None:
    """A is to B as what is to C? The words nearest to A − B + C.

    Example: seq2see vectors analogy king man woman --answer queen --vectors books
    """
    if len(words) != 3:
        raise UsageError(f"an analogy takes three words, such as king man woman, not {len(words)}")
    made = _load(vectors)
    a, b, c_ = words
    found = made.analogy(a, b, c_, answer, count)
    if as_json:
        row: dict[str, Any] = {"best": [each._asdict() for each in found.best], "given": found.given}
        row |= {"answer": found.answer, "rank": found.rank, "score": found.score} if answer else {}
        typer.echo(json.dumps(row, ensure_ascii=False))
        return
    typer.echo(f"{a} − {b} + {c_}")
    for number, each in enumerate(found.best, 1):
        typer.echo(f"{number:4}  {each.score:6.3f}  {each.word}")
    if answer:
        typer.echo(f'"{answer}" is number {found.rank:,} of {len(made) - len(found.given):,}, with {found.score:.3f}')
    ranks = ", ".join(f"{word} {rank:,}" for word, rank in found.given.items())
    typer.echo(f"the words given do not count as answers; with them, their ranks would be: {ranks}")


@vectors_app.command("direction")
def direction(
    pairs: Annotated[list[str] | None, typer.Argument(help="Pairs that show the direction: cats:cat dogs:dog.")] = None,
    words: Annotated[str, typer.Option(help='The words to place on it: "houses house many".')] = "",
    file: PairFile = None,
    vectors: File = DEFAULT,
    count: Annotated[int, typer.Option("--count", "-n", help="Without --words: how many from each end.", min=1)] = 10,
    as_json: AsJson = False,
) -> None:
    """How plural is a word? The mean of cats − cat, dogs − dog …, and how far other words lie along it.

    Example: seq2see vectors direction cats:cat dogs:dog hands:hand --words "houses house three"
    """
    made = _load(vectors)
    found = made.direction(_pairs(pairs or (), file))
    cosines = made.cosines(found.vector)
    if words:
        chosen = [word for word in re.split(r"[\s,]+", words) if word]
        order = [made.place(word) for word in chosen]
    else:
        places = cosines.argsort(descending=True).tolist()
        order = places[:count] + places[max(count, len(places) - count) :]
        chosen = [made.words[i] for i in order]
    along = made.along(chosen, found.vector).tolist()
    rows = [(word, far, float(cosines[i])) for word, far, i in zip(chosen, along, order, strict=True)]
    if as_json:
        told = [{"word": word, "along": far, "cosine": cosine} for word, far, cosine in rows]
        typer.echo(json.dumps({"pairs": len(found.pairs), "right": found.right, "words": told}, ensure_ascii=False))
        return
    if len(found.pairs) > 1:
        typer.echo(f"{len(found.pairs)} pairs; the mean of the others points the right way for {found.right} of them")
    typer.echo("  along  cosine  word")
    for word, far, cosine in sorted(rows, key=lambda row: -row[1]):
        typer.echo(f"{far:7.2f} {cosine:7.3f}  {word}")


@vectors_app.command("plot")
def plot(
    words: Annotated[
        list[str] | None, typer.Argument(help="Words; cat:cats draws an arrow from the one to the other.")
    ] = None,
    out: Annotated[Path, typer.Option(help="The picture, .png or .svg.")] = Path("vectors.png"),
    vectors: File = DEFAULT,
    across: Annotated[str, typer.Option(help='Pairs whose direction goes to the right: "cats:cat dogs:dog".')] = "",
    up: Annotated[str, typer.Option(help='Pairs whose direction goes up: "king:queen man:woman".')] = "",
    file: PairFile = None,
    top: Annotated[int, typer.Option(help="Without words: so many of the most frequent.", min=2)] = 100,
) -> None:
    """Words as points: on two directions, or on the two axes along which they differ most (needs seq2see\\[plot]).

    Example: seq2see vectors plot king:queen man:woman uncle:aunt --out royal.png
    """
    if bool(across) != bool(up):
        raise UsageError("two directions make a picture: give --across and --up, or neither for the principal axes")
    made = _load(vectors)
    arrows = _pairs([word for word in words or () if ":" in word], file)
    single = [word for word in words or () if ":" not in word]
    chosen = list(dict.fromkeys([*single, *(word for pair in arrows for word in pair)])) or list(made.words[:top])
    if across:
        ways = [_pairs(text.split(), None) for text in (across, up)]
        columns = [made.along(chosen, made.direction(pairs).vector).tolist() for pairs in ways]
        points = list(zip(*columns, strict=True))
        labels = [", ".join(f"{b} → {a}" for a, b in pairs[:3]) + (" …" if len(pairs) > 3 else "") for pairs in ways]
    else:
        places, shares = made.principal(chosen)
        points = [(x, y) for x, y in places.tolist()]
        labels = [f"principal axis {i}: {share:.0%} of the spread" for i, share in enumerate(shares.tolist(), 1)]
    from seq2see.inspect.plots import points as draw

    draw(dict(zip(chosen, points, strict=True)), out, (labels[0], labels[1]), arrows)
    typer.echo(f"{out}", err=True)


@vectors_app.command("convert")
def convert(
    source: Annotated[Path, typer.Argument(help="Vectors to read.")],
    target: Annotated[Path, typer.Argument(help="The file to write: .safetensors, or .txt or .vec for text.")],
) -> None:
    """From one format of files to the other.

    Example: seq2see vectors convert glove.txt.gz glove.safetensors
    """
    made = _load(source)
    made.save(target)
    typer.echo(f"{target}: {len(made):,} words, {made.width:,} numbers each", err=True)


def _load(path: Path) -> "Vectors":
    from seq2see.course.vectors import Vectors

    return Vectors.load(path)


def _times(made: "Vectors", word: str) -> str:
    return "" if made.counts is None else f"  ({int(made.counts[made.place(word)]):,}×)"


def _pairs(arguments: Sequence[str], file: Path | None) -> list[tuple[str, str]]:
    """`cats:cat`, and the lines of a file, two words each."""
    from seq2see.text.formats.lines import lines

    written = [(argument, re.split(r"[:]", argument)) for argument in arguments]
    if file is not None:
        written += [(f"{file}: {line}", line.split()) for line in lines(file) if line and line.strip()]
    for where, pair in written:
        if len(pair) != 2 or not all(pair):
            raise UsageError(f'"{where}" is no pair: write cats:cat, or in a file two words a line')
    return [(pair[0], pair[1]) for _, pair in written]


def _print_table(title: str, words: Sequence[str], table: "Tensor") -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    shown = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    shown.add_column("")
    for word in words:
        shown.add_column(escape(word), justify="right", no_wrap=True)
    for word, row in zip(words, table.tolist(), strict=True):
        shown.add_row(f"[bold]{escape(word)}[/]", *(f"{value:.3f}" for value in row))
    Console(highlight=False).print(shown)


@contextmanager
def _bar() -> Iterator[tuple[Callable[[int], object], Callable[[float], object]]]:
    """What to tell of letters read, and of the share that is trained; shown where there is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns: tuple[Any, ...] = (
        TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task, read = bar.add_task("reading", total=None), 0

        def reading(letters: int) -> None:
            nonlocal read
            read += letters
            bar.update(task, description=f"reading, {read / 1e6:,.1f} million letters")

        yield reading, lambda share: bar.update(task, description="learning", total=1.0, completed=share)
