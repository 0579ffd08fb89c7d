"""The data check: what a person would want to know of sentence pairs before training on them.

One pass measures every pair (`measure`), numpy judges them all at once, and a second pass fetches the text of the few
that are shown (`findings`). A false alarm costs more trust than a miss costs quality, so the thresholds are wide: they
were set by reading what they catch in English–Hindi, English–German and English–French data.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from seq2see.errors import UserError
from seq2see.text.check import statistics as m
from seq2see.text.check.findings import Findings, HeldOut, Judged
from seq2see.text.check.report import Kind, Report
from seq2see.text.corpus import Pairs, named

Mask = NDArray[np.bool_]

# Why a pair is left out of a cleaned copy; where several hold, the first is named.
REASONS: tuple[Kind, ...] = (
    "empty", "one-sided", "script", "untranslated", "ratio", "long", "test", "valid", "duplicate",
)  # fmt: skip

_TIMES = 3.0  # a side this many times longer or shorter than the corpus leads to expect is off
_SIGMAS = 6.0  # and in a corpus of free translations, this many spreads
_EARLY = 10  # characters added to both lengths, so that "Yes" and its translation may differ
_NATURE = 0.2  # what a fifth of the pairs do is the nature of the corpus, not a fault
_FEW = 20  # pairs below which nothing is usual


@dataclass(frozen=True)
class Settings:
    """What the check is told: the longest sentence the model takes, and how many examples to show of a kind."""

    longest: int = 1024  # in tokens, or in words where there is no encoder
    examples: int = 3
    encoder: m.Encoder | None = None
    watch: m.Watch = m.unwatched


@dataclass(frozen=True)
class Checked:
    """The report, and for each pair the number of its reason to go (counted from 1 in REASONS), or 0."""

    report: Report
    reasons: NDArray[np.uint8]
    starts: tuple[int, ...]  # the pairs of part i are reasons[starts[i] : starts[i + 1]]
    faults: m.Faults


DEFAULTS = Settings()


def check_pairs(
    pairs: Pairs, settings: Settings = DEFAULTS, valid: Pairs | None = None, test: Pairs | None = None
) -> Checked:
    """Looks at every pair, and whether sentences of the validation or test set stand among them."""
    held_out = {kind: _held_out(other) for kind, other in _given(valid, test).items()}
    watch = settings.watch("reading", pairs.size)
    train = m.measure(pairs, settings.longest, settings.encoder, settings.examples, watch)
    if not len(train) and not train.faults.counts:
        raise UserError(f"{named(pairs.files)}: no sentence pair in it")
    judged = judge(train, held_out)
    reasons = np.zeros(len(train), np.uint8)
    for number, kind in reversed(list(enumerate(REASONS, 1))):
        if kind in judged.masks:
            reasons[judged.masks[kind]] = number
    unit = "words" if settings.encoder is None else "tokens"
    longest = f"{settings.longest:,} {unit}"
    findings = Findings(pairs, train, judged, held_out, settings.examples, longest).all(settings.watch)
    sides = (train.source.finished(), train.target.finished())
    left = int(np.count_nonzero(reasons == 0))
    return Checked(Report("pairs", len(train), left, sides, findings), reasons, train.starts, train.faults)


def _given(valid: Pairs | None, test: Pairs | None) -> dict[Kind, Pairs]:
    sets: dict[Kind, Pairs | None] = {"valid": valid, "test": test}
    return {kind: pairs for kind, pairs in sets.items() if pairs is not None}


def _held_out(pairs: Pairs) -> HeldOut:
    measured = m.measure(pairs, 0, None, 1)
    for faults in measured.faults.first.values():
        raise UserError(faults[0].message)  # a score on part of a test set would be none
    return HeldOut(pairs, measured)


def judge(train: m.Measured, held_out: Mapping[Kind, HeldOut]) -> Judged:
    """Which pairs each complaint holds of."""
    rows, flags = train.rows, train.rows["flags"]
    usable = flags & (m.EMPTY | m.ONE_SIDED) == 0
    script = _off_script(train) & usable
    same = (flags & m.SAME > 0) & ~script
    ratios = _ratios(rows, usable)
    masks: dict[Kind, Mask] = {
        "empty": flags & m.EMPTY > 0,
        "one-sided": flags & m.ONE_SIDED > 0,
        "script": script,
        "untranslated": same if same.sum() <= _NATURE * len(rows) else np.zeros_like(same),
        "ratio": _off_ratio(ratios, usable),
        "long": flags & m.LONG > 0,
        "duplicate": m.again(rows["pair_hash"]) & usable,
    }
    for kind, held in held_out.items():
        masks[kind] = np.isin(rows["source_hash"], held.measured.rows["source_hash"]) & usable
    return Judged(masks, usable, ratios)


def _off_script(train: m.Measured) -> Mask:
    off = np.zeros(len(train), bool)
    for scripts, flag, tally in (
        (train.rows["source_script"], m.SOURCE_CLEAR, train.source),
        (train.rows["target_script"], m.TARGET_CLEAR, train.target),
    ):
        if tally.script and len(train) >= _FEW:
            off |= (scripts != tally.script) & (train.rows["flags"] & flag > 0)
    return off


def _ratios(rows: m.Rows, usable: Mask) -> NDArray[np.float32]:
    """The log ratio of the lengths, less what is usual in this corpus; 0 where a side is empty."""
    ratios = np.log(rows["target_length"].astype(np.float32) + _EARLY)
    ratios -= np.log(rows["source_length"].astype(np.float32) + _EARLY)
    if usable.any():
        ratios -= np.median(ratios[usable])
    ratios[~usable] = 0
    return ratios


def _off_ratio(ratios: NDArray[np.float32], usable: Mask) -> Mask:
    if usable.sum() < _FEW:
        return np.zeros(len(ratios), bool)
    far = np.abs(ratios)
    spread = 1.48 * float(np.median(far[usable]))
    return far > max(float(np.log(_TIMES)), _SIGMAS * spread)
