"""`seq2see lesson`: what the notes explain, computed and told."""

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seq2see.errors import UsageError, UserError, nearest

if TYPE_CHECKING:
    from rich.console import Console

    from seq2see.course.lessons import Lesson


def lesson(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="A lesson; without one, all are listed.")] = None,
    out: Annotated[Path | None, typer.Option(help="Draws its picture: .png, .svg or .pdf.", metavar="FILE")] = None,
    model: Annotated[
        Path | None, typer.Option(help="A model to look into, instead of the bundled one.", metavar="FOLDER")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Where random numbers come from.")] = None,
    given: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="Your own words or table instead of the notes': a text or JSON.", metavar="NAME=VALUE"
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The numbers and the story, for a program.")] = False,
) -> None:
    """Tell a lesson of the notes: numbers computed now, tables, and a picture.

    Example: seq2see lesson context --set sentences="phone and orange" --out context.png
    """
    from rich.console import Console

    from seq2see.course.lessons import LESSONS

    console = Console(highlight=False)
    if name is None:
        for each in LESSONS.values():
            console.print(f"[bold]{each.name:<12}[/]{each.title}")
        console.print("\nTell one with: [bold]seq2see lesson NAME[/]")
        return
    if name not in LESSONS:
        raise UsageError(f'there is no lesson "{name}": {nearest(name, LESSONS)}')
    chosen = LESSONS[name]
    arguments = _arguments(chosen, model, seed, given or [])
    began = time.perf_counter()
    with Console(stderr=True).status(f"{chosen.title} Computing …"):
        result = chosen.compute(arguments)
    if as_json:
        from seq2see.course.lessons.render import plain

        story = plain(chosen.story(result))
        print(json.dumps({"name": name, "title": chosen.title, **story, "result": plain(result)}, ensure_ascii=False))
    else:
        _tell(chosen, result, console, time.perf_counter() - began)
    if out is not None:
        _draw(chosen, result, out, console, quiet=as_json)


def _arguments(chosen: "Lesson", model: Path | None, seed: int | None, given: list[str]) -> dict[str, Any]:
    known = chosen.defaults()
    for option, value in (("model", model), ("seed", seed)):
        if value is not None and option not in known:
            raise UsageError(f'the lesson "{chosen.name}" uses no {option}: leave out --{option} {value}')
    if seed is not None and seed < 0:
        raise UsageError(f"--seed {seed} must not be negative")
    arguments: dict[str, Any] = {} if seed is None else {"seed": seed}
    for each in given:
        name, equals, text = each.partition("=")
        if not equals or name in ("model", "seed"):
            raise UsageError(f"--set {each}: expected NAME=VALUE, with one of {', '.join(known)}")
        try:
            arguments[name] = json.loads(text)
        except ValueError:
            arguments[name] = text
    if model is not None:
        from seq2see.api import load

        arguments["model"] = load(model)
    return arguments


def _tell(chosen: "Lesson", result: Any, console: "Console", seconds: float) -> None:
    from seq2see.course.lessons.render import tell

    tell(chosen.name, chosen.story(result), console)
    own = [name for name in chosen.defaults() if name not in ("model", "seed", "steps")]
    options = [f"--set {name}=…" for name in own] + ["--model …"] * ("model" in chosen.defaults())
    yours = f"  Your own: {'  '.join(options)}" if options else ""
    console.print(f"\n{seconds:.1f} s.{yours}", style="dim", markup=False)


def _draw(chosen: "Lesson", result: Any, path: Path, console: "Console", quiet: bool) -> None:
    if not chosen.is_drawn:
        raise UserError(f'the lesson "{chosen.name}" has no picture')
    chosen.draw(result, path)
    if not quiet:
        console.print(f"The picture is {path}.", style="dim", markup=False)
