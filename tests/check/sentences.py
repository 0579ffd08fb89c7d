"""Parallel sentences and files for the tests of the data check."""

import random
from pathlib import Path

from seq2see.check.report import Finding, FindingKind, Report
from seq2see.data.corpus import ParallelCorpus, parallel_files

ENGLISH_WORDS = "the man woman dog child house river sees likes finds small green old happy big tree in near a of"
ENGLISH = ENGLISH_WORDS.split()
HINDI_WORDS = "आदमी औरत कुत्ता बच्चा घर नदी देखता पसंद पाता छोटा हरा पुराना खुश बड़ा पेड़ में पास एक का है"
HINDI = HINDI_WORDS.split()


def sentences(count: int, seed: int = 0) -> tuple[list[str], list[str]]:
    """Pairs of similar length, like real ones: a few words more or less, now and then a question."""
    rng = random.Random(seed)
    source, target = [], []
    for _ in range(count):
        words = rng.randint(6, 22)
        end = "?" if rng.random() < 0.1 else "."
        source.append(" ".join(rng.choices(ENGLISH, k=words)) + end)
        target.append(" ".join(rng.choices(HINDI, k=words + rng.randint(-2, 2))) + end)
    return source, target


def write(path: Path, lines: list[str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")
    return path


def two_files(folder: Path, source: list[str], target: list[str]) -> ParallelCorpus:
    return parallel_files([write(folder / "a.en", source)], [write(folder / "a.hi", target)])


def finding(report: Report, kind: FindingKind) -> Finding:
    return next(f for f in report.findings if f.kind == kind)


def kinds_found(report: Report) -> set[FindingKind]:
    return {f.kind for f in report.findings if f.count}
