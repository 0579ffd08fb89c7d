"""`seq2see lesson`: computes a lesson of the course and prints it."""

import json
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seq2see.cli.model_options import ON_CPU, InspectionCompute, ModelChoice
from seq2see.cli.output import check_plot, print_json
from seq2see.errors import UsageError, did_you_mean, terminal

if TYPE_CHECKING:
    from rich.console import Console

    from seq2see.course.lessons import Lesson


def lesson(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Name of a lesson; lists all if omitted.", show_default=False)
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Draw the figure: .png, .svg or .pdf.", metavar="FILE")] = None,
    model: Annotated[
        Path | None,
        typer.Option(
            help="Model to inspect: a directory or a bundled model; by default a small bundled one.",
            metavar="DIRECTORY",
        ),
    ] = None,
    compute: InspectionCompute = ON_CPU,
    seed: Annotated[int | None, typer.Option(help="Random seed.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Change a setting of the lesson; the value is text or JSON.", metavar="NAME=VALUE"),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="File or directory that the lesson reads: word vectors, WiC.", metavar="PATH"),
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", metavar="", help="Print all sections, and the notes on the lecture notes.")
    ] = False,
    quiz: Annotated[bool, typer.Option("--quiz", metavar="", help="Ask the exercises of the lesson.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", metavar="", help="Print the text and all numbers as JSON.")
    ] = False,
) -> None:
    """Compute a lesson of the course and print it, or ask its exercises.

    Example: seq2see lesson context --set sentences="phone and orange" --out context.png
    """
    from rich.text import Text

    from seq2see.course.lessons import LESSONS

    console = terminal()
    if as_json and (quiz or name is None):
        raise UsageError("--json prints one lesson with its numbers: give its name, and leave out --quiz")
    if name is None:
        _list(console)
        return
    if name not in LESSONS:
        raise UsageError(f'unknown lesson "{name}": {did_you_mean(name, LESSONS)}')
    chosen = LESSONS[name]
    if quiz:
        ask(chosen, console)
        return
    check_plot(out)
    arguments = parse_arguments(chosen, model, seed, settings or [])
    if data is not None:
        arguments |= _data_argument(chosen, data)
    if model is not None or compute != ON_CPU:
        if "model" not in chosen.defaults():
            raise UsageError(f'the lesson "{chosen.name}" uses no model: omit --device and --precision')
        arguments["model"] = compute.load(ModelChoice(model).path(chosen.model))
    start = time.perf_counter()
    with terminal(stderr=True).status(Text(f"{chosen.title}: computing …")):
        result = chosen.compute(arguments)
    if as_json:
        text = vars(chosen.describe(result))
        print_json({"name": name, "title": chosen.title, "question": chosen.question, **text, "result": result})
    else:
        _print(chosen, result, console, time.perf_counter() - start, full)
    if out is not None:
        chosen.draw(result, out)
        if not as_json:
            console.print(f"Figure written to {out}.", style="dim")


def _list(console: "Console") -> None:
    """Lists the lessons by group."""
    from rich.text import Text

    from seq2see.course.lessons import GROUPS, LESSONS

    for group in GROUPS:
        console.print(Text(group, "bold"))
        for each in LESSONS.values():
            if each.group == group:
                console.print(Text(f"  {each.name:<12}{each.title}"))
    commands = ("seq2see lesson NAME", "bold"), ", its exercises with ", ("--quiz", "bold")
    console.print(Text.assemble("\nRun a lesson with: ", *commands))


def ask(chosen: "Lesson", console: "Console") -> None:
    """Asks the exercises on standard input and grades the answers; an empty line skips, the end of the input stops."""
    from rich.text import Text

    console.print(Text(chosen.title, "bold"))
    exercises, correct = chosen.exercises(), 0
    for number, exercise in enumerate(exercises, start=1):
        console.print(Text(f"\n{number}. {exercise.question}"))
        for i, choice in enumerate(exercise.choices):
            console.print(Text(f"   {chr(ord('a') + i)}) {choice}"))
        try:
            given = console.input("> ")
        except EOFError:
            console.print()
            break
        if not given.strip():
            console.print(Text.assemble("Skipped: ", (exercise.shown_answer, "bold"), f". {exercise.explanation}"))
        elif exercise.grade(given):
            correct += 1
            console.print(Text.assemble(("Right. ", "green"), exercise.explanation))
        else:
            console.print(Text.assemble(("No: ", "red"), (exercise.shown_answer, "bold"), f". {exercise.explanation}"))
    console.print(f"\n{correct} of {len(exercises)} right.")


def _data_argument(chosen: "Lesson", data: Path) -> dict[str, Any]:
    """Returns the path under the name of the parameter that takes one."""
    names = [name for name in ("vectors", "wic") if name in chosen.defaults()]
    if not names:
        raise UsageError(f'the lesson "{chosen.name}" reads no data: omit --data {data}')
    return {names[0]: str(data)}


def parse_arguments(chosen: "Lesson", model: Path | None, seed: int | None, settings: list[str]) -> dict[str, Any]:
    from seq2see.course.lessons.settings import settings_of

    known, checked = chosen.defaults(), settings_of(chosen)
    for option, value in (("model", model), ("seed", seed)):
        if value is not None and option not in known:
            raise UsageError(f'the lesson "{chosen.name}" uses no {option}: omit --{option} {value}')
    arguments: dict[str, Any] = {} if seed is None else {"seed": checked["seed"].validate(seed)}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals or name in ("model", "seed"):
            raise UsageError(f"--set {setting}: expected NAME=VALUE, with NAME one of {', '.join(known)}")
        if name not in known:
            raise UsageError(f'the lesson "{chosen.name}" has no parameter "{name}": {did_you_mean(name, known)}')
        # A parameter without a default is a path.
        arguments[name] = checked[name].validate(_parse_value(text, known[name])) if name in checked else text
    return arguments


def _parse_value(text: str, default: Any) -> Any:
    """Parses JSON, except where the setting is a text; a single text may stand for a list of texts."""
    value: Any = text
    with suppress(ValueError, RecursionError):
        parsed = json.loads(text)
        value = text if isinstance(default, str) and not isinstance(parsed, str) else parsed
    return [value] if isinstance(default, (list, tuple)) and isinstance(value, str) else value


def _print(chosen: "Lesson", result: Any, console: "Console", seconds: float, full: bool) -> None:
    from seq2see.course.lessons.terminal import print_lesson

    print_lesson(chosen, chosen.describe(result), console, full)
    names = [name for name in chosen.defaults() if name not in ("model", "seed", "steps", "vectors", "wic")]
    options = [f"--set {name}=…" for name in names] + ["--model …"] * ("model" in chosen.defaults())
    hint = f"  Settings: {'  '.join(options)}" if options else ""
    console.print(f"\n{seconds:.1f} s. Exercises: seq2see lesson {chosen.name} --quiz{hint}", style="dim")
