"""The `seq2see` command: one module per subcommand, imported when it is called or listed.

Subcommands import torch and other heavy packages inside their functions, so that `--help` is fast. A `UserError` ends the
command with its one-line message and its exit code: 1, or 2 for wrong usage. Operating system errors, such as a full disk,
and running out of memory are reported the same way; any other exception is a bug and keeps its traceback.
"""

import errno
import os
import signal
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Annotated, Any, NoReturn, TextIO

import typer

from seq2see import __version__
from seq2see.cli.options import CommandGroup, PlainGroup
from seq2see.cli.output import print_json_error
from seq2see.config.extensions import extension_names, has_extension, load_extension
from seq2see.errors import Notice, UserError


class _Commands(Mapping[str, Any]):
    """The commands by name, ours and those of other packages (docs/extending.md); each is imported when it is needed."""

    def __init__(self) -> None:
        self._loaded: dict[str, Any] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(extension_names("commands"))

    def __len__(self) -> int:
        return len(extension_names("commands"))

    def __getitem__(self, name: str) -> Any:
        if name not in self._loaded:
            if not has_extension("commands", name):
                raise KeyError(name)
            found = load_extension("commands", name)
            group = found if isinstance(found, typer.Typer) else CommandGroup("", found)
            self._loaded[name] = typer.main.get_command(group)
            self._loaded[name].name = name
        return self._loaded[name]


class _Root(PlainGroup):
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = _Commands()  # type: ignore[assignment]


app = typer.Typer(
    name="seq2see",
    cls=_Root,
    help="Train a Transformer on your own text, run it fast, and see every number it computed.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


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


def _print_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
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
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  (None if the caller closed it)
    try:
        try:
            typer.main.get_command(app)()
        except SystemExit as end:
            if format_message := getattr(end.__context__, "format_message", None):  # wrong usage, already explained
                print_json_error(format_message())
            raise
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
            print_json_error(message)
    sys.exit(exit_code)
