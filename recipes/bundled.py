"""Trains the bundled model grammar-en-hi: the configuration of the demo, trained longer, on the built-in corpus only.

    python recipes/bundled.py                 # about a quarter of an hour on two cores
    python recipes/bundled.py --calibrate     # only fits the confidence threshold of the existing model again

Adds the scores on the built-in test sets to the packed model, and as many training snapshots as fit into four megabytes.
"""

import argparse
import json
import os
import tempfile
from dataclasses import asdict
from pathlib import Path

from calibrate import calibrate
from demo import evaluate
from pack import pack

from seq2see.api import load
from seq2see.config import DataConfig
from seq2see.course.sample_corpus import TRAINING_PRESET, TRAINING_SETTINGS, corpus_files, load_corpus, write_files
from seq2see.storage.bundled import BUNDLED, GRAMMAR, About
from seq2see.storage.manifest import remove_manifest, write_manifest
from seq2see.train.model_card import card_template
from seq2see.train.start import train

MODEL = BUNDLED / GRAMMAR
ABOUT = About(
    languages=("en", "hi"),
    limits="For the lessons and the demo: it knows only the words and the sentence patterns of the built-in grammar, and "
    "fails on sentences longer than those in it.",
    examples=(
        "I like eating ice-cream",
        "I like eating mangoes",
        "How are you?",
        "We are friends",
        "Congratulations",
        "The boy saw a bank.",
        "I am good",
    ),
    sources=("Built-in grammar",),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--work", type=Path, help="Training directory; by default a temporary one.")
    parser.add_argument("--calibrate", action="store_true", help="Do not train; fit the confidence threshold again.")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        work = options.work or Path(temporary)
        work.mkdir(parents=True, exist_ok=True)
        os.chdir(work)  # keeps absolute paths out of the configuration
        corpus = load_corpus()
        write_files(corpus_files(), Path("data"))
        if options.calibrate:
            _calibrate()
            return
        files = DataConfig(
            src=("data/train.en",), tgt=("data/train.hi",), valid_src=("data/valid.en",), valid_tgt=("data/valid.hi",)
        )
        settings = [f"train.steps={options.steps}", "train.warmup_steps=500", "train.validate_every=1000"]
        train(files, GRAMMAR, preset=TRAINING_PRESET, settings=[*TRAINING_SETTINGS, *settings, "model.dropout=0.05"])
        pack(Path(GRAMMAR), MODEL, ABOUT, max_bytes=3_000_000, snapshot_bytes=4_000_000)
    model = load(MODEL)
    tests = {name: evaluate(model, pairs) for name, pairs in (("test", corpus.test), ("longer", corpus.longer))}
    scores = json.loads((MODEL / "scores.json").read_text()) | {"built_in_corpus": tests}
    remove_manifest(MODEL)
    (MODEL / "scores.json").write_text(json.dumps(scores, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    write_manifest(MODEL)
    with (MODEL / "README.md").open("a", encoding="utf-8") as card:
        card.write("\n## Test scores on the built-in corpus\n\n")
        card.write("| | sentences | exact match | BLEU | chrF++ |\n|---|---|---|---|---|\n")
        for name, row in tests.items():
            card.write(f"| {name} | {row['sentences']:,} | {row['exact_match']}% | {row['bleu']} | {row['chrf']} |\n")
        card.write(
            "\nGreedy decoding. Exact match: the translation equals one of the references. "
            "Made by `python recipes/bundled.py`.\n"
        )
    print(json.dumps(tests))


def _calibrate() -> None:
    template = card_template()
    section = "".join(template.blocks["confidence"](template.new_context({"calibration": asdict(calibrate(MODEL))})))
    card = MODEL / "README.md"
    before, heading, after = card.read_text(encoding="utf-8").partition("\n\n## Model\n")
    before = before.partition("\n\n## Confidence\n")[0]
    card.write_text(f"{before}\n\n{section.rstrip()}{heading}{after}", encoding="utf-8")
    print(section)


if __name__ == "__main__":
    main()
