"""`seq2see explain`: what a model made of a text, and why, as tables in the terminal or as a file."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from seq2see.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from seq2see.api import Model
    from seq2see.decode.search import Search
    from seq2see.inspect.explain import Explanation
    from seq2see.inspect.interventions import Intervention

Kind = Literal["cross", "masked", "self"]
PICTURES = (".png", ".svg")
PAGES = (".html", ".htm")
ENDINGS = (*PAGES, *PICTURES, ".json", ".safetensors")
_SHOWN, _HOW = "What is shown", "How"


def explain(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="A sentence to translate, or a prompt to write on from.")],
    model: Annotated[Path | None, typer.Option(help="The model's directory; else the bundled one.")] = None,
    kind: Annotated[
        Kind | None, typer.Option(help="Which attention; else cross, of a language model masked.", rich_help_panel=_SHOWN)
    ] = None,
    layer: Annotated[
        int | None, typer.Option(help="Its layer, from 0; else the last.", rich_help_panel=_SHOWN)
    ] = None,
    head: Annotated[
        int | None, typer.Option(help="One head, from 0; else the mean of all.", rich_help_panel=_SHOWN)
    ] = None,
    step: Annotated[
        int | None, typer.Option(
            help="Also why this token, from 1: what each layer and head said to it, what else was near.",
            rich_help_panel=_SHOWN,
        )
    ] = None,
    without: Annotated[
        list[str] | None, typer.Option(
            help="Switch a head off, such as decoder.1.cross:5, and compare; repeat for several.",
            metavar="ATTENTION:HEAD", rich_help_panel=_SHOWN,
        )
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="Explain this output instead of the model's own.", rich_help_panel=_HOW)
    ] = None,
    beam: Annotated[int, typer.Option(help="Hypotheses that the search keeps.", min=1, rich_help_panel=_HOW)] = 1,
    tokens: Annotated[
        int, typer.Option(help="New tokens at most; 0: as many as needed, of a language model 20.", min=0,
                          rich_help_panel=_HOW)
    ] = 0,
    device: Annotated[str, typer.Option(help="cpu, cuda or mps.", rich_help_panel=_HOW)] = "cpu",
    as_json: Annotated[bool, typer.Option("--json", help="Print everything for a program to read.")] = False,
    out: Annotated[
        Path | None, typer.Option(
            help="Write it to a file, by its ending: .html (the page with this text inside), .png .svg (seq2see\\[plot]), "
            ".json, .safetensors."
        )
    ] = None,
) -> None:  # fmt: skip
    """Show what a model made of a text: where it looked, how sure it was, which head mattered.

    A picture is of the word alignment; with --head of that head, with --layer of all heads of that layer, with --kind alone
    of all layers.

    Examples:

    seq2see explain "I like eating ice-cream."

    seq2see explain "I like eating ice-cream." --step 2 --beam 4

    seq2see explain "I like tea." --without decoder.1.cross:7 --out tea.png

    seq2see explain "I like eating ice-cream" --out why.html
    """
    if out is not None and out.suffix.lower() not in ENDINGS:
        raise UsageError(f'"{out.name}" ends in none of {" ".join(ENDINGS)}, which say what is written')
    from rich.console import Console

    from seq2see import load
    from seq2see.decode.search import Search
    from seq2see.inspect.attention_flow import attentions
    from seq2see.inspect.attention_tables import attention_name
    from seq2see.inspect.explain import explain as explained

    loaded = load(model, device)
    search = Search(beam=beam, longest=tokens)
    before = explained(loaded, text, target=target, search=search)
    name = ""
    if attentions(before) or kind or layer is not None or head is not None:
        name = attention_name(before, kind or ("cross" if before.sources else "masked"), -1 if layer is None else layer)
    interventions = [_switched_off(one, loaded) for one in without or ()]
    e = before
    if interventions:
        e = explained(loaded, text, target=target, interventions=interventions, search=search)
    if as_json:
        typer.echo(json.dumps(e.to_dict(), ensure_ascii=False, allow_nan=False))
    else:
        console = Console(highlight=False)
        if interventions:
            _tell_changes(before, e, without or (), console)
        _tell(e, name, head, console)
        if step is not None:
            _tell_step(e, step, search, console)
    if out is not None and out.suffix.lower() in PAGES:
        from seq2see.serve.static_export import write_page

        alone = beam > 1 and e.sources and target is None and not interventions
        best = loaded.hypotheses([text], beam=beam, nbest=beam)[0] if alone else []
        write_page(e, out, "bundled" if model is None else model.resolve().name, best)
    elif out is not None:
        _write(e, out, name, head, heads=layer is not None, layers=kind is not None)


def _switched_off(text: str, model: "Model") -> "Intervention":
    from seq2see.inspect.interventions import without

    attention, _, head = text.rpartition(":")
    heads = model.config.model.heads
    if not attention or not head.isdecimal() or int(head) >= heads:
        raise UsageError(f'"{text}" names no head: write ATTENTION:HEAD, such as decoder.1.cross:0, up to {heads - 1}')
    return without(attention, int(head))


def _headline(e: "Explanation") -> "Text":
    """The text and what became of it."""
    from rich.text import Text

    from seq2see.inspect.explain import harmless

    return Text(harmless(e.source)).append("  →  ", style="dim").append(harmless(e.output), style="bold")


def _tell(e: "Explanation", name: str, head: int | None, console: "Console") -> None:
    from rich.text import Text

    from seq2see.inspect.alignment import View, word_alignment
    from seq2see.inspect.attention_flow import ablations, entropies
    from seq2see.inspect.attention_tables import attention_table, sureness
    from seq2see.inspect.terminal import draw_attention, draw_heads

    console.print(_headline(e))
    if not name:  # the model of 2014 has none
        for written, probability in sureness(e):
            console.print(Text(f"{100 * probability:8.2f}  {written}"))
        console.print("[dim]P in %. There is no attention: the encoder's last state is all that this decoder got.[/]")
        return
    table = attention_table(e, name, head)
    sure = "" if table.probabilities is None else "; P: how sure it was of what it wrote"
    console.print(f"\n[bold]{table.title}[/]  [dim]in %{sure}[/]")
    console.print(draw_attention(table, console.width))
    if name.endswith(".cross"):
        found = word_alignment(e, (View(int(name.split(".")[1]), head),))
        links = (f"{found.sources[i]} {found.targets[j]}" for i, j in found.links)
        console.print(Text("\nlinked: ", style="dim").append(" · ".join(links), style="not dim"))
    console.print("\n[bold]The heads[/]  [dim]of this layer; the output held fixed while one is off[/]")
    chosen = slice(None) if head is None else slice(head, head + 1)
    console.print(draw_heads(entropies(e)[name], ablations(e, name), e.writes, chosen))


def _tell_changes(before: "Explanation", after: "Explanation", heads: Sequence[str], console: "Console") -> None:
    from seq2see.inspect.comparison import changes
    from seq2see.inspect.explain import again
    from seq2see.inspect.terminal import draw_changes

    console.print(_headline(before))
    console.print(f"\n[bold]Without {', '.join(heads)}[/]  [dim]P in %, the output held fixed[/]")
    console.print(draw_changes(changes(before, again(before, *after.interventions))))
    if before.hypothesis is not None:
        same = before.write_ids == after.write_ids
        console.print("\n[dim]and it says the same:[/]" if same else "\n[bold red]and it says something else:[/]")


def _tell_step(e: "Explanation", step: int, search: "Search", console: "Console") -> None:
    from rich.text import Text

    from seq2see.inspect.explain import beam_at, harmless
    from seq2see.inspect.logit_attribution import contributions
    from seq2see.inspect.logit_lens import alternatives, lens
    from seq2see.inspect.terminal import draw_alternatives, draw_contributions, draw_lens

    rows = len(e.writes) - e.first
    if not 1 <= step <= rows:
        raise UsageError(f"step {step} of an output of {rows} tokens, which are counted from 1")
    row = e.first + step - 1
    console.print(Text(f"\nStep {step}: ", style="bold").append(e.writes[row], style="bold blue"))
    console.print(draw_alternatives(alternatives(e, row, 5)))
    if e.model.config.model.kind == "transformer":
        console.print("\n[bold]The lens[/]  [dim]what each layer would have written, in %[/]")
        console.print(draw_lens(lens(e, 3), row))
        console.print("\n[bold]Its logit[/]  [dim]and what added to it[/]")
        console.print(draw_contributions(contributions(e, row)))
    if search.beam > 1 and e.hypothesis is not None:
        console.print(f"\n[bold]The beam[/]  [dim]after {step} tokens: score, and what it had[/]")
        for one in beam_at(e.model, e.source, step, interventions=e.interventions, search=search):
            text = harmless(e.model.tokenizers[1].decode(one.tokens))
            console.print(Text(f"{one.score:8.3f}  {text}").append(" <end>" if one.finished else " …", style="dim"))


def _write(e: "Explanation", out: Path, name: str, head: int | None, heads: bool, layers: bool) -> None:
    ending = out.suffix.lower()
    if ending == ".json":
        from seq2see.inspect.export import write_json

        write_json(e, out)
        return
    if ending == ".safetensors":
        e.trace.save(out)
        return
    from seq2see.inspect.alignment import word_alignment
    from seq2see.inspect.attention_flow import ablations, attentions, entropies
    from seq2see.inspect.attention_tables import all_heads, attention_table
    from seq2see.inspect.plots import draw_alignment, draw_attention, draw_heads, draw_layers

    if head is not None:
        draw_attention(attention_table(e, name, head), out, worth=ablations(e, name)[head])
    elif heads:
        draw_heads(all_heads(e, name)[:-1], out, entropies(e)[name], ablations(e, name))
    elif layers or not e.sources:
        alike = [other for other in attentions(e) if other.rpartition(".")[2] == name.rpartition(".")[2]]
        draw_layers([all_heads(e, other)[:-1] for other in alike], out)
    else:
        draw_alignment(word_alignment(e), out)
