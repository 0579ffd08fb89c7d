"""Writes docs/results.md from the results that the recipes recorded: `make results`."""

import ast
import json
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib import pyplot as plt

RESULTS = Path(__file__).parent / "results"
DOCS = Path(__file__).parents[1] / "docs"
NOT_SCORES = {"sentences", "signature", "tokens"}
MEASURES = {"bleu": "BLEU", "chrf": "chrF++", "exact_match": "exact matches"}
FILES = {"bundled": "translators", "tatoeba": "tatoeba_german"}  # recipes whose file has another name
INTRODUCTION = """# Results

Every figure on this page was recorded by a recipe in `recipes/`, each of which is one command; `make results` generates the
page and `python recipes/all.py --data DIR --work DIR` runs all recipes. With several seeds, a score is the mean ± standard
deviation. BLEU and chrF++ are computed by sacreBLEU on detokenised text in its original case; beam search has 5 hypotheses.
`exact` is the percentage of outputs that equal the reference. Most recipes shared the GPU with others, so the minutes are upper
bounds.
"""


OTHER_TABLES = ("everyday", "alignment", "ablations")  # recipes whose results are not scores of trainings

Results = dict[str, dict[str, list[dict[str, Any]]]]  # by recipe and run, one per seed


def main() -> None:
    results = read_results()
    text = page(results)
    (DOCS / "results.md").write_text(text, encoding="utf-8")
    for recipe in results.keys() - set(OTHER_TABLES):
        if has_curves(results[recipe]):
            draw(recipe, results[recipe])
    print(text)


def read_results() -> Results:
    results: Results = defaultdict(lambda: defaultdict(list))
    for file in sorted(RESULTS.glob("*.json")):
        result = json.loads(file.read_text(encoding="utf-8"))
        results[result["recipe"]][result["run"]].append(result)
    return results


def page(results: Results) -> str:
    """Renders docs/results.md."""
    everyday, alignment, ablations = (results.get(name, {}) for name in OTHER_TABLES)
    text = INTRODUCTION + "".join(section(name, runs) for name, runs in results.items() if name not in OTHER_TABLES)
    return text + ablation_section(ablations) + everyday_section(everyday) + alignment_section(alignment)


def everyday_section(runs: Mapping[str, Sequence[dict[str, Any]]]) -> str:
    """Renders what the bundled translators make of the everyday sentences, all of them, right or wrong."""
    if not runs:
        return ""
    lines = [
        "\n## everyday\n",
        "Thirty sentences chosen before the first training, with the translations of the bundled models.\n",
    ]
    names = list(runs)
    lines += [f"| English | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    columns = [dict(runs[name][0]["pairs"]) for name in names]
    lines += [f"| {source} | {' | '.join(column[source] for column in columns)} |" for source in columns[0]]
    return "\n".join(lines) + "\n"


def alignment_section(runs: Mapping[str, Sequence[dict[str, Any]]]) -> str:
    """Renders the alignment error rates: the best layer, the best, worst and chosen heads, and a statistical aligner."""
    if not runs:
        return ""
    lines = [
        "\n## alignment\n",
        "Alignment error rate in percent (lower is better) of the cross-attention of the bundled `en-fr`, and of `de-en` of "
        "the recipe tatoeba. Chosen heads align the first half of the gold pairs best; all rates are of the second half. "
        "`recipes/alignment.py`\n",
    ]
    lines += [
        "| pair | sentences | best layer mean | best head | worst head | chosen heads | eflomal |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, (result,) in runs.items():
        rates = result["aer"]
        means, heads = ({k: v for k, v in rates.items() if word in k and "layer" in k} for word in ("mean", "head"))
        best_mean, best, worst = (
            min(means, key=means.__getitem__),
            min(heads, key=heads.__getitem__),
            max(heads, key=heads.__getitem__),
        )
        chosen = next(k for k in rates if "chosen" in k)
        cells = [f"{key}: {rates[key]}" for key in (best_mean, best, worst, chosen)]
        lines.append(
            f"| {name} | {result['sentences']} | {' | '.join(cells)} | {rates.get('eflomal', 'not installed')} |"
        )
    return "\n".join(lines) + "\n"


def ablation_section(runs: Mapping[str, Sequence[dict[str, Any]]]) -> str:
    """Renders the BLEU of each changed model on each test set, the best first."""
    if not runs:
        return ""
    tests = list(runs["as-bundled"][0]["scores"])
    scores = {name: [result["scores"][test]["BLEU"] for test in tests] for name, (result,) in runs.items()}
    lines = ["\n## ablations\n", introduction("ablations"), f"| BLEU | {' | '.join(tests)} | parameters |"]
    lines.append("|---" * (len(tests) + 2) + "|")
    for name in sorted(scores, key=scores.__getitem__, reverse=True):
        cells = [name, *(f"{value:.1f}" for value in scores[name]), f"{runs[name][0]['parameters']:,}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def introduction(recipe: str) -> str:
    """Returns the first paragraph of the recipe's own description, and its file."""
    name = FILES.get(recipe, recipe.replace("-", "_"))
    description = ast.get_docstring(ast.parse((Path(__file__).parent / f"{name}.py").read_text(encoding="utf-8")))
    first, _, _ = (description or "").partition("\n\n")
    return f"{' '.join(first.split())} `recipes/{name}.py`\n"


def section(recipe: str, runs: Mapping[str, Sequence[dict[str, Any]]]) -> str:
    """Renders a table of one recipe's runs, and the training curves."""
    lines = [
        f"\n## {recipe}\n",
        introduction(recipe),
        "| run | test set | scores | sentences or tokens | seeds | parameters | steps | minutes | device |",
    ]
    lines.append("|---|---|---|---|---|---|---|---|---|")
    signatures = set()
    for name, results in runs.items():
        first = results[0]
        for test, scores in first["scores"].items():
            values = {
                key: summarize([result["scores"][test][key] for result in results])
                for key in scores
                if key not in NOT_SCORES
            }
            cells = [
                name,
                test,
                ", ".join(f"{key} {value}" for key, value in values.items()),
                f"{scores.get('sentences', scores.get('tokens', 0)):,}",
                str(len(results)),
                f"{first['parameters']:,}",
                f"{first['steps']:,}",
                summarize([result["minutes"] for result in results]),
                first["device"],
            ]
            lines.append("| " + " | ".join(cells) + " |")
            signatures |= {scores["signature"]} if "signature" in scores else set()
    lines += ["", *(f"`{signature}`" for signature in sorted(signatures))]
    lines += [f"\n![Validation during training](pictures/results-{recipe}.png)"] * has_curves(runs)
    return "\n".join(lines) + "\n"


def has_curves(runs: Mapping[str, Sequence[dict[str, Any]]]) -> bool:
    """Whether there is something to draw: BLEU, for example, is 0 for single words."""
    return any(value for results in runs.values() for result in results for _, value in result["curve"])


def summarize(values: Sequence[float]) -> str:
    if len(values) == 1:
        return f"{values[0]:g}"
    return f"{statistics.mean(values):.2f} ± {statistics.stdev(values):.2f}"


def draw(recipe: str, runs: Mapping[str, Sequence[dict[str, Any]]]) -> None:
    figure, axis = plt.subplots(figsize=(7, 3.2), layout="constrained")
    for number, (name, results) in enumerate(runs.items()):
        for i, result in enumerate(results):
            if not result["curve"]:
                continue
            steps, values = zip(*result["curve"], strict=True)
            axis.plot(steps, values, color=f"C{number}", alpha=0.8, label=name if i == 0 else None)
    measures = {
        MEASURES.get(result["measure"], result["measure"])
        for results in runs.values()
        for result in results
        if result["curve"]
    }
    axis.set(xlabel="steps", ylabel=f"{' or '.join(sorted(measures))} in validation")
    axis.legend(frameon=False, fontsize=8)
    figure.savefig(DOCS / "pictures" / f"results-{recipe}.png", dpi=120)
    plt.close(figure)


if __name__ == "__main__":
    main()
