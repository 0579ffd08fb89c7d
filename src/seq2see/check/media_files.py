"""The data check for pictures and sounds; with a reader, it also decodes every file."""

from functools import partial

from seq2see.check.media import FileCheck, Problem, check_media_pairs
from seq2see.check.pairs import DEFAULTS, CheckSettings
from seq2see.check.report import Report
from seq2see.data.corpus import ParallelCorpus
from seq2see.data.media.limits import TooLongError
from seq2see.data.media.reader import MediaReader
from seq2see.errors import UserError


def check_media(
    pairs: ParallelCorpus, reader: MediaReader | None = None, settings: CheckSettings = DEFAULTS,
    valid: ParallelCorpus | None = None, model: str = "the model",
) -> Report:  # fmt: skip
    """Checks every pair of a file and its text; a reader decodes every file as `model` does."""
    files = None
    if reader is not None:
        limit = reader.config.actual_max_source_positions
        files = FileCheck(partial(_decoding_problem, reader), f"{model} (at most {limit:,} tokens)")
    return check_media_pairs(pairs, settings, valid, files)


def _decoding_problem(reader: MediaReader, path: str) -> Problem | None:
    try:
        reader.read(path)
    except TooLongError as error:
        return "too-long", str(error)
    except UserError as error:
        return "unreadable", str(error)
    return None
