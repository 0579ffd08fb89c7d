"""Fuzzing of the parsers of text: whatever a file holds, it is read, or refused in one line.

    python -m tests.fuzz_parsers PARSER --count 100000 [--seed 1] [--first 0]

Every case changes a file of `tests/corpus/PARSER` and parses the result, in a forked process. It must end within 10 s of CPU
time, take less than 1 GB more memory, and raise nothing but a UserError of one line. A document that is read and rebuilt must
be what it was. Cases follow from (seed, number), so one can be repeated with `--first NUMBER --count 1`.
"""

import argparse
import os
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

from seq2see.data.lines import STRICT
from seq2see.data.readers import Reader
from seq2see.formats import po, tabular, tmx
from seq2see.formats.documents import read_parts
from seq2see.formats.markup import take_out
from seq2see.formats.parts import Document, TranslationUnit, rebuild
from seq2see.formats.placeholders import MARKDOWN_PLACEHOLDER, PLACEHOLDER
from seq2see.translate.segmentation import sentence_spans
from tests.fuzz_models import Outcome, outcome_of, run_cases

CORPUS = Path(__file__).parent / "corpus"
MOST_BYTES = (1 << 9, 1 << 10, 1 << 11, 1 << 11, 1 << 16)  # of a case


def document(suffix: str) -> Callable[[bytes], None]:
    pattern = MARKDOWN_PLACEHOLDER if suffix == ".md" else PLACEHOLDER

    def parse(content: bytes) -> None:
        text = content.decode(errors="surrogateescape")
        parts = read_parts(Document(text, Path(f"a{suffix}"), retranslate=True))
        units = [part for part in parts if isinstance(part, TranslationUnit)]
        for unit in units:
            marked = take_out(unit.source, pattern)
            sentences = [marked.sentence(*span) for span in sentence_spans(marked.text, marked.protected)]
            edges = [0, *(edge for each in sentences for edge in each.span), len(unit.source)]
            assert edges == sorted(edges), "sentences overlap"
            assert all(unit.source[slice(*each.span)] == each.raw for each in sentences), "a sentence is elsewhere"
        found = rebuild(parts, [unit.source for unit in units])
        # HTML's entities are read as their characters, and in PO the source stands beside the translation.
        assert suffix in (".html", ".po") or found == text, "the document changed"

    return parse


def corpus(suffix: str, reader: Callable[[Path], Reader]) -> Callable[[bytes], None]:
    def parse(content: bytes) -> None:
        for _ in reader(_write(content, suffix)).read(STRICT):
            pass

    return parse


def lines_of(suffix: str, read: Callable[[Path], object]) -> Callable[[bytes], None]:
    return lambda content: void(read(_write(content, suffix)))


def void(value: object) -> None:
    pass


def _glossary(path: Path) -> None:
    from seq2see.translate.glossary import Glossary, read_glossary

    Glossary(read_glossary(path)).find("I like tea, and the blue  River.")


def _keys(path: Path) -> None:
    from seq2see.server.service.keys import read_keys

    read_keys(path)


def _plain_text(path: Path) -> Iterable[object]:
    from seq2see.data.readers import DocumentReader

    return list(DocumentReader(path, "blank-line").read(STRICT))


PARSERS: dict[str, Callable[[bytes], None]] = {
    **{suffix[1:]: document(suffix) for suffix in (".html", ".md", ".srt", ".vtt", ".po", ".txt")},
    "po-corpus": corpus(".po", po.PoReader),
    "tmx": corpus(".tmx", lambda path: tmx.TmxReader(path, "en", "hi")),
    "tsv": corpus(".tsv", lambda path: tabular.TsvReader(path, "en", 2)),
    "jsonl": corpus(".jsonl", lambda path: tabular.JsonlReader(path, "translation.en", "hi")),
    "text": lines_of(".txt", _plain_text),
    "glossary": lines_of(".tsv", _glossary),
    "keys": lines_of(".toml", _keys),
}


@cache
def _folder() -> Path:
    import atexit
    import shutil

    folder = Path(tempfile.mkdtemp(prefix="seq2see-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _write(content: bytes, suffix: str) -> Path:
    path = _folder() / f"{os.getpid()}{suffix}"
    path.write_bytes(content)
    return path


@cache
def seeds(parser: str) -> list[bytes]:
    return [path.read_bytes() for path in sorted((CORPUS / parser).iterdir())]


ODD = [
    "\x00",
    "\ufeff",
    "\u2028",
    "\x85",
    "\x0c",
    "\r",
    "\r\n",
    "\u202e",
    "👩‍👧",
    "क्ष",
    "İ",
    "\udc80",
    "\ud800",
    "9" * 5000,
    " " * 300,
]


def mutate(content: bytes, others: list[bytes], draw: random.Random) -> bytes:
    """Changes a file in a few places: bytes, pieces, repetitions, pieces of other files, odd characters."""
    for _ in range(draw.choice([1, 1, 2, 4, 8])):
        start = draw.randrange(len(content) + 1)
        stop = min(len(content), start + draw.choice([0, 1, 3, 10, 100]))
        other = draw.choice(others)
        first = draw.randrange(len(other) + 1)
        piece = draw.choice(
            [
                b"",
                bytes([draw.randrange(256)]),
                content[start:stop] * draw.choice([2, 3, 50, 1000]),
                other[first : first + draw.choice([1, 5, 30, 300])],
                draw.choice(ODD).encode(errors="surrogatepass"),
                draw.choice(b"<>&\"'`*_[](){}|#-\\\n\t;:=%$ ").to_bytes() * draw.choice([1, 1, 2, 3, 100]),
            ]
        )
        content = content[:start] + piece + content[stop:]
    return content[: draw.choice(MOST_BYTES)]


def fuzz(parser: str, count: int, seed: int = 1, first: int = 0) -> tuple[Counter[str], list[str]]:
    """Runs cases; returns how many ended in each way, and a description of each failure."""

    def run(number: int) -> Outcome:
        draw = random.Random(f"{parser} {seed} {number}")
        content = mutate(draw.choice(seeds(parser)), seeds(parser), draw)
        return outcome_of(lambda: PARSERS[parser](content))

    return run_cases(parser, run, range(first, first + count), batch=2000)


def main(arguments: list[str] | None = None) -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("parser", choices=list(PARSERS))
    options.add_argument("--count", type=int, default=100_000)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--first", type=int, default=0)
    chosen = options.parse_args(arguments)
    total, failed = fuzz(chosen.parser, chosen.count, chosen.seed, chosen.first)
    print(*failed, sep="\n\n")
    for label, number in total.most_common():
        print(f"{number:7,}  {label}")
    print(f"{chosen.parser}: {total.total():,} cases, {len(failed)} failures")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
