"""Finds where two parallel files become misaligned: the line after which a shifted pairing fits better.

A long sentence has a long translation (Gale and Church, 1993), a question remains a question, and numbers are kept. So
each line gets a small signature, and line n of one file a distance to line n + shift of the other. While the files are
aligned, no shift fits better than shift 0; after one of them loses a line, another shift consistently does. Distances
are negative log-likelihoods, and numpy handles all lines at once.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Distances = NDArray[np.float32]  # [lines of the source]

_DIGIT = re.compile(r"\d")  # also matches digits of Devanagari and other scripts
_MAX_SHIFT = 24  # shifts tried, besides those near the difference of the line counts
_MAX_DISTANCE = 4.5  # a pair of lines counts at most as a deviation of three sigmas
_MARK_PENALTY = 1.5  # for a question, an exclamation or a number that the other side lacks
# If lengths are correlated (a corpus sorted by length), gains are noise that drifts far; subtracting λ²/2 times the
# square of each step makes exp(sum) a supermartingale under any symmetric noise, so that the sum stays small.
_LAMBDA = 0.3
_EVIDENCE = 25.0  # odds of e²⁵ to one: enough for millions of lines and dozens of shifts
_BLOCK_SIZE = 1 << 20  # lines searched at a time
_MIN_GAIN = 10.0  # by which a drift must fit better than a missing end of file


@dataclass(frozen=True)
class Drift:
    """From `line` of the source onwards, line k of the source matches line k + `shift` of the target."""

    line: int
    shift: int


@dataclass(frozen=True)
class Signatures:
    """A few numbers for each line of a file."""

    lengths: NDArray[np.float32]  # log(characters + 10), since short lines vary more
    marks: NDArray[np.uint8]  # bit 0: question; bit 1: exclamation; the rest: a hash of the digits

    @classmethod
    def from_lines(cls, lines: Iterable[str | None]) -> "Signatures":
        lengths: list[int] = []
        marks = bytearray()
        for line in lines:
            lengths.append(len(line or ""))
            marks.append(_mark(line or ""))
        return cls(np.log(np.asarray(lengths, np.float32) + 10), np.frombuffer(bytes(marks), np.uint8))

    @classmethod
    def from_lengths(cls, lengths: NDArray[np.uint16]) -> "Signatures":
        return cls(np.log(lengths.astype(np.float32) + 10), np.zeros(len(lengths), np.uint8))

    def __len__(self) -> int:
        return len(self.lengths)


def _mark(line: str) -> int:
    mark = ("?" in line or "؟" in line or "？" in line) + 2 * ("!" in line or "！" in line)
    digits = _DIGIT.findall(line)
    return mark + 4 * (1 + (7 * sum(map(int, digits)) + len(digits)) % 62) if digits else mark


def first_drift(source: Signatures, target: Signatures) -> Drift | None:
    """Finds the first misalignment; None if there is none, or if only the end of one file is missing."""
    extra = len(target) - len(source)
    scale = min(_length_scale(source, target, shift) for shift in {0, extra})
    unshifted = _distances(source, target, 0, scale)
    earliest = _earliest_drift(source, target, scale, unshifted)
    if not extra:
        return earliest
    single = _single_drift(unshifted, _distances(source, target, extra, scale), extra)
    if earliest is None or single is None:
        return earliest or single
    # The single drift is located more precisely, but is wrong if the files drift more than once.
    only_once = earliest.shift == extra and earliest.line > single.line - 300
    return single if only_once else earliest


def find_lost_line(source: Iterable[str | None], target: Iterable[str | None]) -> Drift | None:
    """Finds the first misalignment of two texts, given by their lines."""
    return first_drift(Signatures.from_lines(source), Signatures.from_lines(target))


def find_drift(source: NDArray[np.uint16], target: NDArray[np.uint16]) -> Drift | None:
    """Finds the first misalignment of two files of equal length, given the lengths of their lines."""
    for start in range(0, len(source), _BLOCK_SIZE):
        drift = first_drift(*(Signatures.from_lengths(each[start : start + _BLOCK_SIZE]) for each in (source, target)))
        if drift is not None:
            return Drift(start + drift.line, drift.shift)
    return None


def describe_drift(shift: int, source: str, target: str) -> str:
    longer, shorter = (target, source) if shift > 0 else (source, target)
    count = "1 extra line" if abs(shift) == 1 else f"{abs(shift):,} extra lines"
    return f"near here {longer} has {count}, or {shorter} is missing {'one' if abs(shift) == 1 else f'{abs(shift):,}'}"


def describe_misalignment(left: Iterable[str], right: Iterable[str]) -> str:
    """Returns the end of an error message: from which line on two files seem to be misaligned; "" if from none."""
    drift = find_lost_line(left, right)
    return f"they seem to be misaligned from line {drift.line:,} on" if drift else ""


def _partners(source: Signatures, target: Signatures, shift: int) -> tuple[slice, slice]:
    """Returns the source lines that have a partner under a shift, and these partners."""
    first = max(0, -shift)
    last = max(first, min(len(source), len(target) - shift))
    return slice(first, last), slice(first + shift, last + shift)


def _length_scale(source: Signatures, target: Signatures, shift: int) -> tuple[float, float]:
    """Returns the robust standard deviation and the median of the log length ratio under a shift."""
    source_lines, target_lines = _partners(source, target, shift)
    ratios = target.lengths[target_lines] - source.lengths[source_lines]
    if not len(ratios):
        return float("inf"), 0.0
    median = float(np.median(ratios))
    return max(0.1, 1.48 * float(np.median(np.abs(ratios - median)))), median


def _distances(source: Signatures, target: Signatures, shift: int, scale: tuple[float, float]) -> Distances:
    """Returns the distance of each source line to target line + shift; the maximum if there is no such line."""
    sigma, median = scale
    source_lines, target_lines = _partners(source, target, shift)
    deviations = (target.lengths[target_lines] - source.lengths[source_lines] - median) / sigma
    differ = source.marks[source_lines] ^ target.marks[target_lines]
    penalties = ((differ & 3) > 0).astype(np.float32) + (differ > 3)
    distances = np.full(len(source), _MAX_DISTANCE, np.float32)
    distances[source_lines] = np.minimum(deviations**2 / 2, _MAX_DISTANCE) + _MARK_PENALTY * penalties
    return distances


def _single_drift(unshifted: Distances, shifted: Distances, extra: int) -> Drift | None:
    """Returns the likeliest line of a drift, assuming exactly one, by the difference of the line counts."""
    skipped = max(0, -extra)  # source lines without a partner
    before = np.concatenate([[0.0], np.cumsum(unshifted, dtype=np.float64)])
    after = np.cumsum(shifted[::-1], dtype=np.float64)[::-1]
    after = np.concatenate([after, [0.0]])[skipped:]
    totals = before[: len(after)] + after  # by the number of lines before the drift; the last: only an end is missing
    line = int(np.argmin(totals))
    return Drift(line + 1, extra) if totals[-1] - totals[line] > _MIN_GAIN else None


def _earliest_drift(
    source: Signatures, target: Signatures, scale: tuple[float, float], unshifted: Distances
) -> Drift | None:
    """Returns the shift that gathers enough evidence first, and the line where its gain begins (a CUSUM test)."""
    extra = len(target) - len(source)
    shifts = {*range(-_MAX_SHIFT, _MAX_SHIFT + 1), *range(extra - 1, extra + 2)} - {0}
    shared = min(len(source), len(target))
    detected: list[tuple[int, int, int]] = []  # the line of detection, the line where the drift begins, the shift
    for shift in shifts:
        gains = (unshifted - _distances(source, target, shift, scale))[:shared].astype(np.float64)
        total = np.cumsum(_LAMBDA * gains - _LAMBDA**2 / 2 * gains**2)
        minimum = np.minimum.accumulate(np.minimum(total, 0))
        line = int(np.argmax(total - minimum > _EVIDENCE))
        if total[line] - minimum[line] > _EVIDENCE:
            low = int(np.argmin(total[: line + 1]))
            detected.append((line, low + 1 if total[low] < 0 else 0, shift))
    if not detected:
        return None
    _, start, shift = min(detected)
    return Drift(start + 1, shift)
