"""A config.toml: read, overridden by settings such as `model.width=256`, and written.

Files of earlier versions have keys that were retired since. One with its default is accepted in silence, since every version
without it does the same; with another value it is ignored, with a notice, by whatever uses the model, and refused by whatever
trains it, which would go on in another way.
"""

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

from seq2see.config.model import ModelConfig
from seq2see.config.toml import build, option, parse_toml, parse_value, to_toml, toml_lines
from seq2see.config.training import DataConfig, TextConfig, TrainConfig
from seq2see.errors import Notice, UsageError, UserError
from seq2see.tensors.files import require_regular_file


class Retired(NamedTuple):
    default: Any  # what every version without the key does
    since: str


RETIRED = {
    ("train", "ema_decay"): Retired(0.0, "November 2026"),
    ("train", "average_selection"): Retired("best", "November 2026"),
}


@dataclass(frozen=True, kw_only=True)
class Config:
    """The contents of a config.toml: all options of a run or a model directory."""

    FORMAT: ClassVar[int] = 1

    format: int = option(FORMAT, "File format version.")
    data: DataConfig = DataConfig()
    text: TextConfig = TextConfig()
    model: ModelConfig = ModelConfig()
    train: TrainConfig = TrainConfig()

    def __post_init__(self) -> None:
        if self.format != self.FORMAT:
            raise UserError(
                f"format = {self.format}, but this version of seq2see reads format {self.FORMAT}: "
                "use the version that wrote the file"
            )

    @classmethod
    def load(cls, path: Path | str, training: bool = False) -> Self:
        """Reads a file, in order to use its model or, with `training`, to train as it says."""
        try:
            text = require_regular_file(Path(path)).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"cannot read {path}: {error}") from error
        try:
            return cls.from_toml(text, training)
        except UserError as error:
            raise UserError(f"{path}: {error}") from error

    @classmethod
    def from_toml(cls, text: str, training: bool = False) -> Self:
        try:
            table = parse_toml(text)
        except ValueError as error:
            raise UserError(f"not valid TOML: {error}") from error
        _drop_retired(table, training)
        return build(cls, table)

    def to_toml(self) -> str:
        """Renders the file, with the help text of every key as a comment."""
        return "\n".join(toml_lines(self, "")) + "\n"

    def override(self, assignments: Iterable[str]) -> Self:
        """Returns a copy with settings such as `model.width=256`, applied together, so that their order does not matter."""
        table: dict[str, Any] = {}
        for assignment in assignments:
            key, equals, text = assignment.partition("=")
            if not equals:
                raise UsageError(f'"{assignment}" is not a setting: write KEY=VALUE, such as model.width=256')
            *sections, last = key.strip().split(".")
            values = table
            for section in sections:
                values = values.setdefault(section, {})
                if not isinstance(values, dict):
                    raise UsageError(f'"{assignment}" sets a key of "{section}", which is not a section')
            values[last] = parse_value(text.strip())
        try:
            _drop_retired(table, training=True)
            return build(type(self), table, base=self)
        except UserError as error:
            raise UsageError(str(error)) from error


def differences(configs: Sequence[Config]) -> dict[str, list[Any]]:
    """Returns the settings in which the configurations differ, each with its value in every one."""
    names = [
        f"{section}.{name}" for section in ("data", "text", "model", "train") for name in vars(getattr(Config, section))
    ]
    values = {name: [attrgetter(name)(config) for config in configs] for name in names}
    return {name: all_values for name, all_values in values.items() if any(v != all_values[0] for v in all_values)}


def _drop_retired(table: dict[str, Any], training: bool) -> None:
    found = []
    for (section, key), retired in RETIRED.items():
        values = table.get(section)
        if isinstance(values, dict) and key in values and (value := values.pop(key)) != retired.default:
            found.append(f"{section}.{key} = {to_toml(value)} (retired in {retired.since})")
    if found and training:
        raise UserError(f"no longer supported: {', '.join(found)}; train without, or with the version that wrote it")
    if found:
        warnings.warn(f"ignored {', '.join(found)}, which only training read", Notice, stacklevel=4)
