"""`seq2see lesson`: what the notes claim, computed and told."""

from pathlib import Path
from typing import Annotated

import typer

from seq2see.errors import UsageError, UserError, nearest


def lesson(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="A lesson; without one, all are listed.")] = None,
    out: Annotated[Path, typer.Option(help="Where the picture goes.", metavar="FOLDER")] = Path("."),
    seed: Annotated[int, typer.Option(help="Where all random numbers come from.")] = 1,
) -> None:
    """Tell a lesson of the notes: numbers computed now, a table, and a picture.

    Example: seq2see lesson leak --out pictures
    """
    from rich.console import Console

    from seq2see.lessons import LESSONS

    console = Console(highlight=False)
    if name is None:
        for each in LESSONS.values():
            console.print(f"[bold]{each.name:<12}[/]{each.title}")
        console.print("\nTell one with: [bold]seq2see lesson NAME[/]")
        return
    if name not in LESSONS:
        raise UsageError(f'there is no lesson "{name}": {nearest(name, LESSONS)}')
    if seed < 0:
        raise UsageError(f"--seed {seed} must not be negative")

    chosen = LESSONS[name]
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot make the folder {out}: {error.strerror}") from error
    with Console(stderr=True).status(f"{chosen.title} Computing …"):
        result = chosen.compute(seed=seed)
    chosen.tell(result, console)
    path = out / f"{name}.png"
    try:
        chosen.draw(result, path)
    except UserError as error:  # the lesson is told; only its picture is missing
        console.print(f"\n{error}", markup=False)
        return
    console.print(f"\nThe picture is {path}; all this took {result.seconds:.0f} s.")
