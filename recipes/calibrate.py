"""Adds the known words and the confidence threshold to an older model directory, from the data files in its config.toml.

python recipes/calibrate.py runs/en-hi
"""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from seq2see.data.corpus import media_kind, open_pairs, validation_pairs
from seq2see.data.split import PairSplit
from seq2see.evaluate.metrics import sentence_scores
from seq2see.storage.directory import load_pipeline
from seq2see.storage.manifest import remove_manifest, write_manifest
from seq2see.tensors.files import atomic_write
from seq2see.train.calibration import Calibration, fit_threshold, store_known_words
from seq2see.train.validation import translate_sources


def calibrate(folder: Path) -> Calibration:
    model = load_pipeline(folder)
    count = sum(1 for _ in open_pairs(model.config.data))
    data = model.config.data
    split = PairSplit(open_pairs(data), validation_pairs(data), count, media_kind(data) is not None)
    valid = split.valid()
    found = translate_sources(model.network, [model.encode_source(source) for source, _ in valid], model.tokenizers[1])
    chrf = sentence_scores([model.text(best) for best in found], [[reference] for _, reference in valid])
    calibration = fit_threshold([best.confidence for best in found], chrf)
    scores: dict[str, Any] = {**model.scores, "confidence": asdict(calibration)}
    remove_manifest(folder)
    if model.config.model.source == "tokens":
        store_known_words(folder, (source for source, _ in split.train()), model.tokenizers[0])
    with atomic_write(folder / "scores.json") as part:
        part.write_text(json.dumps(scores, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    write_manifest(folder)
    return calibration


if __name__ == "__main__":
    print(calibrate(Path(sys.argv[1])))
