"""Word alignment by cross-attention, scored on gold alignments: German–English (Europarl) and English–French (Hansards).

    python recipes/alignment.py --data DIR --model WORK/tatoeba/de-en-1 --pair de-en [--pairs TRAINING.tsv]

The model reads the gold pair. Every layer's mean, every head, and the heads that align the first half of the gold pairs best
are scored on the second half. With `--pairs`, a statistical aligner (eflomal) is trained on these pairs and the gold ones and
scored alike: `pip install eflomal`. Both can be done at once or one after the other.
"""

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

from pairs import Pair, parallel, read_tsv
from recipe import RESULTS

from seq2see.api import load
from seq2see.data.word_spans import whitespace_spans
from seq2see.evaluate.alignment import GoldPairs, alignment_by_head, alignment_scores, best_heads
from seq2see.inspect.alignment import align_with

GOLD = {"en-fr": ("en-fr/test", "en-fr/alignv2.txt"), "de-en": ("de-en/test.uc", "de-en/alignment.talp")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="directory with alignments/")
    parser.add_argument("--model", type=Path, help="a translator from the first to the second language")
    parser.add_argument("--pair", choices=GOLD, required=True)
    parser.add_argument("--pairs", type=Path, help="TSV file to train the statistical aligner on")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    stem, links = GOLD[options.pair]
    sentences = parallel(options.data / "alignments" / stem, *options.pair.split("-"))
    gold = GoldPairs.read(options.data / "alignments" / links, sentences, whitespace_spans)
    half = len(gold.pairs) // 2
    choice, test = (
        GoldPairs(gold.pairs[part], gold.golds[part], gold.split) for part in (slice(half), slice(half, None))
    )
    error_rates = {}
    if options.model:
        model = load(options.model, options.device)
        for row in alignment_by_head(model, test):
            head = "mean" if row.layer_head.head is None else f"head {row.layer_head.head}"
            error_rates[f"layer {row.layer_head.layer}, {head}"] = row.scores.aer
        heads, _ = best_heads(model, choice)
        error_rates[f"{len(heads)} chosen heads"] = alignment_scores(
            align_with(model, test.pairs, [heads], test.split)[0], test.golds
        ).aer
    if options.pairs:
        found = statistical_alignment([*gold.pairs, *read_tsv(options.pairs)])[half : len(gold.pairs)]
        error_rates["eflomal"] = alignment_scores(found, test.golds).aer
    file = RESULTS / f"alignment-{options.pair}.json"
    recorded = json.loads(file.read_text())["aer"] if file.exists() else {}
    result = {
        "recipe": "alignment",
        "run": options.pair,
        "sentences": len(test.pairs),
        "aer": recorded | {name: round(100 * rate, 1) for name, rate in error_rates.items()},
    }
    RESULTS.mkdir(exist_ok=True)
    file.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result))


def statistical_alignment(pairs: Sequence[Pair]) -> list[list[tuple[int, int]]]:
    """Aligns pairs with eflomal in both directions and returns the links found in both."""
    import eflomal

    with tempfile.TemporaryDirectory() as folder:
        source, target, forward, reverse = (Path(folder) / name for name in ("source", "target", "forward", "reverse"))
        for path, side in ((source, 0), (target, 1)):
            path.write_text("".join(" ".join(pair[side].lower().split()) + "\n" for pair in pairs), encoding="utf-8")
        with source.open() as source_file, target.open() as target_file:
            eflomal.Aligner().align(
                source_file, target_file, links_filename_fwd=str(forward), links_filename_rev=str(reverse)
            )
        both = zip(forward.read_text().splitlines(), reverse.read_text().splitlines(), strict=True)
        return [sorted(_links(one) & _links(other)) for one, other in both]


def _links(line: str) -> set[tuple[int, int]]:
    return {(int(source), int(target)) for source, _, target in (link.partition("-") for link in line.split())}


if __name__ == "__main__":
    main()
