"""Hindi Visual Genome 1.1: short captions of image regions, English to Hindi; 28,930 pairs. `unseen sources`
are those whose letters and digits, in lower case, are not those of a source in the training set.

    python recipes/hindi_visual_genome.py --data DIR --work DIR --seeds 1 2 3

195 of the 998 sources of the dev set also stand in the training set, so scores are given with and without them. `more` adds
other English–Hindi text, since most errors are words that the training captions do not have.
"""

from collections.abc import Sequence
from pathlib import Path

from pairs import hindi_parts, parallel, source_key, write_pairs
from recipe import Run, main, translation_test

from seq2see.config import DataConfig

LEVERS = ("text.bpe_dropout=0.1", "train.steps=12000", "train.patience=0", "text.vocab_size=6000")
LARGER = (
    "text.bpe_dropout=0.1",
    "train.steps=12000",
    "train.patience=0",
    "model.dropout=0.3",
    "train.batch_tokens=16384",
    "model.norm_first=true",
    "train.warmup_steps=2000",
    "train.weight_decay=0.01",
)
MORE = {"hvg": 4, "tatoeba": 2, "iitb": 1, "hindencorp": 1, "samanantar": 1, "pratham": 1, "bible": 1, "debian-ui": 1}


def runs(data: Path, work: Path) -> Sequence[Run]:
    captions, dev = (parallel(data / "en-hi" / f"hvg-{name}", "en", "hi") for name in ("train", "dev"))
    seen = {source_key(source) for source, _ in captions}
    unseen = [pair for pair in dev if source_key(pair[0]) not in seen]
    held_out = {source_key(source) for source, _ in unseen}
    parts = hindi_parts(data)
    mixture = [
        pair for name, copies in MORE.items() for pair in parts[name] * copies if source_key(pair[0]) not in held_out
    ]
    valid = write_pairs(work / "dev.tsv", dev)
    data_captions = DataConfig(pairs=write_pairs(work / "captions.tsv", captions), valid_pairs=valid)
    data_mixture = DataConfig(pairs=write_pairs(work / "mixture.tsv", mixture), valid_pairs=valid)
    tests = {"dev": translation_test(dev), "dev, unseen sources": translation_test(unseen)}
    return [
        Run("default", data_captions, "tiny", ("train.patience=0",), tests),
        Run("levers", data_captions, "tiny", LEVERS, tests),
        Run("more", data_mixture, "small", LARGER, tests),
    ]


if __name__ == "__main__":
    main("hindi-visual-genome", runs, __doc__)
