"""Runs all recipes behind docs/results.md, several at a time: small models leave most of a GPU idle.

    python recipes/all.py --data DIR --work DIR [--device cuda] [--only NAME …]

The recipes of a group run in turn, since later ones use what earlier ones trained; the groups run at the same time. On a GPU,
start NVIDIA's Multi-Process Service first (nvidia-cuda-mps-control -d), or they take turns. Logs are in WORK/logs. A run that
is complete is skipped and one that was stopped is resumed, so the command can be repeated.
"""

import argparse
import shlex
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

RECIPES = Path(__file__).parent
TRAINING, SEEDS = "--data {data} --work {work} {device}", "--seeds 1 2 3"
GROUPS = {
    "translators": [f"translators {TRAINING}", f"ablations {TRAINING}"],
    "captions": [
        f"multi30k {TRAINING} {SEEDS}",
        f"hindi_visual_genome {TRAINING} {SEEDS}",
        f"english_hindi {TRAINING}",
    ],
    "german": [
        f"tatoeba_german {TRAINING}",
        "alignment --data {data} --model {work}/tatoeba/de-en-1 --pair de-en",
    ],
    "characters": [f"transliteration {TRAINING} {SEEDS}", f"language_models {TRAINING} --only shakespeare {SEEDS}"],
    "media": [f"spoken_digits {TRAINING}", f"written_numbers {TRAINING}"],
    "books": [
        f"language_models {TRAINING} --only books",
        f"books_peer {TRAINING} --model {{work}}/language-models/books-1",
    ],
}


def main() -> None:
    command = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    command.add_argument("--data", type=Path, required=True, help="directory with the corpora")
    command.add_argument("--work", type=Path, required=True, help="directory for the trained models")
    command.add_argument("--device", default="")
    command.add_argument(
        "--only", nargs="+", choices=GROUPS, default=list(GROUPS), help="names of groups; by default all"
    )
    options = command.parse_args()
    (options.work / "logs").mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(len(options.only)) as pool:
        complete = list(pool.map(lambda group: run_group(group, options), options.only))
    sys.exit(0 if all(complete) else 1)


def run_group(group: str, options: argparse.Namespace) -> bool:
    """Runs the recipes of a group in turn, until one fails."""
    device = f"--device {options.device}" if options.device else ""
    values = {"data": shlex.quote(str(options.data)), "work": shlex.quote(str(options.work)), "device": device}
    for number, template in enumerate(GROUPS[group], 1):
        recipe, *arguments = shlex.split(template.format(**values))
        log, start = options.work / "logs" / f"{group}-{number}.log", time.monotonic()
        with log.open("w") as file:
            command = [sys.executable, str(RECIPES / f"{recipe}.py"), *arguments]
            status = subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, check=False).returncode
        minutes = (time.monotonic() - start) / 60
        print(f"{group}: {recipe} {'failed' if status else 'complete'} after {minutes:.1f} minutes, {log}", flush=True)
        if status:
            return False
    return True


if __name__ == "__main__":
    main()
