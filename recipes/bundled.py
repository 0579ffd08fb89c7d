"""Trains the bundled model: the configuration of the demo, trained longer, on the built-in corpus only.

    python recipes/bundled.py                 # about a quarter of an hour on two cores
    python recipes/bundled.py --calibrate     # only fits the confidence threshold of the existing model again

Writes to src/seq2see/bundled: bf16 weights, tokenizers, configuration, scores on the built-in test sets, model card, log, and
as many 4-bit training snapshots as fit into four megabytes.
"""

import argparse
import json
import os
import shutil
import tempfile
from dataclasses import asdict
from pathlib import Path

import torch
from safetensors.torch import load_file

from seq2see.api import load
from seq2see.config import DataConfig
from seq2see.course.grammar import generate_corpus, write_corpus
from seq2see.demo import SETTINGS, evaluate
from seq2see.directory import BUNDLED, save_weights, snapshot_file, snapshots
from seq2see.manifest import write_manifest
from seq2see.quantize import quantize
from seq2see.train.calibration import calibrate
from seq2see.train.model_card import confidence_section
from seq2see.train.run import train

MODEL_BYTES, SNAPSHOT_BYTES = 3_000_000, 4_000_000
FILES = ("config.toml", "tokenizer.json", "source.json", "words.txt", "README.md", "log.jsonl")


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
        corpus = generate_corpus()
        write_corpus(corpus, Path("data"))
        if options.calibrate:
            _calibrate()
            return
        files = DataConfig(
            src=("data/train.en",), tgt=("data/train.hi",), valid_src=("data/valid.en",), valid_tgt=("data/valid.hi",)
        )
        settings = [f"train.steps={options.steps}", "train.warmup_steps=500", "train.validate_every=1000"]
        train(files, "bundled", preset="tiny", settings=[*SETTINGS, *settings, "model.dropout=0.05"])
        _pack(Path("bundled"))
        write_manifest(BUNDLED)
    model = load()
    tests = {name: evaluate(model, pairs) for name, pairs in (("test", corpus.test), ("longer", corpus.longer))}
    scores = json.loads((BUNDLED / "scores.json").read_text()) | {"built_in_corpus": tests}
    (BUNDLED / "scores.json").write_text(json.dumps(scores, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    with (BUNDLED / "README.md").open("a", encoding="utf-8") as card:
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
    section = "\n".join(confidence_section({"confidence": asdict(calibrate(BUNDLED))}))
    card = BUNDLED / "README.md"
    before, heading, after = card.read_text(encoding="utf-8").partition("\n\n## Model\n")
    before = before.partition("\n\n## Confidence\n")[0]
    card.write_text(f"{before}\n{section}{heading}{after}", encoding="utf-8")
    print(section)


def _pack(run: Path) -> None:
    shutil.rmtree(BUNDLED, ignore_errors=True)
    BUNDLED.mkdir()
    for name in FILES:
        if (run / name).is_file():
            shutil.copy(run / name, BUNDLED / name)
    shutil.copy(run / "scores.json", BUNDLED / "scores.json")
    save_weights(BUNDLED / "model.safetensors", load_file(run / "model.safetensors"), torch.bfloat16)
    size = sum(file.stat().st_size for file in BUNDLED.iterdir())
    if size > MODEL_BYTES:
        raise SystemExit(f"{BUNDLED} has {size:,} bytes, but the maximum is {MODEL_BYTES:,}")
    left = SNAPSHOT_BYTES
    for step in snapshots(run)[-2::-2]:  # every second, skipping the last, which is nearly the final model
        file = snapshot_file(BUNDLED, step)
        save_weights(file, quantize(load_file(snapshot_file(run, step))), None)
        left -= file.stat().st_size
        if left < 0:
            file.unlink()
            break


if __name__ == "__main__":
    main()
