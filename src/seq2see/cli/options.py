"""How a command declares its options: `name: type = option(default, help, …)`, as a parameter or as a field of a dataclass.

Commands share dataclasses, those of `seq2see.config` among them: each field is an option, and the command gets the dataclass
back, filled in. An argument or an option without a default has an annotation of typer.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup

from seq2see.errors import UsageError

_OWN_LIMITS = ("above", "below")  # which typer does not know; the dataclass checks them


class Options:
    """The fields of a dataclass that are options: `Annotated[Search, Options("beam", beam={"help": "…"})]`.

    The others keep their values. A panel of the help, and the changes to a field, are those of one command.
    """

    def __init__(self, *names: str, panel: str = "", **changes: dict[str, Any]) -> None:
        self.names, self.panel, self.changes = names, {"panel": panel} if panel else {}, changes


def expand_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the function with typer's annotations, and one parameter for each field of the dataclasses that it takes."""
    declared = signature(function, eval_str=True).parameters.values()
    expanded = [option for parameter in declared for option in _expand(parameter)]

    @wraps(function)
    def command(**values: Any) -> Any:
        return function(**{parameter.name: _collect(parameter, values) for parameter in declared})

    command.__signature__ = Signature(expanded)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in expanded}
    return command


def _expand(parameter: Parameter) -> Iterator[Parameter]:
    kind, _ = _split(parameter.annotation)
    if dataclasses.is_dataclass(kind):
        for field in _fields(parameter):
            yield from _expand(field)
    elif isinstance(parameter.default, dataclasses.Field):
        default = parameter.default.default
        shown = {name: value for name, value in parameter.default.metadata.items() if name not in _OWN_LIMITS}
        info = _typer_info(parameter.name, default, **shown)
        if _is_paths(kind):
            kind, default = list[Path] | None, None
        yield Parameter(parameter.name, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, info])
    else:
        yield parameter.replace(kind=Parameter.KEYWORD_ONLY)


def _typer_info(name: str, default: Any, help: str, argument: bool = False, **shown: Any) -> Any:
    if argument:
        return typer.Argument(help=help, **shown)
    panel, flags = shown.pop("panel", None), shown.pop("flag", ())
    if not flags and (default is False or shown.get("metavar") == name.upper()):
        # Typer would add --no-NAME to a flag, and some versions call an option like its metavar: --DEVICE.
        flags = f"--{name.replace('_', '-')}"
    flags = [flags] if isinstance(flags, str) else flags
    return typer.Option(*flags, help=help, rich_help_panel=panel, **shown)


def _collect(parameter: Parameter, values: dict[str, Any]) -> Any:
    """Returns the value of a parameter from those of its options."""
    kind, _ = _split(parameter.annotation)
    if dataclasses.is_dataclass(kind):
        chosen = {field.name: _collect(field, values) for field in _fields(parameter)}
        return dataclasses.replace(_base(parameter), **chosen)
    value = values[parameter.name]
    return tuple(map(str, value or ())) if _is_paths(kind) else value


def _fields(parameter: Parameter) -> Iterator[Parameter]:
    """Yields the fields of a dataclass that are options, with the defaults of this command."""
    cls, options = _split(parameter.annotation)
    base, hints = _base(parameter), get_type_hints(cls, include_extras=True)
    declared, options = {field.name: field for field in dataclasses.fields(cls)}, options or Options()
    for name in options.names or declared:
        default = getattr(base, name)
        if not dataclasses.is_dataclass(_split(hints[name])[0]):
            metadata = {**declared[name].metadata, **options.panel, **options.changes.get(name, {})}
            default = dataclasses.field(default=default, metadata=metadata)
        yield Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=hints[name])


def _split(annotation: Any) -> tuple[Any, Any]:
    """Returns a type and what annotates it."""
    kind, info = get_args(annotation)[:2] if get_origin(annotation) is Annotated else (annotation, None)
    return kind, info


def _is_paths(kind: Any) -> bool:
    return kind == tuple[str, ...]


def _base(parameter: Parameter) -> Any:
    return _split(parameter.annotation)[0]() if parameter.default is Parameter.empty else parameter.default


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
