"""`seq2see model`: shows the structure of a preset."""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from seq2see.config import Config
from seq2see.presets import PRESETS, preset

if TYPE_CHECKING:
    from rich.tree import Tree

    from seq2see.model.summary import ModuleSummary


def describe(
    name: Annotated[
        str | None, typer.Argument(metavar="PRESET", help="Name of a preset; without one, all presets are listed.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a setting, for example model.width=256."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the structure as JSON.")] = False,
    as_toml: Annotated[bool, typer.Option("--toml", help="Print the settings as config.toml.")] = False,
    traced: Annotated[
        bool,
        typer.Option(
            "--trace", help="Show the shape, mean and standard deviation of every activation of the untrained model."
        ),
    ] = False,
) -> None:
    """Show the structure of a model: every part with its shape and number of parameters.

    Example: seq2see model paper-base --set model.width=256 --set model.heads=4
    """
    if name is None:
        _list_presets(as_json)
        return
    config = Config(model=preset(name)).override(settings or [])
    if as_toml:
        typer.echo(config.to_toml(), nl=False)
        return
    if traced:
        from rich.console import Console

        from seq2see.inspect.first_pass import print_first_pass

        print_first_pass(config.model, name, Console(highlight=False))
        return

    from seq2see.model.summary import summarize

    summary = summarize(config.model, name)
    if as_json:
        typer.echo(json.dumps(asdict(summary)))
        return

    from rich.console import Console

    Console(highlight=False).print(_tree(summary, config.model.shape))


def _list_presets(as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps({name: {"reason": p.reason, "model": asdict(p.model)} for name, p in PRESETS.items()}))
        return

    from rich.console import Console
    from rich.padding import Padding

    console = Console(highlight=False)
    for name, p in PRESETS.items():
        model = p.model
        counts = [model.encoder_layers] * model.has_encoder + [model.decoder_layers] * model.has_decoder
        layers = "+".join(map(str, counts))
        console.print(
            f"[bold]{name}[/]  [cyan]{model.shape}, {layers} layers, width {model.width}, {model.heads} heads, "
            f"{model.vocab_size:,} tokens[/]"
        )
        console.print(Padding(p.reason, (0, 0, 0, 4)))


def _tree(summary: "ModuleSummary", shape: str) -> "Tree":
    from rich.tree import Tree

    tree = Tree(f"[bold]{summary.name}[/], {shape}: [bold]{summary.parameters:,}[/] parameters")
    _add_children(tree, summary)
    return tree


def _add_children(tree: "Tree", summary: "ModuleSummary") -> None:
    for child in summary.children:
        name, inner = child.name, child
        while len(inner.children) == 1 and not inner.children[0].shape:  # for example a norm in its add & norm
            inner = inner.children[0]
        # A weight and its bias fit on one line.
        single = len(inner.children) <= 2 and all(p.shape for p in inner.children)
        shapes = [p.shape for p in inner.children] if single else [inner.shape]
        text = " + ".join(" × ".join(f"{size:,}" for size in shape) for shape in shapes if shape)
        if child.repeats > 1:
            name = f"{child.repeats} × {name}"
            text = f"{child.parameters // child.repeats:,} each"
        branch = tree.add(f"{name}  [cyan]{text}[/]{'  ' * bool(text)}[dim]{child.parameters:,}[/]")
        if not single:
            _add_children(branch, child)
