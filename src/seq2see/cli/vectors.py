"""`seq2see vectors`: fits word vectors, and queries them: neighbours, similarities, analogies, directions."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from seq2see.cli.options import CommandGroup, Options
from seq2see.cli.output import check_plot, print_json, progress, table
from seq2see.config import DataConfig, option
from seq2see.course.vectors.config import Word2VecConfig
from seq2see.errors import UsageError, UserError, terminal
from seq2see.tensors.files import check_output

if TYPE_CHECKING:
    from seq2see.course.vectors import WordVectors
    from seq2see.errors import ProgressFactory

Method = Literal["word2vec", "tf-idf", "one-hot"]
MeasureOption = Literal["dot", "cosine", "scaled", "all"]
DEFAULT = Path("vectors.safetensors")
VECTORS = option(
    DEFAULT,
    "Vectors: .safetensors, or word2vec's text format as .txt or .vec.",
    flag=("--vectors", "-v"),
    metavar="FILE",
)
COUNT = option(10, "Number of words to show.", flag=("--count", "-n"), min=1)
JSON = option(False, "Print JSON.", flag="--json")
PAIR_FILE: Path | None = option(
    None, "File with two words per line, in addition to first:second.", flag="--pairs", metavar="FILE"
)


WORD2VEC = Options("objective", "width", "window", "negatives", "epochs", "sample", "lr", "seed", panel="Word2Vec")


def fit(
    *,
    data: Annotated[DataConfig, Options("text", "boundaries", boundaries={"help": "Where a document ends."})],
    method: Method = option("word2vec", "Kind of vectors."),
    out: Path = option(DEFAULT, "Output file; .txt or .vec for word2vec's text format.", metavar="FILE"),
    min_count: int | None = option(None, "Drop rarer words; by default below 5 for word2vec, 1 for the others.", min=1),
    keep_case: bool = option(False, "Distinguish Apple from apple."),
    word2vec: Annotated[Word2VecConfig, WORD2VEC],
    device: str = option("", "cpu, cuda or mps; by default the best available.", metavar="DEVICE", panel="Word2Vec"),
) -> None:
    """Fit word vectors on text, one per word regardless of context.

    Examples:

    seq2see vectors fit --text book.txt --out book

    seq2see vectors fit --text books/ --width 200 --epochs 10

    seq2see vectors fit --text book.txt --method tf-idf --out book-tf-idf
    """
    if not data.text:
        raise UsageError("missing --text FILE")
    from seq2see.course.vectors import fit_one_hot, fit_tf_idf, fit_word2vec
    from seq2see.course.vectors.files import SUFFIXES
    from seq2see.data.corpus import plain_text
    from seq2see.tensors.device import resolve_device

    out = out if out.suffix in SUFFIXES else out.with_name(out.name + ".safetensors")
    check_output(out)
    device = resolve_device(device)
    text = plain_text(map(Path, data.text), data.boundaries)
    with progress() as start:
        documents = _counted(text, start("reading", None))
        if method == "word2vec":
            config = replace(word2vec, min_count=min_count or word2vec.min_count, lowercase=not keep_case)
            vectors = fit_word2vec(documents, config, device, _show_fraction(start))
        else:
            fit_vectors = fit_one_hot if method == "one-hot" else fit_tf_idf
            vectors = fit_vectors(documents, min_count or 1, not keep_case)
    if vectors.method == "tf-idf" and vectors.width == 1:
        raise UserError(
            f"all {len(vectors):,} words are in 1 document, so every TF-IDF is ln(1 / 1) = 0: put blank lines between "
            "documents, or give one file per document with --boundaries file"
        )
    vectors.save(out)
    typer.echo(f"{out}: {len(vectors):,} words, {vectors.width:,} dimensions ({vectors.method})", err=True)


def nearest(
    word: Annotated[str, typer.Argument(metavar="WORD", help="Word to look up.")],
    file: Path = VECTORS,
    count: int = COUNT,
    as_json: bool = JSON,
) -> None:
    """Show the most similar words, by cosine.

    Example: seq2see vectors nearest apple --vectors book
    """
    vectors = _load(file)
    neighbors = vectors.nearest(word, count)
    if as_json:
        print_json([neighbor._asdict() for neighbor in neighbors])
        return
    for neighbor in neighbors:
        typer.echo(f"{neighbor.score:7.3f}  {neighbor.word}{_frequency(vectors, neighbor.word)}")


def similarity(
    words: Annotated[
        list[str], typer.Argument(metavar="WORD", help='Words, or a document in quotes: "apple and an orange".')
    ],
    file: Path = VECTORS,
    measure: MeasureOption = option("all", "Dot product, cosine, or dot product / √d."),
    as_json: bool = JSON,
) -> None:
    """Compare all pairs of words by dot product, cosine and scaled dot product.

    Example: seq2see vectors similarity "an apple phone" --vectors book
    """
    from rich.text import Text

    from seq2see.course.vectors.corpus import split_words
    from seq2see.inspect.similarity import MEASURES

    vectors = _load(file)
    # Words of a document without a vector are skipped; a word given on its own must have one.
    chosen: list[str] = []
    missing: list[str] = []
    for argument in words:
        document = [argument] if argument in vectors else split_words(argument, vectors.lowercase)
        is_single = len(document) < 2
        chosen += [argument] if is_single else [word for word in document if word in vectors]
        missing += [] if is_single else [word for word in document if word not in vectors]
    if missing:
        typer.echo(f"skipped, without a vector: {', '.join(dict.fromkeys(missing))}", err=True)
    if not chosen:
        raise UserError(f"none of the {len(missing)} words has a vector in {file}")
    measures = MEASURES if measure == "all" else (measure,)
    tables = {name: vectors.similarity(chosen, measure=name) for name in measures}
    if as_json:
        print_json({"words": chosen} | {k: v.tolist() for k, v in tables.items()})
        return
    titles = {"dot": "dot product", "cosine": "cosine", "scaled": f"dot product / √{vectors.width:,}"}
    for name, values in tables.items():
        rows = [
            (Text(word, "bold"), *(f"{value:.3f}" for value in row))
            for word, row in zip(chosen, values.tolist(), strict=True)
        ]
        style = {"title": titles[name], "title_justify": "left", "title_style": "bold"}
        terminal().print(table(["", *chosen], rows, **style))


def analogy(
    words: Annotated[
        list[str], typer.Argument(metavar="WORD", help="Three words A B C: king man woman means king − man + woman.")
    ],
    file: Path = VECTORS,
    answer: str = option("", "Expected answer, to show its rank.", metavar="WORD"),
    count: int = COUNT,
    as_json: bool = JSON,
) -> None:
    """Find the words nearest to A − B + C.

    Example: seq2see vectors analogy king man woman --answer queen --vectors books
    """
    if len(words) != 3:
        raise UsageError(f"an analogy takes three words, such as king man woman, not {len(words)}")
    vectors = _load(file)
    a, b, c_ = words
    found = vectors.analogy(a, b, c_, answer, count)
    if as_json:
        row: dict[str, Any] = {"best": [each._asdict() for each in found.best], "input_ranks": found.input_ranks}
        row |= {"answer": found.answer, "rank": found.rank, "score": found.score} if answer else {}
        print_json(row)
        return
    typer.echo(f"{a} − {b} + {c_}")
    for number, each in enumerate(found.best, 1):
        typer.echo(f"{number:4}  {each.score:6.3f}  {each.word}")
    if answer:
        total = len(vectors) - len(found.input_ranks)
        typer.echo(f'"{answer}" has rank {found.rank:,} of {total:,}, with cosine {found.score:.3f}')
    ranks = ", ".join(f"{word} {rank:,}" for word, rank in found.input_ranks.items())
    typer.echo(f"input words are excluded; otherwise their ranks would be: {ranks}")


def direction(
    pairs: list[str] | None = option(
        None, "Pairs that define the direction: cats:cat dogs:dog.", argument=True, metavar="FIRST:SECOND"
    ),
    words: str = option("", 'Words to project: "houses house many".', metavar="WORDS"),
    pair_file: Path | None = PAIR_FILE,
    file: Path = VECTORS,
    count: int = option(10, "Without --words: number of words from each end.", flag=("--count", "-n"), min=1),
    as_json: bool = JSON,
) -> None:
    """Project words on a direction, the mean of pairs such as cats − cat and dogs − dog.

    Example: seq2see vectors direction cats:cat dogs:dog hands:hand --words "houses house three"
    """
    vectors = _load(file)
    found = vectors.direction(_parse_pairs(pairs or (), pair_file))
    cosines = vectors.cosines(found.vector)
    if words:
        chosen = [word for word in re.split(r"[\s,]+", words) if word]
        indices = [vectors.index(word) for word in chosen]
    else:
        order = cosines.argsort(descending=True).tolist()
        indices = order[:count] + order[max(count, len(order) - count) :]
        chosen = [vectors.words[i] for i in indices]
    projections = vectors.project(chosen, found.vector).tolist()
    rows = [(word, value, float(cosines[i])) for word, value, i in zip(chosen, projections, indices, strict=True)]
    correct = found.leave_one_out_correct
    if as_json:
        output = [{"word": word, "projection": value, "cosine": cosine} for word, value, cosine in rows]
        summary = {"pairs": len(found.pairs), "leave_one_out_correct": correct, "words": output}
        print_json(summary)
        return
    if len(found.pairs) > 1:
        typer.echo(f"{len(found.pairs)} pairs; the mean of the others points the right way for {correct} of them")
    typer.echo("projection  cosine  word")
    for word, value, cosine in sorted(rows, key=lambda row: -row[1]):
        typer.echo(f"{value:10.2f} {cosine:7.3f}  {word}")


def plot(
    words: list[str] | None = option(
        None, "Words; cat:cats draws an arrow from cat to cats.", argument=True, metavar="WORD"
    ),
    out: Path = option(Path("vectors.png"), "Output file, .png, .svg or .pdf.", metavar="FILE"),
    file: Path = VECTORS,
    x_axis: str = option("", 'Pairs that define the x axis: "cats:cat dogs:dog".', metavar="PAIRS"),
    y_axis: str = option("", 'Pairs that define the y axis: "king:queen man:woman".', metavar="PAIRS"),
    pair_file: Path | None = PAIR_FILE,
    top: int = option(100, "Without words: number of most frequent words.", min=2),
) -> None:
    """Plot words on two directions, or on their two principal axes (needs seq2see\\[plot]).

    Example: seq2see vectors plot king:queen man:woman uncle:aunt --out royal.png
    """
    if bool(x_axis) != bool(y_axis):
        raise UsageError("give both --x-axis and --y-axis, or neither for the principal axes")
    check_plot(out)
    vectors = _load(file)
    arrows = _parse_pairs([word for word in words or () if ":" in word], pair_file)
    single = [word for word in words or () if ":" not in word]
    chosen = list(dict.fromkeys([*single, *(word for pair in arrows for word in pair)])) or list(vectors.words[:top])
    if x_axis:
        axes = [_parse_pairs(text.split(), None) for text in (x_axis, y_axis)]
        columns = [vectors.project(chosen, vectors.direction(pairs).vector).tolist() for pairs in axes]
        points = list(zip(*columns, strict=True))
        labels = [", ".join(f"{b} → {a}" for a, b in pairs[:3]) + (" …" if len(pairs) > 3 else "") for pairs in axes]
    else:
        coordinates, ratios = vectors.pca(chosen)
        points = [(x, y) for x, y in coordinates.tolist()]
        labels = [f"principal axis {i}: {ratio:.0%} of the variance" for i, ratio in enumerate(ratios.tolist(), 1)]
    from seq2see.views.plots import plot_points

    plot_points(dict(zip(chosen, points, strict=True)), out, (labels[0], labels[1]), arrows)
    typer.echo(f"{out}", err=True)


def convert(
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="Vectors to read.")],
    target: Annotated[
        Path, typer.Argument(metavar="TARGET", help="Output file: .safetensors, or .txt or .vec for text.")
    ],
) -> None:
    """Convert vectors between .safetensors and word2vec's text format.

    Example: seq2see vectors convert glove.txt.gz glove.safetensors
    """
    from seq2see.course.vectors.files import SUFFIXES

    check_output(target, SUFFIXES)
    vectors = _load(source)
    vectors.save(target)
    typer.echo(f"{target}: {len(vectors):,} words, {vectors.width:,} dimensions", err=True)


def _load(path: Path) -> "WordVectors":
    from seq2see.course.vectors import WordVectors

    return WordVectors.load(path)


def _frequency(vectors: "WordVectors", word: str) -> str:
    return "" if vectors.counts is None else f"  ({int(vectors.counts[vectors.index(word)]):,}×)"


def _parse_pairs(arguments: Sequence[str], file: Path | None) -> list[tuple[str, str]]:
    """Parses arguments such as `cats:cat`, and the lines of a file with two words each."""
    from seq2see.data.lines import read_lines

    pairs = [(argument, argument.split(":")) for argument in arguments]
    if file is not None:
        pairs += [(f"{file}: {line}", line.split()) for line in read_lines(file) if line and line.strip()]
    for text, pair in pairs:
        if len(pair) != 2 or not all(pair):
            raise UsageError(f'"{text}" is not a pair: write cats:cat, or two words per line in a file')
    return [(pair[0], pair[1]) for _, pair in pairs]


def _counted(documents: Iterable[str], advance: Callable[[int], object]) -> Iterator[str]:
    """Yields the documents, and reports the characters of each."""
    for document in documents:
        yield document
        advance(len(document))


def _show_fraction(start: "ProgressFactory") -> Callable[[float], None]:
    """Returns a function that shows a fraction on a progress bar of its own, which appears with the first."""
    bars: list[Callable[[int], None]] = []
    shown = 0

    def show(fraction: float) -> None:
        nonlocal shown
        bars.extend([] if bars else [start("training", 1000)])
        bars[0](round(1000 * fraction) - shown)
        shown = round(1000 * fraction)

    return show


vectors_app = CommandGroup(
    "Fit word vectors on text, and query them.", fit, nearest, similarity, analogy, direction, plot, convert
)
