"""Parts that are found by name: kinds of model, readers of other libraries' files, and whatever a package adds.

The core imports no room: it finds a room's part through this table of strings and imports it on first use. Another package
adds its own through an entry point of the group `seq2see.<group>`; see docs/extending.md.
"""

import sys
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seq2see.errors import UserError, did_you_mean

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

BUILT_IN: dict[str, dict[str, str] | str] = {
    "models": {  # subclasses of Network
        "transformer": "seq2see.model.transformer:Transformer",
        "rnn": "seq2see.course.recurrent.network:Recurrent",
        "rnn-attention": "seq2see.course.recurrent.network:Recurrent",
    },
    "caches": {  # what decoding keeps of a model of this kind
        "transformer": "seq2see.decode.cache:KeyValueCache",
        "rnn": "seq2see.course.recurrent.cache:RecurrentCache",
        "rnn-attention": "seq2see.course.recurrent.cache:RecurrentCache",
    },
    "weights": {  # the symbols of a model's weights in the formulas
        "transformer": "seq2see.inspect.weights:describe_transformer_weight",
        "rnn": "seq2see.course.recurrent.weights:describe_recurrent_weight",
        "rnn-attention": "seq2see.course.recurrent.weights:describe_recurrent_weight",
    },
    "flops": {  # of a training step with a batch, where a Transformer's formula does not fit
        "rnn": "seq2see.course.recurrent.network:training_flops",
        "rnn-attention": "seq2see.course.recurrent.network:training_flops",
    },
    "checks": {  # of data, before training and in an error
        "training": "seq2see.check.data:check_training_pairs",
        "misalignment": "seq2see.check.drift:describe_misalignment",
    },
    "commands": {  # of the command line, in the order of its help: functions, or groups of typer
        "train": "seq2see.cli.train:train",
        "runs": "seq2see.cli.runs:runs",
        "translate": "seq2see.cli.translate:translate",
        "generate": "seq2see.cli.generate:generate",
        "chat": "seq2see.cli.chat:chat",
        "embed": "seq2see.cli.embed:embed",
        "evaluate": "seq2see.cli.evaluate:evaluate",
        "explain": "seq2see.cli.explain:explain",
        "explore": "seq2see.cli.explore:explore",
        "serve": "seq2see.cli.serve:serve",
        "model": "seq2see.cli.model:describe",
        "export": "seq2see.cli.export:export",
        "lesson": "seq2see.cli.lesson:lesson",
        "data": "seq2see.cli.data:data_app",
        "vectors": "seq2see.cli.vectors:vectors_app",
    },
    "metrics": "seq2see.evaluate.metrics:METRICS",  # a table of its own, so that a new metric touches one file
    "tokenizers": {"other libraries": "seq2see.exchange.foreign_tokenizer:ForeignTokenizer"},  # saved with a model
    "chat templates": {"other libraries": "seq2see.exchange.jinja_template:JinjaTemplate"},  # likewise
    "corpora": {  # of sentence pairs, by the suffix of a file
        ".tsv": "seq2see.formats.tabular:open_tsv",
        ".tab": "seq2see.formats.tabular:open_tsv",
        ".jsonl": "seq2see.formats.tabular:open_jsonl",
        ".ndjson": "seq2see.formats.tabular:open_jsonl",
        ".tmx": "seq2see.formats.tmx:open_tmx",
        ".po": "seq2see.formats.po:open_po",
    },
    "documents": {  # to translate, by the suffix of a file
        ".po": "seq2see.formats.po:DOCUMENT",
        ".pot": "seq2see.formats.po:DOCUMENT",
        ".srt": "seq2see.formats.subtitles:DOCUMENT",
        ".vtt": "seq2see.formats.subtitles:DOCUMENT",
        ".md": "seq2see.formats.markdown:DOCUMENT",
        ".markdown": "seq2see.formats.markdown:DOCUMENT",
        ".html": "seq2see.formats.html:DOCUMENT",
        ".htm": "seq2see.formats.html:DOCUMENT",
    },
    "notebook": {  # HTML of what a notebook displays
        "model": "seq2see.views.notebook:table_html",
        "trace": "seq2see.views.notebook:trace_html",
        "explanation": "seq2see.views.notebook:explanation_html",
    },
    "media": {  # pictures and sounds as sources
        "pairs": "seq2see.formats.media.pairs:open_media_reader",
        "reader": "seq2see.formats.media.reader:MediaReader",
        "augmentation": "seq2see.formats.media.augment:build_augmentation",
    },
    "readers": {  # of models of other libraries, the most particular first
        "CTranslate2": "seq2see.exchange.ctranslate2:READER",
        "Hugging Face": "seq2see.exchange.huggingface:READER",
        "GGUF": "seq2see.exchange.gguf:READER",
    },
}


def extension_names(group: str) -> list[str]:
    """Lists the names of a group, the built-in ones first."""
    return [*_built_in(group), *_installed(group)]


def has_extension(group: str, name: str) -> bool:
    return name in _built_in(group) or name in _installed(group)


@cache
def load_extension(group: str, name: str) -> Any:
    """Imports what stands under this name; an unknown name is a `UserError`."""
    if name in _built_in(group):
        found = _built_in(group)[name]
        return _import(found) if isinstance(found, str) else found
    if not has_extension(group, name):
        raise UserError(f'no {group} are called "{name}": {did_you_mean(name, extension_names(group))}')
    entry = _installed(group)[name]
    try:
        return entry.load()
    except (ImportError, AttributeError) as error:
        raise UserError(f'{entry.value} ("{name}" of seq2see.{group}) cannot be imported: {error}') from error


def _built_in(group: str) -> Mapping[str, Any]:
    """Returns what stands under each name, or where it is to be imported from."""
    table = BUILT_IN[group]
    return _import(table) if isinstance(table, str) else table


def _import(place: str) -> Any:
    module, _, attribute = place.partition(":")
    return getattr(import_module(module), attribute)


@cache
def _installed(group: str) -> dict[str, "EntryPoint"]:
    # Importing importlib.metadata takes 25 ms, an eighth of the help: only if some package has parts for us.
    files = (file for folder in sys.path for file in Path(folder or ".").glob("*-info/entry_points.txt"))
    if not any(b"[seq2see." in file.read_bytes() for file in files):
        return {}
    from importlib.metadata import entry_points

    return {entry.name: entry for entry in entry_points(group=f"seq2see.{group}")}
