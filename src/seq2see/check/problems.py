"""Determines which items of a corpus have which problem.

A false alarm costs more trust than a miss costs quality, so the thresholds are wide: they were set by reading what they catch
in English–Hindi, English–German and English–French data.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from seq2see.check import collect as c
from seq2see.check.report import FindingKind
from seq2see.errors import UserError
from seq2see.formats.media.reader import TooLongError

Mask = NDArray[np.bool_]

_MAX_FACTOR = 3.0  # a side may be at most this many times longer or shorter than expected from the corpus
_MAX_SIGMAS = 6.0  # or, in a corpus of free translations, this many standard deviations
_LENGTH_OFFSET = 10  # characters added to both lengths, so that "Yes" and its translation may differ
_COMMON = 0.2  # a property of a fifth of the pairs is normal for the corpus, not a problem
_MIN_PAIRS = 20  # with fewer pairs, there is no norm to deviate from


@dataclass(frozen=True)
class Problems:
    """The items that have each kind of problem, and those that count as duplicates and translations of each other."""

    masks: Mapping[FindingKind, Mask]
    usable: Mask
    ratios: NDArray[np.float32]  # log length ratios of pairs, relative to the corpus median
    notes: Mapping[int, str] = field(default_factory=dict)  # what is wrong with a picture or sound


def find_problems(
    train: c.Collected, held_out: Mapping[FindingKind, c.Collected], settings: c.CheckSettings
) -> Problems:
    rows, flags = train.rows, train.rows["flags"]
    usable = flags & (c.EMPTY | c.ONE_SIDED) == 0
    ratios, notes = np.zeros(len(rows), np.float32), dict[int, str]()
    masks: dict[FindingKind, Mask] = {}
    if train.kind == "documents":
        usable = flags & c.MANY_WORDS > 0
    elif train.kind == "media":
        masks, notes = _decoding_problems(train, settings)
        masks["one-sided"] = flags & c.ONE_SIDED > 0
    else:
        ratios = _length_ratios(rows, usable)
        masks = _pair_problems(train, usable) | {"length-ratio": _unusual_ratio(ratios, usable)}
        masks["too-long"] = flags & c.TOO_LONG > 0
    masks["duplicate"] = c.is_repeated(rows["item_hash"]) & usable
    for kind, held in held_out.items():
        masks[kind] = np.isin(rows["source_hash"], held.rows["source_hash"]) & usable
    return Problems(masks, usable, ratios, notes)


def _decoding_problems(train: c.Collected, settings: c.CheckSettings) -> tuple[dict[FindingKind, Mask], dict[int, str]]:
    """Decodes every file; returns those that cannot be read or are too long, with the reasons."""
    if settings.reader is None:
        return {}, {}
    advance, notes = settings.progress("reading files", len(train.paths)), dict[int, str]()
    masks: dict[FindingKind, Mask] = {kind: np.zeros(len(train.paths), bool) for kind in ("unreadable", "too-long")}
    for row, path in enumerate(train.paths):
        advance(1)
        try:
            settings.reader.read(path)
        except UserError as error:
            masks["too-long" if isinstance(error, TooLongError) else "unreadable"][row] = True
            notes[row] = str(error)
    return masks, notes


def _pair_problems(train: c.Collected, usable: Mask) -> dict[FindingKind, Mask]:
    flags = train.rows["flags"]
    script = _wrong_script(train) & usable
    same = (flags & c.SAME > 0) & ~script
    return {
        "empty": flags & c.EMPTY > 0,
        "one-sided": flags & c.ONE_SIDED > 0,
        "script": script,
        "untranslated": same if same.sum() <= _COMMON * len(flags) else np.zeros_like(same),
    }


def _wrong_script(train: c.Collected) -> Mask:
    rows, wrong = train.rows, np.zeros(len(train.rows), bool)
    for column, side in zip(("source_script", "target_script"), train.sides, strict=True):
        if side.script and len(rows) >= _MIN_PAIRS:
            wrong |= (rows[column] != side.script) & (rows[column] > 0)
    return wrong


def _length_ratios(rows: c.RowArray, usable: Mask) -> NDArray[np.float32]:
    """Returns the log length ratio of each pair minus the corpus median; 0 if a side is empty."""
    ratios = np.log(rows["target_length"].astype(np.float32) + _LENGTH_OFFSET)
    ratios -= np.log(rows["source_length"].astype(np.float32) + _LENGTH_OFFSET)
    if usable.any():
        ratios -= np.median(ratios[usable])
    ratios[~usable] = 0
    return ratios


def _unusual_ratio(ratios: NDArray[np.float32], usable: Mask) -> Mask:
    if usable.sum() < _MIN_PAIRS:
        return np.zeros(len(ratios), bool)
    deviations = np.abs(ratios)
    sigma = 1.48 * float(np.median(deviations[usable]))  # robust: from the median absolute deviation
    return deviations > max(float(np.log(_MAX_FACTOR)), _MAX_SIGMAS * sigma)
