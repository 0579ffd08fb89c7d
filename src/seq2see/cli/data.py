"""`seq2see data`: check corpora. `sample` writes the built-in English–Hindi corpus."""

from pathlib import Path
from typing import Annotated

import typer

from seq2see.cli.check import check
from seq2see.cli.options import CommandGroup


def sample(
    out: Annotated[Path, typer.Option(help="Output directory.", metavar="DIRECTORY")],
) -> None:
    """Write the built-in English–Hindi corpus: everyday sentences from a grammar, with gold word alignments.

    Example: seq2see data sample --out data/ && seq2see train --src data/train.en --tgt data/train.hi --out runs/first
    """
    from seq2see.course.sample_corpus import corpus_files, write_files

    files = corpus_files()
    write_files(files, out)
    sets = ((name.removesuffix(".en"), content.count(b"\n")) for name, content in files.items() if name.endswith(".en"))
    counts = ", ".join(f"{name} {count:,}" for name, count in sets)
    typer.echo(f"{out}: {counts} pairs; see {out / 'README.md'}")


data_app = CommandGroup("Write the sample corpus, or check a corpus before training.", sample, check)
