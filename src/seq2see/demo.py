"""`make demo`: from nothing to a translator that one can look into, in about two minutes on two cores.

Makes the built-in English–Hindi corpus, trains on it, scores the model on sentences it has never seen, translates the
lecture notes' sentences, and shows where the decoder looked.
"""

import argparse
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from seq2see.api import Model, load
from seq2see.config import DataConfig
from seq2see.course.grammar import Pair, sample, write
from seq2see.errors import UserError
from seq2see.evaluate.translation import exact_match
from seq2see.inspect import plots
from seq2see.inspect.attention_tables import attention_table
from seq2see.inspect.terminal import draw_attention, summary
from seq2see.train.run import train
from seq2see.train.validation import scored

NOTES = [
    "How are you?", "Congratulations", "Thank you", "We are friends", "I am good", "I like eating ice-cream",
    "Nithish killed the lion.", "The lion killed Nithish.",
]  # fmt: skip
SETTINGS = [
    "text.tokenizer=word", "text.vocabulary=4000", "text.shared=false", "model.encoder_layers=2",
    "model.decoder_layers=2", "model.heads=8", "model.feed_forward=512", "model.norm_first=true", "model.dropout=0",
    "train.tokens=600", "train.schedule=cosine", "train.lr=3e-3", "train.warmup=200", "train.beta2=0.95",
    "train.weight_decay=0.3", "train.label_smoothing=0.05", "train.steps=0", "train.patience=0",
    "train.validate_every=1500", "train.validate_on=200", "train.average=1", "train.metric=loss",
]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/demo"))
    parser.add_argument("--minutes", type=float, default=2.0, help="of training")
    options = parser.parse_args()
    console = Console(highlight=False)
    torch.manual_seed(1)

    began = time.perf_counter()
    corpus = sample()
    data = options.out.with_name(f"{options.out.name}-data")
    for folder in (data, options.out):  # what an earlier demo left
        shutil.rmtree(folder, ignore_errors=True)
    write(corpus, data)
    console.print(
        f"{data}: {len(corpus.train):,} sentence pairs from the built-in grammar, {time.perf_counter() - began:.0f} s"
    )
    files = DataConfig(
        src=(f"{data}/train.en",),
        tgt=(f"{data}/train.hi",),
        valid_src=(f"{data}/valid.en",),
        valid_tgt=(f"{data}/valid.hi",),
    )
    train(files, options.out, preset="tiny", settings=[*SETTINGS, f"train.minutes={options.minutes}"])
    model = load(options.out)

    console.print("\n[bold]Sentences it has never seen[/]")
    table = Table("", "sentences", "exact", "BLEU", "chrF++", box=None, pad_edge=False)
    for name, pairs in (
        ("new combinations of known words", corpus.test),
        ("longer than any in training", corpus.longer),
    ):
        scores = judged(model, pairs)
        points = (f"{scores[key]:.1f}" for key in ("bleu", "chrf"))
        table.add_row(name, f"{len(pairs):,}", f"{scores['exact']:.1f}%", *points)
    console.print(table)

    console.print("\n[bold]The lecture notes' sentences[/]")
    for english, made in zip(NOTES, model.translate(NOTES), strict=True):
        console.print(f"  {english:26} {made}")

    _show_attention(model, "I like eating ice-cream", options.out / "attention.png", console)
    console.print(f"\n{time.perf_counter() - began:.0f} s in all. Next:")
    grid = Table.grid(padding=(0, 2))
    for command, what in (
        (f'seq2see translate --model {options.out} "Who are you?"', "your own sentences"),
        (f'seq2see explain --model {options.out} "How are you?"', "why it said so"),
        (f"seq2see explore --model {options.out}", "every number, in the browser"),
        (f"seq2see runs {options.out}", "how the training went"),
        (f"less {options.out}/README.md", "the model's card"),
    ):
        grid.add_row(f"  {command}", f"[dim]{what}[/]")
    console.print(grid)


def judged(model: Model, pairs: Sequence[Pair]) -> dict[str, float]:
    """The share that is exactly one of the right translations, in percent; BLEU and chrF++ against the first."""
    made = model.translate([pair.source for pair in pairs])
    exact = exact_match(made, [pair.references for pair in pairs])
    points = scored(made, [[pair.target] for pair in pairs], plain=0.0)
    rounded = {"exact": 100 * exact, "bleu": points.bleu or 0.0, "chrf": points.chrf or 0.0}
    return {"sentences": len(pairs), **{name: round(value, 1) for name, value in rounded.items()}}


def _show_attention(model: Model, text: str, picture: Path, console: Console) -> None:
    """Where the decoder looked: cross-attention of its last layer, the mean of its heads."""
    e = model.explain(text)
    layer = f"decoder.{model.config.model.decoder_layers - 1}"
    table = attention_table(e, f"{layer}.cross")
    console.print(
        "\n[bold]Where the decoder looked[/] when it was about to write each word (its last layer, mean of its heads)"
    )
    console.print(draw_attention(table, console.width))
    console.print()
    steps = f"The numbers behind it ({len(e.trace.names())} steps of the whole pass have a name)"
    console.print(summary(e.trace, f"{layer}.cross.*", steps))
    try:
        plots.draw_attention(table, picture, f"{text}: {table.title}")
        console.print(f"The same as a picture: {picture}")
    except UserError as error:
        console.print(f"[dim]{error}[/]")


if __name__ == "__main__":
    main()
