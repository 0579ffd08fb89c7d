"""An evaluation in the terminal and as a picture."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from seq2see.cli.data_report import shorten, shown
from seq2see.evaluate.language_model import LanguageEvaluation
from seq2see.evaluate.translation import AlignedBy, Evaluation, Sentence

_CHANCE = 0.05


def show_translation(found: Evaluation, name: str, test: str, other: str) -> None:
    console = Console(highlight=False)
    several = f", {found.references:,} references" if found.references > found.sentences else ""
    console.print(f"[bold]{shown(name)}[/] on {shown(test)}: {found.sentences:,} sentences{several}\n", soft_wrap=True)
    console.print(_scores(found))
    for score in found.scores:
        console.print(Text(f"{score.name}: {score.signature}", style="dim"), soft_wrap=True)
    if found.against:
        console.print(f"\n[bold]Against {shown(other)}[/]", soft_wrap=True)
        console.print(_against(found))
    console.print("\n[bold]By the length of the reference[/]")
    console.print(_lengths(found))
    console.print(
        f"\n[bold]Words of the references found in the translations[/], by their count in {shown(found.counted_in)}",
        soft_wrap=True,
    )
    console.print(_frequencies(found))
    if found.alignment:
        console.print("\n[bold]Word alignment by cross-attention[/], over the given pairs")
        console.print(_alignment(found.alignment))
    if found.worst:
        console.print("\n[bold]The worst by chrF++[/]")
        for line in _worst(found.worst, console.width):
            console.print(line, soft_wrap=True)
    for note in found.notes:
        console.print(Text(f"! {note}", style="yellow"), soft_wrap=True)


def _table(*headings: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for i, heading in enumerate(headings):
        table.add_column(heading, justify="right" if i else "left", no_wrap=True)
    return table


def _scores(found: Evaluation) -> Table:
    table = _table("", "score", "95% of resampled sets")
    for score in found.scores:
        around = "" if score.mean is None else f"{score.mean:.1f} ± {score.interval:.1f}"
        table.add_row(score.name, f"[bold]{score.value:.1f}[/]", around)
    table.add_row("exact", f"[bold]{found.exact:.1%}[/]", "")
    return table


def _against(found: Evaluation) -> Table:
    table = _table("", "this", "that", "difference", "p, bootstrap", "p, randomised", "")
    for row in found.against:
        # sacreBLEU finds no chance in a difference of nothing, and gives it the smallest p.
        chance = row.ours == row.theirs or max(row.p_bootstrap, row.p_randomised) >= _CHANCE
        better = (row.ours < row.theirs) == (row.name == "TER")  # which counts errors
        verdict = "may be chance" if chance else f"[{'green]better' if better else 'red]worse'}[/]"
        table.add_row(
            row.name, f"{row.ours:.1f}", f"{row.theirs:.1f}", f"{row.ours - row.theirs:+.1f}", f"{row.p_bootstrap:.4f}",
            f"{row.p_randomised:.4f}", verdict,
        )  # fmt: skip
    return table


def _lengths(found: Evaluation) -> Table:
    table = _table("words", "sentences", "BLEU", "chrF++", "words written / right")
    for band in found.by_length:
        ratio = f"{band.ratio:.2f}"
        table.add_row(_band(band.low, band.high), f"{band.sentences:,}", f"{band.bleu:.1f}", f"{band.chrf:.1f}", ratio)
    return table


def _frequencies(found: Evaluation) -> Table:
    table = _table("times", "words", "found", "")
    for band in found.by_frequency:
        times = "never" if band.high == 0 else _band(band.low, band.high)
        table.add_row(times, f"{band.words:,}", f"{band.right:,}", f"{band.recall:.1%}")
    return table


def _alignment(rows: Sequence[AlignedBy]) -> Table:
    """A row a layer: its heads' mean in full, and of each head the error rate."""
    heads = max((row.view.head or 0 for row in rows), default=0) + 1
    table = _table("layer", "AER", "precision", "recall", *(f"head {head}" for head in range(heads)))
    best = min(row.scores.aer for row in rows)
    for mean in (row for row in rows if row.view.head is None):
        own = [row.scores.aer for row in rows if row.view.layer == mean.view.layer and row.view.head is not None]
        cells = [f"[bold green]{aer:.1%}[/]" if aer == best else f"{aer:.1%}" for aer in (mean.scores.aer, *own)]
        layer = f"{mean.view.layer}, mean of heads" if heads > 1 else f"{mean.view.layer}"
        table.add_row(layer, cells[0], f"{mean.scores.precision:.1%}", f"{mean.scores.recall:.1%}", *cells[1:])
    return table


def _worst(sentences: Sequence[Sentence], width: int) -> Iterator[Text]:
    """Lines rather than a table, for terminals disagree about the width of Devanagari."""
    margin = max(len(f"line {sentence.line:,}") for sentence in sentences)
    for sentence in sentences:
        parts = [("source", sentence.source), ("written", sentence.translation), ("right", sentence.reference)]
        for i, (what, text) in enumerate(part for part in parts if part != ("source", "")):
            place = (f"line {sentence.line:,}", f"{sentence.chrf:.1f}", "")[i]
            line = Text(f"{place:>{margin}}  {what:8}", style="dim")
            yield line.append(shorten(shown(text), width - margin - 11) or "(nothing)", style="not dim")


def _band(low: int, high: int | None) -> str:
    if high is None:
        return f"{low:,} or more"
    return f"{low:,}" if low == high else f"{low:,}–{high:,}"


def show_language(found: LanguageEvaluation, name: str, test: str) -> None:
    console = Console(highlight=False)
    console.print(
        f"[bold]{shown(name)}[/] on {shown(test)}: {found.documents:,} documents, {found.tokens:,} tokens, "
        f"{found.characters:,} characters, {found.bytes:,} bytes\n",
        soft_wrap=True,
    )
    table = _table("", "")
    table.show_header = False
    table.add_row("perplexity, a token", f"[bold]{found.perplexity:.2f}[/]")
    table.add_row("loss, nats a token", f"{found.loss:.4f}")
    table.add_row("bits a byte", f"[bold]{found.bits_per_byte:.4f}[/]")
    table.add_row("bits a character", f"{found.bits_per_character:.4f}")
    console.print(table)
    apart = (
        "and stops at the ends of documents"
        if found.within_documents
        else "and runs on across documents, as in training"
    )
    console.print(
        f"\nThe context is of {found.window:,} tokens, moves on by {found.stride:,} {apart}: but for the first tokens, each "
        f"has {found.window - found.stride + 1:,} to {found.window:,} before it, on average {found.context:.1f}.\n",
    )
    table = _table("tokens of context", "tokens", "loss")
    for band in found.by_context:
        table.add_row(_band(band.low, band.high), f"{band.tokens:,}", f"{band.loss:.3f}")
    console.print(table)
    if found.unknown:
        console.print(
            Text(
                f"! {found.unknown:,} tokens are <unknown>, whose letters nobody had to foretell: bits a byte are too few",
                style="yellow",
            ),
            soft_wrap=True,
        )


def draw_translation(found: Evaluation, name: str, path: Path) -> None:
    """Scores by length, and recall by frequency, each above the counts that it rests on."""
    from seq2see.inspect.plots import pyplot, save

    figure, axes = pyplot().subplots(2, 2, figsize=(10, 5), sharex="col", height_ratios=[3, 1])
    lengths = [_band(band.low, band.high) for band in found.by_length]
    axes[0][0].plot(lengths, [band.bleu for band in found.by_length], marker="o", label="BLEU")
    axes[0][0].plot(lengths, [band.chrf for band in found.by_length], marker="o", label="chrF++")
    axes[0][0].set(title=f"{name}: by the length of the reference", ylim=(0, 100))
    axes[0][0].legend()
    _counts(axes[1][0], lengths, [band.sentences for band in found.by_length], "sentences", "words")
    times = [_band(band.low, band.high) for band in found.by_frequency]
    axes[0][1].plot(times, [100 * band.recall for band in found.by_frequency], marker="o", color="tab:green")
    axes[0][1].set(title="words of the references found, %", ylim=(0, 100))
    counted = found.counted_in.partition(",")[0]
    _counts(axes[1][1], times, [band.words for band in found.by_frequency], "words", f"times in {counted}")
    for axis in axes[0]:
        axis.grid(alpha=0.3)
    save(figure, path)


def _counts(axis: Any, labels: Sequence[str], counts: Sequence[int], what: str, along: str) -> None:
    bars = axis.bar(labels, counts, color="lightgrey")
    axis.bar_label(bars, [f"{count:,}" for count in counts], fontsize=7)
    axis.margins(y=0.25)
    axis.tick_params(axis="x", rotation=30)
    axis.set(ylabel=what, xlabel=along)


def draw_language(found: LanguageEvaluation, name: str, path: Path) -> None:
    """What context is worth: the loss with more and more of it."""
    from seq2see.inspect.plots import pyplot, save

    figure, axis = pyplot().subplots(figsize=(6, 3.6))
    bands = [_band(band.low, band.high) for band in found.by_context]
    axis.plot(bands, [band.loss for band in found.by_context], marker="o")
    axis.set(
        title=f"{name}: perplexity {found.perplexity:.2f}", xlabel="tokens of context", ylabel="loss, nats a token"
    )
    axis.grid(alpha=0.3)
    save(figure, path)
