"""English to Hindi in general: one model for captions, everyday sentences, news, the Bible, help pages and user interfaces.

    python recipes/english_hindi.py --data DIR --work DIR --device cuda

Each part of the corpus is its own test set, of sources that no part is trained on. Some parts may not be used commercially, so
this model is not bundled; `en-hi` of translators.py is trained on the open ones.
"""

from collections.abc import Sequence
from pathlib import Path

from pairs import Pair, hindi_parts, source_key, split_by_source, write_pairs
from recipe import Run, main, translation_test

from seq2see.config import DataConfig

HELD_OUT, SMALLEST = 200, 2_000  # sources for testing; parts with fewer pairs are only trained on
COPIES = {"tatoeba": 4, "pratham": 4, "samanantar": 2}  # per epoch; of other parts one
SETTINGS = (
    "model.norm_first=true",
    "model.dropout=0.2",
    "train.batch_tokens=16384",
    "train.steps=12000",
    "train.warmup_steps=2000",
    "train.weight_decay=0.01",
    "train.patience=0",
)


def runs(data: Path, work: Path) -> Sequence[Run]:
    train: list[Pair] = []
    valid: list[Pair] = []
    tests: dict[str, list[Pair]] = {}
    for name, pairs in sorted(hindi_parts(data).items()):
        rest = pairs
        if len(pairs) >= SMALLEST:
            rest, part_valid, tests[name] = split_by_source(pairs, HELD_OUT)
            valid += part_valid
        train += rest * COPIES.get(name, 1)
    held_out = {source_key(source) for pairs in (valid, *tests.values()) for source, _ in pairs}
    files = DataConfig(
        pairs=write_pairs(work / "train.tsv", [pair for pair in train if source_key(pair[0]) not in held_out]),
        valid_pairs=write_pairs(work / "valid.tsv", valid),
    )
    return [
        Run("all-parts", files, "small", SETTINGS, {name: translation_test(pairs) for name, pairs in tests.items()})
    ]


if __name__ == "__main__":
    main("english-hindi", runs, __doc__)
