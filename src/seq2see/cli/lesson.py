"""`seq2see lesson`: computes a lesson of the course and prints it."""

import json
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seq2see.cli.model_options import InspectionDevice, Precision
from seq2see.cli.streams import check_plot
from seq2see.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from rich.console import Console

    from seq2see.course.lessons import Lesson


def lesson(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Name of a lesson; lists all if omitted.", show_default=False)
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Draw the figure: .png, .svg or .pdf.", metavar="FILE")] = None,
    model: Annotated[
        Path | None, typer.Option(help="Model to inspect, instead of the bundled one.", metavar="DIRECTORY")
    ] = None,
    precision: Precision = "float32",
    device: InspectionDevice = "cpu",
    seed: Annotated[int | None, typer.Option(help="Random seed.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Change a setting of the lesson; the value is text or JSON.", metavar="NAME=VALUE"),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", metavar="", help="Print the text and all numbers as JSON.")
    ] = False,
) -> None:
    """Compute a lesson of the course and print it.

    Example: seq2see lesson context --set sentences="phone and orange" --out context.png
    """
    from rich.console import Console

    from seq2see.course.lessons import LESSONS

    console = Console(highlight=False)
    if name is None:
        for each in LESSONS.values():
            console.print(f"[bold]{each.name:<12}[/]{each.title}")
        console.print("\nRun a lesson with: [bold]seq2see lesson NAME[/]")
        return
    if name not in LESSONS:
        raise UsageError(f'unknown lesson "{name}": {did_you_mean(name, LESSONS)}')
    check_plot(out)
    chosen = LESSONS[name]
    arguments = parse_arguments(chosen, model, seed, settings or [])
    if model is not None or (device, precision) != ("cpu", "float32"):
        if "model" not in chosen.defaults():
            raise UsageError(f'the lesson "{chosen.name}" uses no model: omit --device and --precision')
        from seq2see.api import load

        arguments["model"] = load(model, device, precision=precision)
    start = time.perf_counter()
    with Console(stderr=True).status(f"{chosen.title} Computing …"):
        result = chosen.compute(arguments)
    if as_json:
        from seq2see.course.lessons.render import to_json

        text = to_json(chosen.describe(result))
        print(json.dumps({"name": name, "title": chosen.title, **text, "result": to_json(result)}, ensure_ascii=False))
    else:
        _print(chosen, result, console, time.perf_counter() - start)
    if out is not None:
        chosen.draw(result, out)
        if not as_json:
            console.print(f"Figure written to {out}.", style="dim", markup=False)


def parse_arguments(chosen: "Lesson", model: Path | None, seed: int | None, settings: list[str]) -> dict[str, Any]:
    from seq2see.course.lessons.settings import validate

    known = chosen.defaults()
    for option, value in (("model", model), ("seed", seed)):
        if value is not None and option not in known:
            raise UsageError(f'the lesson "{chosen.name}" uses no {option}: omit --{option} {value}')
    arguments: dict[str, Any] = {} if seed is None else {"seed": validate(chosen.name, "seed", seed, known["seed"])}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals or name in ("model", "seed"):
            raise UsageError(f"--set {setting}: expected NAME=VALUE, with NAME one of {', '.join(known)}")
        if name not in known:
            raise UsageError(f'the lesson "{chosen.name}" has no parameter "{name}": {did_you_mean(name, known)}')
        # A parameter without a default is a path.
        arguments[name] = text if known[name] is None else _parse_value(chosen.name, name, text, known[name])
    return arguments


def _parse_value(lesson: str, name: str, text: str, default: Any) -> Any:
    """Parses JSON, except where the setting is a text; a single text may stand for a list of texts."""
    from seq2see.course.lessons.settings import validate

    value: Any = text
    with suppress(ValueError, RecursionError):
        parsed = json.loads(text)
        value = text if isinstance(default, str) and not isinstance(parsed, str) else parsed
    is_list = isinstance(default, (list, tuple))
    return validate(lesson, name, [value] if is_list and isinstance(value, str) else value, default)


def _print(chosen: "Lesson", result: Any, console: "Console", seconds: float) -> None:
    from seq2see.course.lessons.render import print_lesson

    print_lesson(chosen.name, chosen.describe(result), console)
    names = [name for name in chosen.defaults() if name not in ("model", "seed", "steps")]
    options = [f"--set {name}=…" for name in names] + ["--model …"] * ("model" in chosen.defaults())
    hint = f"  Try your own: {'  '.join(options)}" if options else ""
    console.print(f"\n{seconds:.1f} s.{hint}", style="dim", markup=False)
