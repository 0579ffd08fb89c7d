"""`make demo`: trains and inspects a small translation model in about two minutes on two CPU cores.

Shows first what the bundled translators can do. Then writes the built-in English–Hindi corpus, trains on it, scores the model
on unseen sentences, translates a few examples, and shows the attention of the decoder.
"""

import argparse
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from rich.text import Text

from seq2see.api import Model, load
from seq2see.config import DataConfig
from seq2see.course.sample_corpus import (
    TRAINING_PRESET,
    TRAINING_SETTINGS,
    Pair,
    corpus_files,
    load_corpus,
    write_files,
)
from seq2see.errors import UserError
from seq2see.evaluate.metrics import exact_match
from seq2see.inspect.attention_tables import attention_table
from seq2see.storage.bundled import About, bundled_translators
from seq2see.train.start import train
from seq2see.train.validation import score_translations
from seq2see.views import plots
from seq2see.views.terminal import draw_attention, draw_trace

EXAMPLE_SENTENCES = [
    "How are you?",
    "Congratulations",
    "Thank you",
    "We are friends",
    "I am good",
    "I like eating ice-cream",
    "Nithish killed the lion.",
    "The lion killed Nithish.",
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/demo"))
    parser.add_argument("--minutes", type=float, default=2.0, help="training time")
    options = parser.parse_args()
    console = Console(highlight=False)
    torch.manual_seed(1)
    show_bundled(console)

    start = time.perf_counter()
    console.print("[bold]Your own model[/]: write the corpus, train, translate")
    corpus = load_corpus()
    data = options.out.with_name(f"{options.out.name}-data")
    for folder in (data, options.out):  # left by an earlier demo
        shutil.rmtree(folder, ignore_errors=True)
    write_files(corpus_files(), data)
    console.print(f"{data}: {len(corpus.train):,} sentence pairs of the built-in grammar")
    files = DataConfig(
        src=(f"{data}/train.en",),
        tgt=(f"{data}/train.hi",),
        valid_src=(f"{data}/valid.en",),
        valid_tgt=(f"{data}/valid.hi",),
    )
    train(files, options.out, preset=TRAINING_PRESET, settings=[*TRAINING_SETTINGS, f"train.minutes={options.minutes}"])
    model = load(options.out)

    console.print("\n[bold]Scores on unseen sentences[/]")
    table = Table("", "sentences", "exact match", "BLEU", "chrF++", box=None, pad_edge=False)
    for name, pairs in (
        ("new combinations of known words", corpus.test),
        ("longer than any in training", corpus.longer),
    ):
        scores = evaluate(model, pairs)
        metrics = (f"{scores[key]:.1f}" for key in ("bleu", "chrf"))
        table.add_row(name, f"{len(pairs):,}", f"{scores['exact_match']:.1f}%", *metrics)
    console.print(table)

    console.print("\n[bold]Example translations[/]")
    _print_translations(model, EXAMPLE_SENTENCES, console)

    _show_attention(model, "I like eating ice-cream", options.out / "attention.png", console)
    console.print(f"\n{time.perf_counter() - start:.0f} s in total. Next:")
    grid = Table.grid(padding=(0, 2))
    for command, purpose in (
        (f'seq2see translate --model {options.out} "Who are you?"', "translate your own sentences"),
        (f'seq2see explain --model {options.out} "How are you?"', "explain a translation"),
        (f"seq2see explore --model {options.out}", "explore every number in the browser"),
        (f"seq2see runs {options.out}", "show the training curves"),
        (f"less {options.out}/README.md", "read the model card"),
    ):
        grid.add_row(f"  {command}", f"[dim]{purpose}[/]")
    console.print(grid)


def show_bundled(console: Console) -> None:
    """Translates the examples of the bundled translators."""
    for folder in bundled_translators().values():
        about = About.load(folder)
        if about:
            console.print(f"[bold]The bundled model {folder.name}[/]")
            _print_translations(load(folder), about.examples, console)
            console.print(f"[dim]{about.limits}[/]\n")


def _print_translations(model: Model, sentences: Sequence[str], console: Console) -> None:
    width = max(map(len, sentences))
    for source, translation in zip(sentences, model.translate(sentences), strict=True):
        console.print(Text(f"  {source:{width}}  {translation}"))


def evaluate(model: Model, pairs: Sequence[Pair]) -> dict[str, float]:
    """Returns exact match against all references in percent, and BLEU and chrF++ against the first reference."""
    translations = model.translate_sentences([pair.source for pair in pairs])
    exact = exact_match(translations, [pair.references for pair in pairs])
    scores = score_translations(translations, [[pair.target] for pair in pairs], loss=0.0)
    rounded = {"exact_match": 100 * exact, "bleu": scores.bleu or 0.0, "chrf": scores.chrf or 0.0}
    return {"sentences": len(pairs), **{name: round(value, 1) for name, value in rounded.items()}}


def _show_attention(model: Model, text: str, picture: Path, console: Console) -> None:
    """Draws the cross-attention of the decoder's last layer, averaged over its heads."""
    explanation = model.explain(text)
    layer = f"decoder.{model.config.model.decoder_layers - 1}"
    table = attention_table(explanation, f"{layer}.cross")
    console.print("\n[bold]Decoder attention[/] to the source for each predicted token (last layer, mean over heads)")
    console.print(draw_attention(table, console.width))
    console.print()
    title = f"The tensors behind it (the trace has {len(explanation.trace.names())} named steps)"
    console.print(draw_trace(explanation.trace, f"{layer}.cross.*", title))
    try:
        plots.plot_attention(table, picture, f"{text}: {table.title}")
        console.print(f"Attention plot: {picture}")
    except UserError as error:
        console.print(f"[dim]{error}[/]")


if __name__ == "__main__":
    main()
