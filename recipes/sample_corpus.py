"""Generates the built-in corpus and packs its files into the package; with --out, writes another of the same grammar.

python recipes/sample_corpus.py [--out data/ --pairs 60000 --seed 2]
"""

import argparse
import io
import tarfile
from collections.abc import Mapping
from pathlib import Path

from grammar import corpus_files, generate_corpus

from seq2see.course.sample_corpus import ARCHIVE, write_files


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="directory for the files; by default they are packed into the package")
    parser.add_argument("--pairs", type=int, default=30000, help="of training; the other sets grow with them")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    files = corpus_files(generate_corpus(options.pairs, options.seed))
    if options.out:
        write_files(files, options.out)
    else:
        pack(files, ARCHIVE)


def pack(files: Mapping[str, bytes], archive: Path) -> None:
    with tarfile.open(archive, "w:xz", preset=9) as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))


if __name__ == "__main__":
    main()
