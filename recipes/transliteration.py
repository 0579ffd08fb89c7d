"""Transliteration of Hindi words from Latin to Devanagari script, character by character (Dakshina).

    python recipes/transliteration.py --data DIR --work DIR --seeds 1 2 3

Word accuracy counts a word as right if it equals the word that annotators romanised as given.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from pairs import Pair, read_lines, write_pairs
from recipe import Run, Scores, main, translation_test

from seq2see.api import Model
from seq2see.config import DataConfig

SETTINGS = (
    "text.tokenizer=character",
    "text.vocab_size=500",
    "train.batch_tokens=16384",
    "train.steps=8000",
    "train.patience=0",
    "train.average_checkpoints=5",
)


def runs(data: Path, work: Path) -> Sequence[Run]:
    folder = data / "transliteration"
    pairs = read_attested(folder / "hi-train.tsv")
    # The dev set gives the score, so validation takes every 20th word of the training set.
    valid_words = set(sorted({word for _, word in pairs})[::20])
    files = DataConfig(
        pairs=write_pairs(work / "train.tsv", [pair for pair in pairs if pair[1] not in valid_words]),
        valid_pairs=write_pairs(work / "valid.tsv", [pair for pair in pairs if pair[1] in valid_words]),
    )
    tests = {"dev": word_test(read_attested(folder / "hi-dev.tsv"))}
    return [Run("latin-devanagari", files, "tiny", SETTINGS, tests)]


def word_test(pairs: Sequence[Pair]) -> Callable[[Model], Scores]:
    """Returns a test of single words, which have no BLEU."""
    test = translation_test(pairs)
    return lambda model: {name: value for name, value in test(model).items() if name not in ("BLEU", "signature")}


def read_attested(path: Path) -> list[Pair]:
    return [(latin, devanagari) for latin, devanagari, *_ in (line.split("\t") for line in read_lines(path))]


if __name__ == "__main__":
    main("transliteration", runs, __doc__)
