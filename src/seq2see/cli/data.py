"""`seq2see data`: corpora made and looked at. `sample` writes the built-in English–Hindi one."""

from pathlib import Path
from typing import Annotated

import typer

data_app = typer.Typer(help="Make a corpus, or look at one before training on it.", no_args_is_help=True)


@data_app.callback()
def _group() -> None:
    """Without this, a lone command would lose its name."""


@data_app.command("sample")
def sample(
    out: Annotated[Path, typer.Option(help="The folder to write to.", metavar="DIRECTORY")],
    pairs: Annotated[int, typer.Option(help="Sentence pairs to train on; the other sets grow with them.")] = 30000,
    seed: Annotated[int, typer.Option(help="Another seed draws other sentences.")] = 1,
) -> None:
    """Write the built-in English–Hindi corpus: everyday sentences from our own grammar, with gold word alignments.

    Example: seq2see data sample --out data/ && seq2see train --src data/train.en --tgt data/train.hi --out runs/first
    """
    from seq2see.course import grammar as corpus

    made = corpus.sample(pairs, seed)
    corpus.write(made, out)
    sizes = {"train": made.train, "valid": made.valid, "test": made.test, "longer": made.longer}
    counts = ", ".join(f"{name} {len(held):,}" for name, held in sizes.items())
    typer.echo(f"{out}: {counts} pairs; see {out / 'README.md'}")
