"""Prints and plots the results of an evaluation."""

from collections.abc import Iterator, Sequence
from dataclasses import astuple
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from seq2see.cli.data_report import escape_controls, truncate_to_width
from seq2see.cli.output import table
from seq2see.errors import terminal
from seq2see.evaluate.alignment import HeadScores
from seq2see.evaluate.language_model import LanguageModelEvaluation
from seq2see.evaluate.metrics import METRICS
from seq2see.evaluate.translation import Evaluation, SentenceScore

_SIGNIFICANCE = 0.05


def print_translation(evaluation: Evaluation, name: str, test: str, baseline: str) -> None:
    console = terminal()
    references = f", {evaluation.references:,} references" if evaluation.references > evaluation.sentences else ""
    console.print(
        _bold(escape_controls(name), f" on {escape_controls(test)}: {evaluation.sentences:,} sentences{references}\n"),
        soft_wrap=True,
    )
    console.print(_scores(evaluation))
    for score in evaluation.scores:
        if score.signature:  # sacreBLEU's
            console.print(Text(f"{score.name}: {score.signature}", style="dim"), soft_wrap=True)
    if evaluation.comparison:
        console.print(_bold(f"\nCompared with {escape_controls(baseline)}"), soft_wrap=True)
        console.print(_comparison(evaluation))
    if evaluation.by_length:
        console.print(_bold("\nBy reference length"))
        console.print(_lengths(evaluation))
    if evaluation.by_frequency:
        source = escape_controls(evaluation.frequency_source)
        console.print(_bold("\nRecall of reference words", f", by word frequency in {source}"), soft_wrap=True)
        console.print(_frequencies(evaluation))
    if evaluation.alignment:
        scores = ", in %: mean over heads, then AER per head"
        console.print(_bold("\nWord alignment by cross-attention", scores))
        console.print(_alignment(evaluation.alignment))
    if evaluation.worst:
        console.print(_bold("\nWorst translations by chrF++"))
        for line in _worst(evaluation.worst, console.width):
            console.print(line, soft_wrap=True)
    for warning in evaluation.warnings:
        console.print(Text(f"! {warning}", style="yellow"), soft_wrap=True)


def _bold(text: str, others: str = "") -> Text:
    return Text.assemble((text, "bold"), others)


def _table(headings: Sequence[str], rows: Sequence[Sequence[str | Text]]) -> Table:
    return table(headings, rows, header_style="dim")


def _scores(evaluation: Evaluation) -> Table:
    rows = [
        (
            score.name,
            _bold(f"{score.value:.1f}"),
            "" if score.mean is None else f"{score.mean:.1f} ± {score.interval:.1f}",
        )
        for score in evaluation.scores
    ]
    shares = {METRICS["exact"].name: evaluation.exact_match}
    if evaluation.recognition is not None:
        shares[METRICS["cer"].name] = evaluation.recognition.character_error_rate
        shares[METRICS["wer"].name] = evaluation.recognition.word_error_rate
    rows += [(name, _bold(f"{share:.1%}"), "") for name, share in shares.items()]
    return _table(("", "score", "95% confidence interval"), rows)


def _comparison(evaluation: Evaluation) -> Table:
    error_rates = {metric.name for metric in METRICS.values() if metric.error_rate}
    rows = []
    for row in evaluation.comparison:
        # sacreBLEU gives equal scores the smallest p-value.
        insignificant = row.system == row.baseline or max(row.p_bootstrap, row.p_randomization) >= _SIGNIFICANCE
        better = (row.system < row.baseline) == (row.name in error_rates)
        verdict = Text("better", "green") if better else Text("worse", "red")
        verdict = Text("not significant") if insignificant else verdict
        scores = (f"{row.system:.1f}", f"{row.baseline:.1f}", f"{row.system - row.baseline:+.1f}")
        rows.append((row.name, *scores, f"{row.p_bootstrap:.4f}", f"{row.p_randomization:.4f}", verdict))
    return _table(("", "system", "baseline", "diff", "p (bootstrap)", "p (randomised)", ""), rows)


def _lengths(evaluation: Evaluation) -> Table:
    rows = [
        (_range(low, high), f"{sentences:,}", f"{bleu:.1f}", f"{chrf:.1f}", f"{ratio:.2f}")
        for low, high, sentences, bleu, chrf, ratio in map(astuple, evaluation.by_length)
    ]
    return _table(("words", "sentences", "BLEU", "chrF++", "length ratio"), rows)


def _frequencies(evaluation: Evaluation) -> Table:
    rows = [
        ("never" if high == 0 else _range(low, high), f"{words:,}", f"{matched:,}", f"{recall:.1%}")
        for low, high, words, matched, recall in map(astuple, evaluation.by_frequency)
    ]
    return _table(("occurrences", "words", "matched", "recall"), rows)


def _alignment(rows: Sequence[HeadScores]) -> Table:
    """Builds one row per layer: all scores of the mean over its heads, and the AER of each head."""
    heads = max((row.layer_head.head or 0 for row in rows), default=0) + 1
    best, lines = min(row.scores.aer for row in rows), []
    for mean in (row for row in rows if row.layer_head.head is None):
        layer, scores = mean.layer_head.layer, mean.scores
        aers = [scores.aer] + [row.scores.aer for row in rows if row.layer_head.layer == layer and row is not mean]
        cells = [Text(f"{100 * aer:.1f}", "bold green" if aer == best else "") for aer in aers]
        others = [Text(f"{100 * value:.1f}") for value in (scores.precision, scores.recall)]
        lines.append((Text(f"{layer}"), cells[0], *others, *cells[1:]))
    return _table(("layer", "AER", "precision", "recall", *(f"h{head}" for head in range(heads))), lines)


def _worst(sentences: Sequence[SentenceScore], width: int) -> Iterator[Text]:
    """Yields lines rather than a table because terminals disagree about the width of Devanagari."""
    margin = max(len(f"line {sentence.line:,}") for sentence in sentences)
    for sentence in sentences:
        parts = [("source", sentence.source), ("output", sentence.translation), ("reference", sentence.reference)]
        for i, (label, text) in enumerate(part for part in parts if part != ("source", "")):
            left = (f"line {sentence.line:,}", f"{sentence.chrf:.1f}", "")[i]
            line = Text(f"{left:>{margin}}  {label:10}", style="dim")
            yield line.append(
                truncate_to_width(escape_controls(text), width - margin - 13) or "(empty)", style="not dim"
            )


def _range(low: int, high: int | None) -> str:
    if high is None:
        return f"{low:,} or more"
    return f"{low:,}" if low == high else f"{low:,}–{high:,}"


def print_language_model(evaluation: LanguageModelEvaluation, name: str, test: str) -> None:
    console = terminal()
    console.print(
        _bold(
            escape_controls(name),
            f" on {escape_controls(test)}: {evaluation.documents:,} documents, {evaluation.tokens:,} tokens, "
            f"{evaluation.characters:,} characters, {evaluation.bytes:,} bytes\n",
        ),
        soft_wrap=True,
    )
    rows = [
        ("perplexity per token", _bold(f"{evaluation.perplexity:.2f}")),
        ("loss (nats per token)", f"{evaluation.loss:.4f}"),
        ("bits per byte", _bold(f"{evaluation.bits_per_byte:.4f}")),
        ("bits per character", f"{evaluation.bits_per_character:.4f}"),
    ]
    console.print(table(("", ""), rows, show_header=False))
    boundaries = "stop at" if evaluation.within_documents else "cross"
    console.print(
        f"\nContext windows of {evaluation.window:,} tokens advance by {evaluation.stride:,} and {boundaries} document "
        "boundaries, as in training. Except for the first tokens, each token has "
        f"{evaluation.window - evaluation.stride + 1:,} to {evaluation.window:,} tokens of context, "
        f"{evaluation.mean_context:.1f} on average.\n",
    )
    contexts = [(_range(row.low, row.high), f"{row.tokens:,}", f"{row.loss:.3f}") for row in evaluation.by_context]
    console.print(_table(("context (tokens)", "tokens", "loss"), contexts))
    if evaluation.unknown_tokens:
        console.print(
            Text(
                f"! {evaluation.unknown_tokens:,} tokens are <unknown>, whose characters are not predicted: bits per byte are "
                "underestimated",
                style="yellow",
            ),
            soft_wrap=True,
        )


def plot_translation(evaluation: Evaluation, name: str, path: Path) -> None:
    """Plots scores by length and recall by frequency, each above a bar chart of the counts."""
    from seq2see.views.plots import new_figure, save

    figure = new_figure((10, 5))
    axes = figure.subplots(2, 2, sharex="col", height_ratios=[3, 1])
    lengths = [_range(bucket.low, bucket.high) for bucket in evaluation.by_length]
    axes[0][0].plot(lengths, [bucket.bleu for bucket in evaluation.by_length], marker="o", label="BLEU")
    axes[0][0].plot(lengths, [bucket.chrf for bucket in evaluation.by_length], marker="o", label="chrF++")
    axes[0][0].set(title=f"{name}: by reference length", ylim=(0, 100))
    axes[0][0].legend()
    _plot_counts(axes[1][0], lengths, [bucket.sentences for bucket in evaluation.by_length], "sentences", "words")
    frequencies = [_range(bucket.low, bucket.high) for bucket in evaluation.by_frequency]
    axes[0][1].plot(
        frequencies, [100 * bucket.recall for bucket in evaluation.by_frequency], marker="o", color="tab:green"
    )
    axes[0][1].set(title="recall of reference words, %", ylim=(0, 100))
    counted = evaluation.frequency_source.partition(" (")[0]
    words = [bucket.words for bucket in evaluation.by_frequency]
    _plot_counts(axes[1][1], frequencies, words, "words", f"occurrences in {counted}")
    for axis in axes[0]:
        axis.grid(alpha=0.3)
    save(figure, path)


def _plot_counts(axis: Any, labels: Sequence[str], counts: Sequence[int], ylabel: str, xlabel: str) -> None:
    bars = axis.bar(labels, counts, color="lightgrey")
    axis.bar_label(bars, [f"{count:,}" for count in counts], fontsize=7)
    axis.margins(y=0.25)
    axis.tick_params(axis="x", rotation=30)
    axis.set(ylabel=ylabel, xlabel=xlabel)


def plot_language_model(evaluation: LanguageModelEvaluation, name: str, path: Path) -> None:
    """Plots the loss over the context length."""
    from seq2see.views.plots import new_figure, save

    figure = new_figure((6, 3.6))
    axis = figure.subplots()
    buckets = [_range(bucket.low, bucket.high) for bucket in evaluation.by_context]
    axis.plot(buckets, [bucket.loss for bucket in evaluation.by_context], marker="o")
    axis.set(
        title=f"{name}: perplexity {evaluation.perplexity:.2f}",
        xlabel="context (tokens)",
        ylabel="loss (nats per token)",
    )
    axis.grid(alpha=0.3)
    save(figure, path)
