"""What all recipes share: trains each run of a recipe once per seed, tests it, and writes the result to recipes/results.

    python recipes/multi30k.py --data DIR --work DIR [--only NAME …] [--seeds 1 2 3] [--device cuda] [--set KEY=VALUE …]

A run that is complete in the work directory and recorded is skipped, and one that was stopped is resumed. `--set` changes a run
for an ablation; its result is then not recorded. `make results` puts the recorded results into docs/results.md.
"""

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pairs import Pair

from seq2see.api import Model, load
from seq2see.config import DataConfig
from seq2see.data.corpus import MediaKind, open_media
from seq2see.evaluate.metrics import BLEU_TOKENIZER, bleu_and_chrf, recognition_scores, score
from seq2see.train.start import resume, train
from seq2see.translate.translator import one_line

RESULTS = Path(__file__).parent / "results"
MEASURES = (
    "exact_match",
    "bleu",
    "chrf",
    "loss",
)  # the first that a validation has, and that is not 0 throughout, is drawn
Scores = dict[str, float | str]


@dataclass(frozen=True)
class Run:
    """One training of a recipe, and what to compute with the trained model."""

    name: str
    data: DataConfig
    preset: str
    settings: Sequence[str] = ()
    tests: Mapping[str, Callable[[Model], Scores]] = field(default_factory=dict)


def parser(description: str | None) -> argparse.ArgumentParser:
    command = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    command.add_argument("--data", type=Path, required=True, help="directory with the corpora")
    command.add_argument("--work", type=Path, required=True, help="directory for the trained models")
    command.add_argument("--only", nargs="+", help="names of runs; by default all")
    command.add_argument("--seeds", nargs="+", type=int, default=[1])
    command.add_argument("--device", default="")
    command.add_argument("--set", nargs="+", default=[], help="changed settings, for ablations")
    return command


def main(recipe: str, runs: Callable[[Path, Path], Sequence[Run]], description: str | None) -> None:
    options = parser(description).parse_args()
    for run in runs(options.data, options.work / recipe):
        if not options.only or run.name in options.only:
            carry_out(recipe, run, options)


def carry_out(recipe: str, run: Run, options: argparse.Namespace) -> None:
    """Trains and tests a run for each seed, and records the results."""
    for seed in options.seeds:
        out = options.work / recipe / "-".join([run.name, str(seed), *options.set])
        record = RESULTS / f"{recipe}-{run.name}-{seed}.json"
        if not options.set and record.exists() and (out / "scores.json").exists():
            continue
        result = {"recipe": recipe, "run": run.name, "seed": seed, **train_and_test(run, seed, out, options)}
        if not options.set:
            RESULTS.mkdir(exist_ok=True)
            text = json.dumps(result, indent=1, ensure_ascii=False)
            record.write_text(text + "\n", encoding="utf-8")
        print(json.dumps(result | {"curve": None, "changes": options.set}, ensure_ascii=False), flush=True)


def train_and_test(run: Run, seed: int, out: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Trains a run unless it is complete, tests it, and returns the result."""
    if not (out / "scores.json").exists():
        if (out / "config.toml").exists():
            resume(out, device=options.device)
        else:
            settings = [*run.settings, f"train.seed={seed}", *options.set]
            train(run.data, out, preset=run.preset, settings=settings, device=options.device)
    training = json.loads((out / "scores.json").read_text())["training"]
    log = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    model, validations = load(out, options.device or "cpu"), [row for row in log if row["kind"] == "validation"]
    measure = next((key for key in MEASURES if any(row.get(key) for row in validations)), "")
    return {
        "preset": run.preset,
        "settings": list(run.settings),
        "parameters": training["parameters"],
        "steps": training["steps"],
        "minutes": round(training["seconds"] / 60, 1),
        "device": training["device"],
        "torch": training["torch"],
        "scores": {name: test(model) for name, test in run.tests.items()},
        "measure": measure,
        "curve": [[row["step"], row[measure]] for row in validations],
    }


def recognition_test(kind: MediaKind, file: Path) -> Callable[[Model], Scores]:
    """Returns a test that reads the pictures or sounds of a list, greedily, and compares the texts."""

    def test(model: Model) -> Scores:
        pairs = list(open_media([file], kind))
        scores = recognition_scores(model.translate([path for path, _ in pairs]), [text for _, text in pairs])
        exact, errors = (round(100 * rate, 2) for rate in (scores.exact_match, scores.character_error_rate))
        return {"exact": exact, "CER": errors, "sentences": len(pairs)}

    return test


def translate_lines(model: Model, lines: Sequence[str], beam: int) -> list[str]:
    """Translates each line as a whole, as it is trained on; `Model.translate` would split it into sentences."""
    return [one_line(model.text(best)) for best, *_ in model.hypotheses(lines, beam=beam)]


def translation_test(pairs: Sequence[Pair], beam: int = 5, tokenize: str = BLEU_TOKENIZER) -> Callable[[Model], Scores]:
    """Returns a test that translates pairs with beam search and scores the result with sacreBLEU."""

    def test(model: Model) -> Scores:
        found = translate_lines(model, [source for source, _ in pairs], beam)
        scores = score(found, [[target] for _, target in pairs], bleu_and_chrf(tokenize))
        values: Scores = {one.name: round(one.value, 2) for one in scores}
        exact = sum(text == target for text, (_, target) in zip(found, pairs, strict=True)) / len(pairs)
        return values | {"exact": round(100 * exact, 2), "sentences": len(pairs), "signature": scores[0].signature}

    return test
