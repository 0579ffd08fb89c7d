"""`seq2see explain`: a model's output and its analysis, as tables in the terminal or as a file."""

import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from seq2see.cli.model_options import Compute, Languages, ModelChoice
from seq2see.cli.options import Options
from seq2see.cli.output import check_plot, print_json, refuse_overwriting
from seq2see.config import option
from seq2see.config.search import Search
from seq2see.errors import UsageError, terminal

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from seq2see.api import Model
    from seq2see.inspect.attention_tables import AttentionTable
    from seq2see.inspect.explain import Explanation
    from seq2see.inspect.interventions import Intervention

Kind = Literal["cross", "masked", "self"]
PAGES = (".html", ".htm")
_DECODING = "Decoding"
SEARCHED = Options(
    "beam",
    "max_new_tokens",
    panel=_DECODING,
    max_new_tokens={"help": "Maximum number of new tokens; 0: 1.5 × source length + 10, or 20 without a source."},
)


@dataclass(frozen=True)
class Analysis:
    """What is analysed of the output: one attention, and one of its heads and of its tokens."""

    kind: Kind | None = option(None, "Kind of attention; by default cross, or masked for a language model.")
    layer: int | None = option(None, "Layer, from 0; by default the last.")
    head: int | None = option(None, "Head, from 0; by default the mean over heads.")
    step: int | None = option(
        None, "Also analyse this output token, from 1: alternatives, logit lens and logit attribution."
    )
    ablate: list[str] | None = option(
        None, "Ablate a head, for example decoder.1.cross:5, and compare; can be repeated.", metavar="ATTENTION:HEAD"
    )

    def attention(self, e: "Explanation") -> str:
        """Returns the name of the attention; empty for a recurrent model without any, if none was asked for."""
        from seq2see.inspect.attention_flow import attention_names
        from seq2see.inspect.attention_tables import find_attention

        if not (attention_names(e) or self.kind or self.layer is not None or self.head is not None):
            return ""
        defaults = {"encoder-decoder": "cross", "decoder": "masked", "encoder": "self"}
        kind = self.kind or defaults[e.model.config.model.shape]
        return find_attention(e, kind, -1 if self.layer is None else self.layer)


@dataclass(frozen=True)
class Report:
    """What is shown, and where."""

    as_json: bool = option(False, "Print all results as JSON.", flag="--json")
    out: Path | None = option(
        None,
        "Write a file; the suffix sets the format: .html (interactive page), .png, .svg or .pdf (plot, "
        "needs seq2see\\[plot]), .json, .safetensors (trace).",
        metavar="FILE",
    )


def explain(
    text: Annotated[
        str,
        typer.Argument(
            metavar="TEXT|FILE", help="Sentence to translate, prompt to continue, or file of a picture or sound."
        ),
    ],
    *,
    chosen: ModelChoice,
    analysis: Annotated[Analysis, Options(panel="Analysis")],
    target: str | None = option(
        None, "Explain this output instead of the model's own.", panel=_DECODING, metavar="TEXT"
    ),
    search: Annotated[Search, SEARCHED],
    languages: Languages,
    compute: Compute,
    report: Report,
) -> None:
    """Explain a model's output: attention, probabilities, word alignment and the effect of each head.

    Plots show the word alignment; with --head that head, with --layer all heads of that layer, with --kind alone all layers.

    Examples:

    seq2see explain "I like eating ice-cream."

    seq2see explain --model books "Once upon a time"

    seq2see explain "I like eating ice-cream." --step 2 --beam 4

    seq2see explain "I like tea." --ablate decoder.1.cross:7 --out tea.png

    seq2see explain "I like eating ice-cream" --out why.html

    seq2see explain --model runs/digits recording.wav --out attention.png
    """
    check_plot(report.out, *PAGES, ".json", ".safetensors")
    refuse_overwriting(Path(text), report.out)
    path = chosen.path()
    from seq2see.inspect.explain import explain

    model = languages.choose(compute.load(path))
    _check_source(text, model)
    original = e = explain(model, text, target=target, search=search)
    name = analysis.attention(original)
    if analysis.ablate:
        interventions = [_parse_ablation(head, model) for head in analysis.ablate]
        e = explain(model, text, target=target, interventions=interventions, search=search)
    if note := e.assessment.note:
        typer.echo(f"seq2see: {note}", err=True)
    if report.as_json:
        print_json(e.to_dict())
    else:
        _print(original, e, name, analysis, search)
    if report.out is not None:
        _write_file(e, report.out, name, analysis, path, search)
        typer.echo(f"wrote {report.out}", err=True)


def _print(original: "Explanation", e: "Explanation", name: str, analysis: Analysis, search: Search) -> None:
    console = terminal()
    if e is not original:
        _print_changes(original, e, analysis.ablate or (), console)
    _print_attention(e, name, analysis.head, console)
    if analysis.step is not None:
        _print_step(e, analysis.step, search, console)


def _check_source(text: str, model: "Model") -> None:
    """Raises an error if a model of text would read the path of a file letter by letter, or if there is no file to read."""
    from seq2see.formats.media.pairs import is_media

    source = model.config.model.source
    if source != "tokens" and not os.path.exists(text):
        given = " ".join(text.split())
        raise UsageError(f'{model.label} reads {source}, but "{given}" is no file: give the path of one')
    if source != "tokens" or not os.path.isfile(text):
        return
    if is_media(Path(text)):
        raise UsageError(f"{text} is a picture or sound, but {model.label} reads text")
    raise UsageError(
        f'{text} is a file, but explain takes one sentence: use seq2see explain "$(head -n 1 {shlex.quote(text)})"'
    )


def _parse_ablation(text: str, model: "Model") -> "Intervention":
    from seq2see.inspect.interventions import ablate_head

    attention, _, head = text.rpartition(":")
    heads = model.config.model.heads
    if not attention or not re.fullmatch("[0-9]{1,9}", head) or int(head) >= heads:
        raise UsageError(
            f'"{text}" is not a head: write ATTENTION:HEAD, for example decoder.1.cross:0, with heads 0 to {heads - 1}'
        )
    return ablate_head(attention, int(head))


def _headline(e: "Explanation") -> "Text":
    """Formats the source and the output."""
    from rich.text import Text

    from seq2see.inspect.explain import escape_control

    source = Text(escape_control(e.source))
    if not e.target_tokens:
        return source
    return source.append("  →  ", style="dim").append(escape_control(e.output), style="bold")


def _print_heading(console: "Console", title: str, explanation: str) -> None:
    from rich.text import Text

    console.print(Text.assemble((f"\n{title}", "bold"), (f"  {explanation}", "dim")))


def _print_attention(e: "Explanation", name: str, head: int | None, console: "Console") -> None:
    from rich.text import Text

    from seq2see.inspect.alignment import LayerHead, word_alignment
    from seq2see.inspect.attention_flow import attention_entropy, head_ablation
    from seq2see.inspect.attention_tables import token_probabilities
    from seq2see.views.media import draw_profiles
    from seq2see.views.terminal import draw_attention, draw_heads

    console.print(_headline(e))
    if not name:  # a recurrent model without attention
        for token, probability in token_probabilities(e):
            console.print(Text(f"{100 * probability:8.2f}  {token}"))
        note = "P in %. This model has no attention: its decoder sees only the encoder's last state."
        console.print(note, style="dim")
        return
    table = _table(e, name, head)
    probabilities = "" if table.probabilities is None else "; P: probability of the output token"
    _print_heading(console, table.title, f"in %{probabilities}")
    is_media = e.source_rows is not None
    if is_media and (name.endswith(".cross") or e.model.config.model.classifier):
        console.print(draw_profiles(e, table, console.width))
    else:
        console.print(draw_attention(table, console.width))
    if name.endswith(".cross") and not is_media:
        found = word_alignment(e, (LayerHead(int(name.split(".")[1]), head),))
        links = (f"{found.source_words[i]} {found.target_words[j]}" for i, j in found.links)
        console.print(Text("\nalignment: ", style="dim").append(" · ".join(links), style="not dim"))
    if not e.target_tokens:  # an encoder, whose heads change no prediction
        return
    _print_heading(console, "Heads", "of this layer, ablated one at a time with the output held fixed")
    selected = slice(None) if head is None else slice(head, head + 1)
    console.print(draw_heads(attention_entropy(e)[name], head_ablation(e, name), e.target_tokens, selected))


def _table(e: "Explanation", name: str, head: int | None) -> "AttentionTable":
    """Returns one attention; of a classifier, that of the first vector, which predicts the class."""
    from seq2see.inspect.attention_tables import attention_table

    table = attention_table(e, name, head)
    if not e.model.config.model.classifier:
        return table
    probability = float(e.target_logprobs.exp())
    return replace(table, rows=e.target_tokens, weights=table.weights[:1], probabilities=(probability,))


def _print_changes(before: "Explanation", after: "Explanation", heads: Sequence[str], console: "Console") -> None:
    from seq2see.inspect.comparison import compare
    from seq2see.inspect.explain import rerun
    from seq2see.views.terminal import draw_changes

    console.print(_headline(before))
    _print_heading(console, f"Without {', '.join(heads)}", "P in %, with the output held fixed")
    console.print(draw_changes(compare(before, rerun(before, *after.interventions))))
    if before.hypothesis is not None:
        same = before.target_ids == after.target_ids
        title, style = ("The output is unchanged:", "dim") if same else ("The output changes:", "bold red")
        console.print(f"\n{title}", style=style)


def _print_step(e: "Explanation", step: int, search: Search, console: "Console") -> None:
    from rich.text import Text

    from seq2see.inspect.explain import beam_at_step, escape_control
    from seq2see.inspect.logit_attribution import logit_attribution
    from seq2see.inspect.logit_lens import alternatives, logit_lens
    from seq2see.views.terminal import draw_alternatives, draw_logit_attribution, draw_logit_lens

    steps = len(e.target_tokens) - e.output_start
    if not 1 <= step <= steps:
        raise UsageError(f"step {step} is out of range: the output has {steps} tokens, numbered from 1")
    row = e.output_start + step - 1
    console.print(Text(f"\nStep {step}: ", style="bold").append(e.target_tokens[row], style="bold blue"))
    console.print(draw_alternatives(alternatives(e, row, 5)))
    if e.model.config.model.kind == "transformer":
        _print_heading(console, "Logit lens", "what each layer would predict, in %")
        console.print(draw_logit_lens(logit_lens(e, 3), row))
        _print_heading(console, "Logit attribution", "what each component adds to the token's logit")
        console.print(draw_logit_attribution(logit_attribution(e, row)))
    if search.beam > 1 and e.hypothesis is not None:
        _print_heading(console, "Beam", f"after {step} tokens: score and text")
        for hypothesis in beam_at_step(e.model, e.source, step, interventions=e.interventions, search=search):
            line = Text(f"{hypothesis.score:8.3f}  {escape_control(e.model.tokenizers[1].decode(hypothesis.tokens))}")
            console.print(line.append(" <end>" if hypothesis.finished else " …", style="dim"))


def _write_file(e: "Explanation", out: Path, name: str, analysis: Analysis, model: Path, search: Search) -> None:
    suffix = out.suffix.lower()
    if suffix in PAGES:
        from seq2see.server.explore.static_export import export_html

        shape, is_own = e.model.config.model.shape, e.hypothesis is not None and not e.interventions
        has_beam = search.beam > 1 and shape == "encoder-decoder" and is_own
        hypotheses = e.model.hypotheses([e.source], beam=search.beam, nbest=search.beam)[0] if has_beam else []
        export_html(e, out, model.resolve().name, hypotheses)
    elif suffix == ".json":
        from seq2see.inspect.as_json import write_json

        write_json(e, out)
    elif suffix == ".safetensors":
        e.trace.save(out)
    else:
        _draw(e, out, name, analysis)


def _draw(e: "Explanation", out: Path, name: str, analysis: Analysis) -> None:
    from seq2see.inspect.alignment import word_alignment
    from seq2see.inspect.attention_flow import attention_entropy, attention_names, head_ablation
    from seq2see.inspect.attention_tables import head_tables
    from seq2see.views.plots import ablation_caption, plot_attention, plot_heads, plot_layers

    head, all_heads = analysis.head, analysis.head is None and analysis.layer is not None
    is_profile = name.endswith(".cross") or e.model.config.model.classifier
    if e.source_rows is not None and is_profile and not all_heads:
        from seq2see.views.media import plot_media

        plot_media(e, _table(e, name, head), out)
    elif head is not None:
        table = _table(e, name, head)
        plot_attention(table, out, f"{table.title}\n{ablation_caption(head_ablation(e, name)[head])}")
    elif all_heads:
        effects = zip(attention_entropy(e)[name], head_ablation(e, name), strict=True)
        captions = [f"entropy {entropy:.2f}\n{ablation_caption(drop)}" for entropy, drop in effects]
        plot_heads(head_tables(e, name)[:-1], out, captions)
    elif analysis.kind is not None or not e.source_tokens:
        same_kind = [other for other in attention_names(e) if other.rpartition(".")[2] == name.rpartition(".")[2]]
        plot_layers([head_tables(e, other)[:-1] for other in same_kind], out)
    else:
        plot_attention(word_alignment(e).table, out)
