"""`seq2see model`: what a preset is made of."""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from seq2see.config import Config
from seq2see.presets import PRESETS, preset

if TYPE_CHECKING:
    from rich.tree import Tree

    from seq2see.model.summary import Part


def describe(
    name: Annotated[
        str | None, typer.Argument(metavar="[PRESET]", help="A preset; without one, all are listed.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting, such as model.width=256.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the tree for a program to read.")] = False,
    as_toml: Annotated[bool, typer.Option("--toml", help="Print the settings as a config.toml.")] = False,
    traced: Annotated[
        bool, typer.Option("--trace", help="Show every step of one pass through it, untrained: shape, mean, spread.")
    ] = False,
) -> None:
    """Show what a model is made of: every part, its shape and its number of parameters.

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

        from seq2see.inspect.first_pass import tell

        tell(config.model, name, Console(highlight=False))
        return

    from seq2see.model.summary import structure

    part = structure(config.model, name)
    if as_json:
        typer.echo(json.dumps(asdict(part)))
        return

    from rich.console import Console

    Console(highlight=False).print(_tree(part, config.model.shape))


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
            f"{model.vocabulary:,} tokens[/]"
        )
        console.print(Padding(p.reason, (0, 0, 0, 4)))


def _tree(part: "Part", shape: str) -> "Tree":
    from rich.tree import Tree

    tree = Tree(f"[bold]{part.name}[/], {shape}: [bold]{part.parameters:,}[/] parameters")
    _grow(tree, part)
    return tree


def _grow(tree: "Tree", part: "Part") -> None:
    for child in part.parts:
        name, inner = child.name, child
        while len(inner.parts) == 1 and not inner.parts[0].shape:  # a norm inside its add & norm, say
            inner = inner.parts[0]
        # A part that is just one weight and perhaps its bias reads better on one line.
        single = len(inner.parts) <= 2 and all(p.shape for p in inner.parts)
        shapes = [p.shape for p in inner.parts] if single else [inner.shape]
        text = " + ".join(" × ".join(f"{size:,}" for size in shape) for shape in shapes if shape)
        if child.times > 1:
            name = f"{child.times} × {name}"
            text = f"{child.parameters // child.times:,} each"
        branch = tree.add(f"{name}  [cyan]{text}[/]{'  ' * bool(text)}[dim]{child.parameters:,}[/]")
        if not single:
            _grow(branch, child)
