"""How a command declares its options: as parameters with typer's annotations, and as dataclasses that commands share.

Each field of such a dataclass is an option, and the command gets the dataclass back, filled in. A field with an annotation of
typer has its help there; a field of `seq2see.config` where it is declared, with what else the command line shows of it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import fields, is_dataclass, replace
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup
from typer.models import OptionInfo

from seq2see.errors import UsageError


class Options:
    """The fields of a dataclass that are options: `Annotated[Search, Options("beam", beam={"help": "…"})]`.

    The others keep their values. A panel, and the changes to a field, are those of one command.
    """

    def __init__(self, *names: str, panel: str = "", **changes: dict[str, Any]) -> None:
        self.names, self.panel, self.changes = names, panel, changes


def expand_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the function with one parameter for each field of the dataclasses that it takes."""
    declared = signature(function, eval_str=True).parameters.values()
    expanded = [option for parameter in declared for option in _expand(parameter)]

    @wraps(function)
    def command(**values: Any) -> Any:
        return function(**{parameter.name: _collect(parameter, values) for parameter in declared})

    command.__signature__ = Signature(expanded)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in expanded}
    return command


def _expand(parameter: Parameter) -> Iterator[Parameter]:
    kind, options = _split(parameter.annotation)
    if is_dataclass(kind):
        for field in _fields(parameter):
            yield from _expand(field)
        return
    if get_origin(kind) is tuple and get_args(kind)[1:] == (...,):
        parameter = parameter.replace(annotation=Annotated[list[Path] | None, options], default=None)
    elif isinstance(options, OptionInfo) and options.metavar == parameter.name.upper() and options.default is ...:
        # Some versions of typer would call the option like its metavar: --DEVICE.
        parameter = parameter.replace(annotation=Annotated[kind, _changed(options, default=flag(parameter.name))])
    yield parameter.replace(kind=Parameter.KEYWORD_ONLY)


def _collect(parameter: Parameter, values: dict[str, Any]) -> Any:
    """Returns the value of a parameter from those of its options."""
    kind, _ = _split(parameter.annotation)
    if is_dataclass(kind):
        return replace(_base(parameter), **{field.name: _collect(field, values) for field in _fields(parameter)})
    value = values[parameter.name]
    return tuple(map(str, value or ())) if get_origin(kind) is tuple and get_args(kind)[1:] == (...,) else value


def _fields(parameter: Parameter) -> Iterator[Parameter]:
    """Yields the fields of a dataclass that are options."""
    cls, options = _split(parameter.annotation)
    base, hints = _base(parameter), get_type_hints(cls, include_extras=True)
    declared = {field.name: field.metadata for field in fields(cls)}
    options = options or Options()
    for name in options.names or declared:
        kind, info = _split(hints[name])
        if info is None and not is_dataclass(kind):
            shown = {key: value for key, value in declared[name].items() if key != "panel"}
            info = typer.Option(**shown, rich_help_panel=declared[name].get("panel"))
        if isinstance(info, OptionInfo):
            panel = {"rich_help_panel": options.panel} if options.panel else {}
            info = _changed(info, **panel, **options.changes.get(name, {}))
        yield Parameter(
            name,
            Parameter.KEYWORD_ONLY,
            default=getattr(base, name),
            annotation=Annotated[kind, info] if info else kind,
        )


def _split(annotation: Any) -> tuple[Any, Any]:
    """Returns a type and what annotates it."""
    kind, info = get_args(annotation)[:2] if get_origin(annotation) is Annotated else (annotation, None)
    return kind, info


def _base(parameter: Parameter) -> Any:
    return _split(parameter.annotation)[0]() if parameter.default is Parameter.empty else parameter.default


def _changed(info: OptionInfo, **changes: Any) -> OptionInfo:
    info = copy(info)
    vars(info).update(changes)
    return info


def flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def refuse_given(context: typer.Context, names: Iterable[str], reason: str) -> None:
    """Raises an error if one of these options is on the command line."""
    names = set(names)
    for option in context.command.params:
        source = context.get_parameter_source(option.name or "")
        if option.name in names and source is not None and source.name == "COMMANDLINE":
            raise UsageError(f"{option.opts[0]} {reason}: leave it out")


class CommandGroup(typer.Typer):
    """A group of commands whose functions may take dataclasses of options."""

    def __init__(self, help: str, *functions: Callable[..., Any]) -> None:
        super().__init__(help=help, cls=PlainGroup, no_args_is_help=True, add_completion=False, rich_markup_mode="rich")
        for function in functions:
            self.command(function.__name__, cls=_Command)(expand_options(function))


class _PlainHelp:
    """Hides the Python types that typer would show in the help: `--json <bool>`, `WORD <list[str]>`."""

    def get_params(self, ctx: Any) -> list[Any]:
        parameters: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for parameter in parameters:
            if getattr(parameter, "is_flag", False):
                parameter.metavar = ""
            if isinstance(parameter, TyperArgument):
                parameter.display_type_rich = lambda **_: None  # type: ignore[method-assign]
        return parameters


class PlainGroup(_PlainHelp, TyperGroup):
    pass


class _Command(_PlainHelp, TyperCommand):
    """A command; one without arguments takes several values after one flag, so that `--src *.en` works in a shell."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if any(isinstance(parameter, TyperArgument) for parameter in self.params):
            return super().parse_args(ctx, args)
        multiple = {flag for option in self.params if getattr(option, "multiple", False) for flag in option.opts}
        return super().parse_args(ctx, repeat_flags(args, multiple))


def repeat_flags(arguments: Sequence[str], multiple: Iterable[str]) -> list[str]:
    """Rewrites `--src a b` as `--src a --src b` for the options that take multiple values."""
    multiple = set(multiple)
    result: list[str] = []
    option, has_value = "", False  # the current option and whether it has a value
    for argument in arguments:
        if argument.startswith("-") and argument != "-":
            option, has_value = argument if argument in multiple else "", False
        elif option:
            if has_value:
                result.append(option)
            has_value = True
        result.append(argument)
    return result
