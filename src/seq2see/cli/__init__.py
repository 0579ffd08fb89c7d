"""The `seq2see` command: one module per subcommand.

Subcommands import torch and other heavy packages inside their functions, so that `--help` is fast. A `UserError` ends the
command with its one-line message and its exit code: 1, or 2 for wrong usage. Operating system errors, such as a full disk,
and running out of memory are reported the same way; any other exception is a bug and keeps its traceback.
"""

import errno
import os
import signal
import sys
import warnings
from contextlib import suppress
from typing import Annotated, Any, NoReturn, TextIO

import typer
from typer.core import TyperArgument

from seq2see import __version__
from seq2see.cli.chat import chat
from seq2see.cli.check import check
from seq2see.cli.corpus_options import MultiValueCommand
from seq2see.cli.data import data_app
from seq2see.cli.embed import embed
from seq2see.cli.evaluate import evaluate
from seq2see.cli.explain import explain
from seq2see.cli.explore import explore
from seq2see.cli.export import export
from seq2see.cli.generate import generate
from seq2see.cli.lesson import lesson
from seq2see.cli.model import describe
from seq2see.cli.runs import runs
from seq2see.cli.serve import serve
from seq2see.cli.train import train
from seq2see.cli.translate import translate
from seq2see.cli.vectors import vectors_app
from seq2see.errors import Notice, UserError

app = typer.Typer(
    name="seq2see",
    help="Train a Transformer on your own text, run it fast, and see every number it computed.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("train", cls=MultiValueCommand)(train)
app.command("runs")(runs)
app.command("translate")(translate)
app.command("generate")(generate)
app.command("chat")(chat)
app.command("embed")(embed)
app.command("evaluate", cls=MultiValueCommand)(evaluate)
app.command("explain")(explain)
app.command("explore")(explore)
app.command("serve")(serve)
app.add_typer(data_app, name="data")
data_app.command("check", cls=MultiValueCommand)(check)
app.add_typer(vectors_app, name="vectors")
app.command("model")(describe)
app.command("export")(export)
app.command("lesson")(lesson)


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"seq2see {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    pass


def _hide_types(command: Any, parent: Any = None) -> None:
    """Hides the Python types that Typer would show in the help: `--json <bool>`, `WORD <list[str]>`."""
    context = command.context_class(command, parent=parent, **command.context_settings)
    for parameter in command.get_params(context):
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""
        if isinstance(parameter, TyperArgument):
            parameter.display_type_rich = lambda **_: None  # type: ignore[method-assign]
    for subcommand in getattr(command, "commands", {}).values():
        _hide_types(subcommand, context)


def _print_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, file: TextIO | None = None,
    line: str | None = None,
) -> None:  # fmt: skip
    """Prints our own warnings like errors, in one line; others in Python's format."""
    ours = issubclass(category, Notice)
    text = f"seq2see: {message}" if ours else warnings.formatwarning(message, category, filename, lineno, line).rstrip()
    typer.echo(text, err=True)


def _share_cores() -> None:
    """Lets idle OpenMP threads sleep instead of spin if other programs use the cores, before torch is imported.

    On two cores with a load of 5, `train --preset quick` makes 5,000 tokens/s instead of 250; on idle cores it would lose 15%.
    """
    if os.getloadavg()[0] > (os.cpu_count() or 1) / 2:
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")


def main() -> None:
    warnings.showwarning = _print_warning
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # so that temporary files are removed
    _share_cores()
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115  (None if the caller closed it)
    command = typer.main.get_command(app)
    _hide_types(command)
    try:
        try:
            command()
        finally:
            sys.stdout.flush()  # not at exit, where a full disk could not be reported
    except UserError as error:
        _fail(str(error), error.exit_code)
    except OSError as error:  # not a bug: a full disk, a name too long, no permission
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # discards what is still buffered
        is_closed_pipe = error.errno == errno.EPIPE
        _fail("" if is_closed_pipe else f"{error.filename or 'cannot write the output'}: {error.strerror or error}")
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and "allocate" not in str(error):  # as PyTorch's errors say
            raise
        _fail("out of memory: close other programs, or use fewer samples, a smaller batch or a smaller model")


def _fail(message: str, exit_code: int = 1) -> NoReturn:
    with suppress(OSError):  # standard error may be full or closed as well
        if message:
            typer.echo(f"seq2see: {message}", err=True)
    sys.exit(exit_code)
