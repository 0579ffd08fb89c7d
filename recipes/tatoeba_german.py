"""Tatoeba, everyday sentences, English–German in both directions; split by source sentence.

python recipes/tatoeba_german.py --data DIR --work DIR
"""

from collections.abc import Sequence
from pathlib import Path

from pairs import parallel, split_by_source, write_pairs
from recipe import Run, main, translation_test

from seq2see.config import DataConfig

HELD_OUT = 1500
SETTINGS = (
    "train.batch_tokens=16384",
    "train.steps=10000",
    "train.patience=0",
    "text.bpe_dropout=0.1",
    "model.dropout=0.3",
)


def runs(data: Path, work: Path) -> Sequence[Run]:
    pairs = parallel(data / "tatoeba" / "en-de", "en", "de")
    found = []
    for name, oriented in (("en-de", pairs), ("de-en", [(german, english) for english, german in pairs])):
        train, valid, test = split_by_source(oriented, HELD_OUT)
        files = DataConfig(
            pairs=write_pairs(work / f"train.{name}.tsv", train),
            valid_pairs=write_pairs(work / f"valid.{name}.tsv", valid),
        )
        found.append(Run(name, files, "small", SETTINGS, {"held-out sources": translation_test(test)}))
    return found


if __name__ == "__main__":
    main("tatoeba", runs, __doc__)
