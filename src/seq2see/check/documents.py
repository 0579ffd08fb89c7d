"""The data check for plain text: counts documents, lines and words; finds duplicates and lines that are not UTF-8.

Short paragraphs repeat in every book ("Yes.", "Chapter II", a refrain), so only documents of at least twenty words count
as duplicates, or as validation text in the training data.
"""

import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from seq2see.check.findings import issue_example
from seq2see.check.pairs import DEFAULTS, CheckSettings
from seq2see.check.report import TITLES, Example, Finding, FindingKind, Report
from seq2see.check.scripts import count_letters
from seq2see.check.statistics import IssueLog, SideCounts, is_repeated
from seq2see.data.corpus import TextChunk, TextCorpus
from seq2see.data.formats.lines import LENIENT, ReadCallbacks
from seq2see.errors import UserError

TEXT_REMOVAL_REASONS: tuple[FindingKind, ...] = ("test", "valid", "duplicate")

_MIN_WORDS = 20  # of a document that counts as a duplicate
_BATCH_CHARACTERS = 1 << 20  # counted at a time
_EXAMPLE_CHARACTERS = 300  # of a document shown as an example


@dataclass(frozen=True)
class CheckedText:
    """The report, and for each document its reason for removal as 1 + index in TEXT_REMOVAL_REASONS, or 0."""

    report: Report
    reasons: NDArray[np.uint8]
    starts: tuple[int, ...]  # the documents of file i are reasons[starts[i] : starts[i + 1]]
    issues: IssueLog


@dataclass(frozen=True)
class _TextStats:
    """A few numbers for each document."""

    hashes: NDArray[np.int64]
    lines: NDArray[np.uint32]  # where each document begins
    long_enough: NDArray[np.bool_]
    starts: tuple[int, ...]
    counts: SideCounts
    issues: IssueLog


def check_documents(
    corpus: TextCorpus,
    settings: CheckSettings = DEFAULTS,
    valid: TextCorpus | None = None,
    test: TextCorpus | None = None,
) -> CheckedText:
    """Checks every document, and whether the training text contains validation or test documents."""
    sets: dict[FindingKind, TextCorpus | None] = {"valid": valid, "test": test}
    held_out = {kind: _collect_strictly(other) for kind, other in sets.items() if other is not None}
    train = _collect(corpus, settings)
    if not len(train.hashes) and not train.issues.counts:
        raise UserError(f"{corpus.files[0]}: no text, only blank lines")
    masks: dict[FindingKind, NDArray[np.bool_]] = {"duplicate": is_repeated(train.hashes) & train.long_enough}
    for kind, held in held_out.items():
        masks[kind] = np.isin(train.hashes, held.hashes) & train.long_enough
    reasons = np.zeros(len(train.hashes), np.uint8)
    for number, kind in reversed(list(enumerate(TEXT_REMOVAL_REASONS, 1))):
        if kind in masks:
            reasons[masks[kind]] = number
    report = Report(
        "documents",
        len(reasons),
        int(np.count_nonzero(reasons == 0)),
        (train.counts.summary(),),
        tuple(_findings(corpus, train, masks, held_out, settings)),
    )
    return CheckedText(report, reasons, train.starts, train.issues)


def _collect_strictly(corpus: TextCorpus) -> _TextStats:
    collected = _collect(corpus, CheckSettings(examples=1))
    for issues in collected.issues.first.values():
        raise UserError(issues[0].message)
    return collected


def _collect(corpus: TextCorpus, settings: CheckSettings) -> _TextStats:
    issues = IssueLog(settings.examples)
    callbacks = ReadCallbacks(issues.add, settings.progress("reading", corpus.size))
    counts = SideCounts("text", corpus.files, settings.encoder)
    hashes: list[int] = []
    lines: list[int] = []
    words: list[int] = []
    starts = [0]
    for file in corpus.files:
        document_hash, document_words, first_line = 0, 0, 0
        for chunk, chunk_words in _count_words(corpus.read(file, callbacks), counts):
            key = unicodedata.normalize("NFC", " ".join(chunk.text.split()))
            document_hash = hash((document_hash, key)) if first_line else hash(key)
            document_words += chunk_words
            first_line = first_line or chunk.line
            if chunk.ends_document:
                hashes.append(document_hash)
                lines.append(first_line)
                words.append(document_words)
                document_hash, document_words, first_line = 0, 0, 0
        starts.append(len(hashes))
    long_enough = np.array(words, np.int64) >= _MIN_WORDS
    return _TextStats(
        np.array(hashes, np.int64), np.array(lines, np.uint32), long_enough, tuple(starts), counts, issues
    )


def _count_words(chunks: Iterator[TextChunk], counts: SideCounts) -> Iterator[tuple[TextChunk, int]]:
    """Yields each chunk with its number of words, after adding it to the counts; many chunks are counted at a time."""
    batch: list[TextChunk] = []
    size = 0
    for chunk in chunks:
        batch.append(chunk)
        size += len(chunk.text)
        if size >= _BATCH_CHARACTERS:
            yield from zip(batch, _count_batch(batch, counts), strict=True)
            batch, size = [], 0
    if batch:
        yield from zip(batch, _count_batch(batch, counts), strict=True)


def _count_batch(batch: list[TextChunk], counts: SideCounts) -> list[int]:
    texts = [chunk.text for chunk in batch]
    words = [len(text.split()) for text in texts]
    counts.sentences += sum(chunk.text.count("\n") + chunk.ends_document for chunk in batch)
    counts.words += sum(words)
    counts.characters += sum(map(len, texts))
    counts.max_words = max(counts.max_words, *words)
    if counts.encoder is not None:
        counts.tokens += int(counts.encoder.encode_batch(texts).offsets[-1])
    letters = count_letters(texts)[:, 1:]
    scripts = np.where(letters.any(1), letters.argmax(1) + 1, 0)
    counts.scripts += np.bincount(scripts, minlength=len(counts.scripts))
    return words


def _findings(
    corpus: TextCorpus,
    train: _TextStats,
    masks: Mapping[FindingKind, NDArray[np.bool_]],
    held_out: Mapping[FindingKind, _TextStats],
    settings: CheckSettings,
) -> Iterator[Finding]:
    issues = train.issues
    for kind in ("encoding", "malformed"):
        if kind == "encoding" or issues.counts[kind]:  # a line of plain text is malformed only if it is too long
            invalid = tuple(map(issue_example, issues.first.get(kind, ())))
            total = train.counts.sentences + sum(issues.counts.values())
            yield Finding(kind, TITLES[kind], issues.counts[kind], total, invalid)
    shown = {kind: np.flatnonzero(mask)[: settings.examples] for kind, mask in masks.items()}
    texts = _read_texts(corpus, sorted({int(index) for indices in shown.values() for index in indices}))

    def examples(kind: FindingKind) -> tuple[Example, ...]:
        found = []
        for index in map(int, shown[kind]):
            note = _first_occurrence(corpus, train, index) if kind == "duplicate" else ""
            found.append(Example(*_location(corpus, train, index), texts[index], note=note))
        return tuple(found)

    count = int(masks["duplicate"].sum())
    yield Finding("duplicate", "duplicate documents", count, len(train.hashes), examples("duplicate"))
    titles: dict[FindingKind, str] = {
        "valid": "validation documents in the training text",
        "test": "test documents in the training text",
    }
    for kind, held in held_out.items():
        leaked = np.isin(held.hashes, train.hashes) & held.long_enough
        yield Finding(kind, titles[kind], int(leaked.sum()), len(held.hashes), examples(kind))


def _location(corpus: TextCorpus, train: _TextStats, index: int) -> tuple[str, int]:
    file = corpus.files[int(np.searchsorted(train.starts, index, side="right")) - 1]
    return str(file), int(train.lines[index])


def _first_occurrence(corpus: TextCorpus, train: _TextStats, index: int) -> str:
    file, _ = _location(corpus, train, index)
    first_file, first_line = _location(corpus, train, int(np.argmax(train.hashes == train.hashes[index])))
    return f"same as line {first_line:,}" + ("" if first_file == file else f" of {Path(first_file).name}")


def _read_texts(corpus: TextCorpus, indices: list[int]) -> dict[int, str]:
    """Reads the beginnings of some documents, by index, in a second pass."""
    texts: dict[int, str] = {}
    index = 0
    for file in corpus.files:
        for chunk in corpus.read(file, LENIENT):
            if len(texts) == len(indices):
                return texts
            if index in indices:
                texts.setdefault(index, chunk.text[:_EXAMPLE_CHARACTERS])  # only its first chunk
            index += chunk.ends_document
    return texts
