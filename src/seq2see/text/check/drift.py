"""Where two files fall out of step: the line from which a shifted pairing explains them better.

A long sentence has a long translation (Gale and Church, 1993), a question is a question, and numbers stay what they
are. So each line has a small signature, and line n of one file a distance to line n + shift of the other. As long as
the files are in step, no shift comes closer than shift 0; from the line on where one of them lost a line, one shift
does so steadily. Distances are log likelihoods, and all lines are handled at once by numpy.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Distances = NDArray[np.float32]  # [lines of the source]

_DIGIT = re.compile(r"\d")  # also of Devanagari and other scripts
_NEAR = 24  # lines by which files are tried to be apart, besides the difference of their lengths
_WORST = 4.5  # no pair of lines counts for more than a deviation of three sigmas
_MARK = 1.5  # for a question, an exclamation or a number that has no like on the other side
# Where lengths run in series (a corpus sorted by length), gains are noise that wanders far; charging each step λ²/2 of
# its square makes e to the sum a supermartingale under any symmetric noise, so that it stays small by itself.
_CAUTION = 0.3
_BELIEF = 25.0  # e²⁵ to one: enough for millions of lines and dozens of shifts
_CUT = 10.0  # a drift must explain the files by so much better than a file whose end is missing


@dataclass(frozen=True)
class Drift:
    """From `line` of the source on, line k of the source seems to match line k + `shift` of the target."""

    line: int
    shift: int


@dataclass(frozen=True)
class Signatures:
    """What is known of each line of a file."""

    lengths: NDArray[np.float32]  # log(characters + 10): the first few characters say little
    marks: NDArray[np.uint8]  # bit 0: asks; bit 1: exclaims; the others: a hash of its digits

    @classmethod
    def of(cls, lines: Iterable[str | None]) -> "Signatures":
        lengths: list[int] = []
        marks = bytearray()
        for line in lines:
            lengths.append(len(line or ""))
            marks.append(_mark(line or ""))
        return cls(np.log(np.asarray(lengths, np.float32) + 10), np.frombuffer(bytes(marks), np.uint8))

    def __len__(self) -> int:
        return len(self.lengths)


def _mark(line: str) -> int:
    mark = ("?" in line or "؟" in line or "？" in line) + 2 * ("!" in line or "！" in line)
    digits = _DIGIT.findall(line)
    return mark + 4 * (1 + (7 * sum(map(int, digits)) + len(digits)) % 62) if digits else mark


def first_drift(source: Signatures, target: Signatures) -> Drift | None:
    """The first place where the files fall out of step; None where they do not, or where only an end is missing."""
    apart = len(target) - len(source)
    ruler = min(_ruler(source, target, shift) for shift in {0, apart})
    still = _distances(source, target, 0, ruler)
    early = _earliest(source, target, ruler, still)
    if not apart:
        return early
    single = _single(still, _distances(source, target, apart, ruler), apart)
    if early is None or single is None:
        return early or single
    once = early.shift == apart and early.line > single.line - 300
    return single if once else early  # the single one is sharper, but wrong where they part more than once


def _partners(source: Signatures, target: Signatures, shift: int) -> tuple[slice, slice]:
    """The lines of the source that have a partner under a shift, and those partners."""
    first = max(0, -shift)
    last = max(first, min(len(source), len(target) - shift))
    return slice(first, last), slice(first + shift, last + shift)


def _ruler(source: Signatures, target: Signatures, shift: int) -> tuple[float, float]:
    """The spread of the log ratio of lengths under a shift, and its centre."""
    ours, theirs = _partners(source, target, shift)
    ratios = target.lengths[theirs] - source.lengths[ours]
    if not len(ratios):
        return float("inf"), 0.0
    centre = float(np.median(ratios))
    return max(0.1, 1.48 * float(np.median(np.abs(ratios - centre)))), centre


def _distances(source: Signatures, target: Signatures, shift: int, ruler: tuple[float, float]) -> Distances:
    """Each line of the source against line + shift of the target; the worst where there is no such line."""
    sigma, centre = ruler
    ours, theirs = _partners(source, target, shift)
    deviations = (target.lengths[theirs] - source.lengths[ours] - centre) / sigma
    differ = source.marks[ours] ^ target.marks[theirs]
    marks = ((differ & 3) > 0).astype(np.float32) + (differ > 3)
    distances = np.full(len(source), _WORST, np.float32)
    distances[ours] = np.minimum(deviations**2 / 2, _WORST) + _MARK * marks
    return distances


def _single(still: Distances, shifted: Distances, apart: int) -> Drift | None:
    """The likeliest line where the files part, if they part once, by as many lines as one is longer."""
    skipped = max(0, -apart)  # lines of the source without a partner
    before = np.concatenate([[0.0], np.cumsum(still, dtype=np.float64)])
    after = np.cumsum(shifted[::-1], dtype=np.float64)[::-1]
    after = np.concatenate([after, [0.0]])[skipped:]
    totals = before[: len(after)] + after  # by the number of lines before they part; the last: only an end is missing
    line = int(np.argmin(totals))
    return Drift(line + 1, apart) if totals[-1] - totals[line] > _CUT else None


def _earliest(source: Signatures, target: Signatures, ruler: tuple[float, float], still: Distances) -> Drift | None:
    """The shift whose gain is believed first, and the line from which it gained: a test by cumulative sums."""
    apart = len(target) - len(source)
    shifts = {*range(-_NEAR, _NEAR + 1), *range(apart - 1, apart + 2)} - {0}
    both = min(len(source), len(target))
    found: list[tuple[int, int, int]] = []  # where it is believed, where it began, the shift
    for shift in shifts:
        gains = (still - _distances(source, target, shift, ruler))[:both].astype(np.float64)
        total = np.cumsum(_CAUTION * gains - _CAUTION**2 / 2 * gains**2)
        lowest = np.minimum.accumulate(np.minimum(total, 0))
        believed = int(np.argmax(total - lowest > _BELIEF))
        if total[believed] - lowest[believed] > _BELIEF:
            low = int(np.argmin(total[: believed + 1]))
            found.append((believed, low + 1 if total[low] < 0 else 0, shift))
    if not found:
        return None
    _, began, shift = min(found)
    return Drift(began + 1, shift)
