"""The models that come with the package: one model directory each in bundled/, found by name wherever a directory is accepted.

Besides the files of a model directory, each has an about.json with what its files cannot tell: languages, limits, example
inputs and the sources of its training data. bundled/NOTICE has the authors and the licence of each source.
"""

import json
import warnings
from dataclasses import asdict, dataclass, field
from pathlib import Path

from seq2see.errors import Notice, UsageError, UserError
from seq2see.tensors.files import write_text

BUNDLED = Path(__file__).parent.parent / "bundled"
LANGUAGE = "hi"  # of the translator used by default
LANGUAGE_MODEL = "books"  # for generation
GRAMMAR = "grammar-en-hi"  # of the lessons; knows only the built-in corpus
_ORDER = ("en-hi", "en-fr", LANGUAGE_MODEL)
ABOUT = "about.json"


def bundled_names() -> list[str]:
    """Lists the bundled models of this installation, the default first."""
    names = [file.parent.name for file in BUNDLED.glob("*/config.toml")]
    return sorted(names, key=lambda name: (_ORDER.index(name) if name in _ORDER else len(_ORDER), name))


def bundled_model(name: str) -> Path:
    """Returns the directory of a bundled model; raises a UserError if this installation does not have it."""
    if name not in bundled_names():
        raise UserError(f'this installation lacks the bundled model "{name}"; {_available()}')
    return BUNDLED / name


def bundled_translators() -> dict[str, Path]:
    """Returns the directories of the bundled translators from English, by language; the first of each language."""
    translators: dict[str, Path] = {}
    for folder in (BUNDLED / name for name in bundled_names()):
        about = About.load(folder)
        if about and len(about.languages) == 2:
            translators.setdefault(about.languages[1], folder)
    return translators


def bundled_translator(language: str = LANGUAGE) -> Path:
    """Returns the directory of the bundled translator from English into a language such as "fr"."""
    translators = bundled_translators()
    if language not in translators:
        known = f"they translate into {' and '.join(translators)}" if translators else _available()
        raise UsageError(f'no bundled model translates into "{language}"; {known}')
    return translators[language]


def find_model(model: Path | str | None) -> Path:
    """Returns a model directory, given its path or the name of a bundled model; None is the default translator."""
    if model is None:
        return bundled_translator()
    path = Path(model)
    if str(path) not in bundled_names():
        if not path.exists():
            raise UserError(f"{path} is not a model directory: it does not exist; {_available()}")
        return path
    if not any((path / config).exists() for config in ("config.toml", "config.json")):
        return BUNDLED / path
    warnings.warn(f"using the directory {path}, not the bundled model of that name", Notice, stacklevel=2)
    return path.absolute()  # so that it is not taken for the name again


def model_label(folder: Path) -> str:
    """Returns what to call a model: the name of a bundled one, otherwise the path."""
    return folder.name if folder.parent == BUNDLED else str(folder)


def _available() -> str:
    return f"bundled models: {', '.join(bundled_names()) or 'none'}"


@dataclass(frozen=True)
class About:
    languages: tuple[str, ...] = field(
        metadata={"description": "Source and target, or the language of a language model.", "examples": [["en", "hi"]]}
    )
    limits: str = field(metadata={"description": "What not to expect of the model."})
    examples: tuple[str, ...] = field(metadata={"description": "Inputs to try; the page compares the first two."})
    sources: tuple[str, ...] = field(metadata={"description": "Of the training data, as named in NOTICE."})

    @classmethod
    def load(cls, folder: Path) -> "About | None":
        """Reads about.json; None for a model that has none."""
        path = folder / ABOUT
        if not path.is_file():
            return None
        try:
            table = json.loads(path.read_text(encoding="utf-8"))
            names = ("languages", "examples", "sources")
            languages, examples, sources = (tuple(map(str, table[name])) for name in names)
            return cls(languages, str(table["limits"]), examples, sources)
        except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
            raise UserError(f"{path} is damaged: {error!r}; copy the model directory again") from error

    def save(self, folder: Path) -> None:
        write_text(folder / ABOUT, json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n")
