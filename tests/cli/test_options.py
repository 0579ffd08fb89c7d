"""Options that commands share: declared once, filled in, and shown as they are declared."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from seq2see.cli import app
from seq2see.cli.options import CommandGroup, Options, repeat_flags
from seq2see.config import DataConfig, option
from seq2see.config.search import Search


@dataclass(frozen=True)
class Shown:
    """Options of a command of a test."""

    loud: bool = option(False, "Loudly.")
    name: str = option("you", "Whom.", metavar="NAME")
    search: Annotated[Search, Options("beam", beam={"help": "How many."})] = Search()


def greet(
    *, shown: Annotated[Shown, Options(panel="Greeting")], data: DataConfig, out: Path | None = option(None, "Where.")
) -> None:
    """Print what was given."""
    typer.echo(f"{shown} {data.src} {data.boundaries} {out}")


def read(words: Annotated[list[str], typer.Argument()], name: list[str] | None = option(None, "Names.")) -> None:
    typer.echo(f"{words} {name}")


COMMANDS = CommandGroup("", greet, read)


def run(*arguments: str) -> str:
    result = CliRunner().invoke(COMMANDS, arguments, env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    return result.stdout.strip()


def test_a_command_gets_its_dataclasses_filled_in() -> None:
    given = run("greet", "--loud", "--beam", "3", "--src", "a.en", "b.en", "--boundaries", "file", "--out", "x")
    assert given == f"{Shown(loud=True, search=Search(beam=3))} ('a.en', 'b.en') file x"
    assert run("greet") == f"{Shown()} () blank-line None"


def test_help_shows_what_is_declared_and_no_types_of_python() -> None:
    text = run("greet", "--help")
    assert "Greeting" in text and "How many." in text and "--no-loud" not in text and "list[" not in text
    help = {field.name: field.metadata["help"] for field in fields(DataConfig)}
    trained = CliRunner().invoke(app, ["train", "--help"], env={"COLUMNS": "200"}).stdout
    assert help["languages"] in text and all(each in trained for each in help.values())


def test_only_commands_without_arguments_take_several_values_after_a_flag() -> None:
    assert run("read", "--name", "a", "b", "c") == "['b', 'c'] ['a']"
    assert repeat_flags(["--src", "a", "b", "-x", "c", "-"], {"--src"}) == ["--src", "a", "--src", "b", "-x", "c", "-"]


def test_wrong_values_are_refused_with_the_name_of_the_option() -> None:
    result = CliRunner().invoke(COMMANDS, ["greet", "--beam", "0"])
    assert result.exit_code == 2 and "--beam" in result.output
    with pytest.raises(KeyError):
        typer.main.get_command(app).commands["nonsense"]  # type: ignore[attr-defined]
