"""The data check for plain text: documents, lines and words; what stands there twice; what is not UTF-8.

Short paragraphs repeat in every book ("Yes.", "Chapter II", a refrain), so only documents of twenty words and more
count as duplicates, or as text of the validation set that stands in training.
"""

import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from seq2see.errors import UserError
from seq2see.text.check.pairs import DEFAULTS, Settings
from seq2see.text.check.report import TITLES, Example, Finding, Kind, Report
from seq2see.text.check.scripts import count_letters
from seq2see.text.check.statistics import Faults, Tally, again
from seq2see.text.corpus import Documents, Passage
from seq2see.text.formats.lines import Listener

TEXT_REASONS: tuple[Kind, ...] = ("test", "valid", "duplicate")

_ENOUGH = 20  # words
_PORTION = 1 << 20  # characters counted at a time
_SHOWN = 300  # characters of a document that an example keeps


@dataclass(frozen=True)
class CheckedText:
    """The report, and for each document the number of its reason to go (counted from 1 in TEXT_REASONS), or 0."""

    report: Report
    reasons: NDArray[np.uint8]
    starts: tuple[int, ...]  # the documents of file i are reasons[starts[i] : starts[i + 1]]
    faults: Faults


@dataclass(frozen=True)
class _Read:
    """Documents in numbers."""

    hashes: NDArray[np.int64]
    lines: NDArray[np.uint32]  # where each begins
    enough: NDArray[np.bool_]
    starts: tuple[int, ...]
    tally: Tally
    faults: Faults


def check_documents(
    documents: Documents,
    settings: Settings = DEFAULTS,
    valid: Documents | None = None,
    test: Documents | None = None,
) -> CheckedText:
    """Looks at every document, and whether documents of the validation or test text stand among them."""
    sets: dict[Kind, Documents | None] = {"valid": valid, "test": test}
    held_out = {kind: _strict(other) for kind, other in sets.items() if other is not None}
    train = _read(documents, settings)
    if not len(train.hashes) and not train.faults.counts:
        raise UserError(f"{documents.files[0]}: no text in it, only blank lines")
    masks: dict[Kind, NDArray[np.bool_]] = {"duplicate": again(train.hashes) & train.enough}
    for kind, held in held_out.items():
        masks[kind] = np.isin(train.hashes, held.hashes) & train.enough
    reasons = np.zeros(len(train.hashes), np.uint8)
    for number, kind in reversed(list(enumerate(TEXT_REASONS, 1))):
        if kind in masks:
            reasons[masks[kind]] = number
    report = Report(
        "documents",
        len(reasons),
        int(np.count_nonzero(reasons == 0)),
        (train.tally.finished(),),
        tuple(_findings(documents, train, masks, held_out, settings)),
    )
    return CheckedText(report, reasons, train.starts, train.faults)


def _strict(documents: Documents) -> _Read:
    read = _read(documents, Settings(examples=1))
    for faults in read.faults.first.values():
        raise UserError(faults[0].message)
    return read


def _read(documents: Documents, settings: Settings) -> _Read:
    faults = Faults(settings.examples)
    listener = Listener(faults.add, settings.watch("reading", documents.size))
    tally = Tally("text", documents.files, settings.encoder)
    hashes: list[int] = []
    lines: list[int] = []
    words: list[int] = []
    starts = [0]
    for file in documents.files:
        whole, size, first = 0, 0, 0
        for passage, count in _counted(documents.read(file, listener), tally):
            key = unicodedata.normalize("NFC", " ".join(passage.text.split()))
            whole = hash((whole, key)) if first else hash(key)
            size += count
            first = first or passage.line
            if passage.ends:
                hashes.append(whole)
                lines.append(first)
                words.append(size)
                whole, size, first = 0, 0, 0
        starts.append(len(hashes))
    enough = np.array(words, np.int64) >= _ENOUGH
    return _Read(np.array(hashes, np.int64), np.array(lines, np.uint32), enough, tuple(starts), tally, faults)


def _counted(passages: Iterator[Passage], tally: Tally) -> Iterator[tuple[Passage, int]]:
    """The passages with their words, after they were added to the figures, many at a time."""
    portion: list[Passage] = []
    size = 0
    for passage in passages:
        portion.append(passage)
        size += len(passage.text)
        if size >= _PORTION:
            yield from zip(portion, _count(portion, tally), strict=True)
            portion, size = [], 0
    if portion:
        yield from zip(portion, _count(portion, tally), strict=True)


def _count(portion: list[Passage], tally: Tally) -> list[int]:
    texts = [passage.text for passage in portion]
    words = [len(text.split()) for text in texts]
    tally.sentences += sum(passage.text.count("\n") + passage.ends for passage in portion)
    tally.words += sum(words)
    tally.characters += sum(map(len, texts))
    tally.longest = max(tally.longest, *words)
    if tally.encoder is not None:
        tally.tokens += int(tally.encoder.encode_batch(texts).offsets[-1])
    letters = count_letters(texts)[:, 1:]
    most = np.where(letters.any(1), letters.argmax(1) + 1, 0)
    tally.scripts += np.bincount(most, minlength=len(tally.scripts))
    return words


def _findings(
    documents: Documents,
    train: _Read,
    masks: Mapping[Kind, NDArray[np.bool_]],
    held_out: Mapping[Kind, _Read],
    settings: Settings,
) -> Iterator[Finding]:
    unreadable = train.faults.counts["encoding"]
    faults = train.faults.first.get("encoding", [])
    broken = tuple(Example(str(f.path), f.line, note=f.reason.partition(":")[0]) for f in faults)
    yield Finding("encoding", TITLES["encoding"], unreadable, train.tally.sentences + unreadable, broken)
    wanted = {kind: np.flatnonzero(mask)[: settings.examples] for kind, mask in masks.items()}
    texts = _texts(documents, sorted({int(index) for each in wanted.values() for index in each}))

    def examples(kind: Kind, note: str = "") -> tuple[Example, ...]:
        return tuple(_example(documents, train, int(index), texts, note) for index in wanted[kind])

    repeated = [
        Example(e.file, e.line, e.source, note=_earlier(documents, train, int(index)))
        for e, index in zip(examples("duplicate"), wanted["duplicate"], strict=True)
    ]
    count = int(masks["duplicate"].sum())
    yield Finding("duplicate", "the same document again", count, len(train.hashes), tuple(repeated))
    titles: dict[Kind, str] = {"valid": "validation documents in training", "test": "test documents in training"}
    for kind, held in held_out.items():
        stands = np.isin(held.hashes, train.hashes) & held.enough
        yield Finding(kind, titles[kind], int(stands.sum()), len(held.hashes), examples(kind))


def _place(documents: Documents, train: _Read, index: int) -> tuple[str, int]:
    file = documents.files[int(np.searchsorted(train.starts, index, side="right")) - 1]
    return str(file), int(train.lines[index])


def _example(documents: Documents, train: _Read, index: int, texts: Mapping[int, str], note: str) -> Example:
    file, line = _place(documents, train, index)
    return Example(file, line, texts[index], note=note)


def _earlier(documents: Documents, train: _Read, index: int) -> str:
    file, _ = _place(documents, train, index)
    first_file, first_line = _place(documents, train, int(np.argmax(train.hashes == train.hashes[index])))
    return f"as line {first_line:,}" + ("" if first_file == file else f" of {Path(first_file).name}")


def _texts(documents: Documents, wanted: list[int]) -> dict[int, str]:
    """The beginnings of some documents, by their numbers, read once more."""
    texts: dict[int, str] = {}
    number = 0
    quiet = Listener(lambda fault: None)
    for file in documents.files:
        for passage in documents.read(file, quiet):
            if len(texts) == len(wanted):
                return texts
            if number in wanted:
                texts.setdefault(number, passage.text[:_SHOWN])  # not a later passage of it
            number += passage.ends
    return texts
