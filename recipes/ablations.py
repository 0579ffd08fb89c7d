"""What each choice of the bundled translator en-fr is worth. Each row is the student, trained for a third of its steps with one
choice changed, with one seed; differences below half a point mean little.
`careless` is the test set in lower case without final punctuation. `no-variants` is trained without variants in case,
punctuation and contractions, `only-distilled` only on the translations of the teacher, `no-distillation` only on the real
pairs. Two choices were tried without distillation: R-Drop, and `back-translation`, which adds the French sentences with English
that a model of the opposite direction made from them.

    python recipes/ablations.py --data DIR --work DIR --device cuda [--only "no-distillation" …]

Needs what translators.py wrote to the same work directory.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from pairs import Pair, parallel, read_tsv, split_by_source, write_pairs
from recipe import Run, carry_out, parser, train_and_test, translate_lines, translation_test
from translators import HELD_OUT, STUDENT, test_sets

from seq2see.api import load
from seq2see.config import DataConfig

NAME, SHORTER = "en-fr", (*STUDENT, "train.steps=4000")
CHANGES = {
    "as-bundled": (),
    "bpe-dropout": ("text.bpe_dropout=0.05",),
    "vocabulary-4000": ("text.vocab_size=4000",),
    "vocabulary-16000": ("text.vocab_size=16000",),
    "no-label-smoothing": ("train.label_smoothing=0",),
    "no-averaging": ("train.average_checkpoints=1",),
    "cosine-schedule": ("train.schedule=cosine",),
    "width-192": ("model.width=192", "model.heads=6", "model.feed_forward=768"),
    "layers-3-3": ("model.encoder_layers=3", "model.decoder_layers=3"),
    "no-distillation": (),
    "only-distilled": (),
    "no-variants": (),
    "no-distillation-r-drop-1": ("train.r_drop=1",),
    "no-distillation-back-translation": (),
}


def main() -> None:
    options = parser(__doc__).parse_args()
    work = options.work / "ablations"
    for run in runs(options.data, work):
        if not options.only or run.name in options.only:
            if run.name.endswith("back-translation"):
                back_translate(run, work, options)
            carry_out("ablations", run, options)


def runs(data: Path, work: Path) -> Sequence[Run]:
    bundled = work.parent / "bundled"
    real, distilled = (str(bundled / f"{NAME}.{part}.tsv") for part in ("train", "distilled"))
    files = {
        "no-distillation": (real,),
        "no-distillation-r-drop-1": (real,),
        "no-distillation-back-translation": (real, str(work / "back-translated.tsv")),
        "only-distilled": (distilled,),
        "no-variants": (str(work / "plain.tsv"),),
    }
    if not (work / "plain.tsv").exists():
        plain, _, _ = split_by_source(parallel(data / "tatoeba" / NAME, "en", "fr"), HELD_OUT[NAME])
        varied = {source for source, _ in read_tsv(Path(real))} - {source for source, _ in plain}
        write_pairs(
            work / "plain.tsv", [*plain, *(pair for pair in read_tsv(Path(distilled)) if pair[0] not in varied)]
        )
    valid = (str(bundled / f"{NAME}.valid.tsv"),)
    sets = test_sets(NAME, data, bundled)
    sets["careless"] = [careless(pair) for pair in sets["Tatoeba, held-out sources"]]
    tests = {name: translation_test(pairs) for name, pairs in sets.items()}
    return [
        Run(
            name,
            DataConfig(pairs=files.get(name, (real, distilled)), valid_pairs=valid),
            "small",
            (*SHORTER, *changes),
            tests,
        )
        for name, changes in CHANGES.items()
    ]


def back_translate(run: Run, work: Path, options: argparse.Namespace) -> None:
    """Writes the French sentences of the corpus with English from a model of the opposite direction, trained on it first."""
    real, back_translated = map(Path, run.data.pairs)
    if back_translated.exists():
        return
    pairs = read_tsv(real)
    train = write_pairs(work / "reverse.train.tsv", map(swap, pairs))
    valid = write_pairs(work / "reverse.valid.tsv", map(swap, read_tsv(Path(run.data.valid_pairs[0]))))
    reverse = Run("reverse", DataConfig(pairs=train, valid_pairs=valid), "small", SHORTER)
    train_and_test(reverse, 1, work / "reverse", options)
    french = sorted({target for _, target in pairs})
    english = translate_lines(load(work / "reverse", options.device or "cpu"), french, beam=4)
    write_pairs(back_translated, (pair for pair in zip(english, french, strict=True) if all(pair)))


def swap(pair: Pair) -> Pair:
    return pair[1], pair[0]


def careless(pair: Pair) -> Pair:
    return pair[0].lower().rstrip(".!?"), pair[1]


if __name__ == "__main__":
    main()
