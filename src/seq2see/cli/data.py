"""`seq2see data`: generate and check corpora. `sample` writes the built-in English–Hindi corpus."""

from pathlib import Path
from typing import Annotated

import typer

data_app = typer.Typer(help="Generate a sample corpus, or check a corpus before training.", no_args_is_help=True)


@data_app.callback()
def _group() -> None:
    """Keeps the command names: without a callback, Typer drops the name of a single command."""


@data_app.command("sample")
def sample(
    out: Annotated[Path, typer.Option(help="Output directory.", metavar="DIRECTORY")],
    pairs: Annotated[int, typer.Option(help="Number of training pairs; the other sets grow with it.")] = 30000,
    seed: Annotated[int, typer.Option(help="Random seed of the sentences.")] = 1,
) -> None:
    """Write the built-in English–Hindi corpus: everyday sentences from a grammar, with gold word alignments.

    Example: seq2see data sample --out data/ && seq2see train --src data/train.en --tgt data/train.hi --out runs/first
    """
    from seq2see.course.grammar import generate_corpus, write_corpus

    corpus = generate_corpus(pairs, seed)
    write_corpus(corpus, out)
    sets = {"train": corpus.train, "valid": corpus.valid, "test": corpus.test, "longer": corpus.longer}
    counts = ", ".join(f"{name} {len(subset):,}" for name, subset in sets.items())
    typer.echo(f"{out}: {counts} pairs; see {out / 'README.md'}")
