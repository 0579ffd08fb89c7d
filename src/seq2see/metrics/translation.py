"""BLEU, chrF++ and TER, all computed by sacreBLEU: the only place where seq2see computes them.

Each score comes with its signature, so that somebody else's can be compared with it, and with a 95% interval from
resampled test sets: another thousand sentences of the same kind would give another score.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER
from sacrebleu.significance import PairedTest

from seq2see.errors import UsageError, UserError, nearest

BLEU_TOKENIZER = "intl"  # sacreBLEU's default one does not split the danda
RESAMPLES = 1000
# sacreBLEU holds all resampled statistics at once: 100 kB a sentence.
MOST_RESAMPLED = 10_000

References = Sequence[Sequence[str]]  # for each sentence, its right translations


@dataclass(frozen=True)
class Score:
    name: str
    value: float
    signature: str
    mean: float | None = None  # of the resampled test sets
    interval: float | None = None  # 95% of them are within mean ± interval


@dataclass(frozen=True)
class Compared:
    """A score beside another system's, and how likely chance alone would make as large a difference."""

    name: str
    ours: float
    theirs: float
    p_bootstrap: float
    p_randomised: float


def bleu_and_chrf(tokenize: str = BLEU_TOKENIZER) -> dict[str, Metric]:
    if tokenize not in BLEU.TOKENIZERS:
        raise UsageError(f'BLEU has no tokenizer "{tokenize}": {nearest(tokenize, BLEU.TOKENIZERS)}')
    try:
        bleu = BLEU(tokenize=tokenize)
    except (ImportError, RuntimeError) as error:  # some want a package or a download of their own
        raise UsageError(f"--tokenize {tokenize}: {' '.join(str(error).split())}") from error
    return {"BLEU": bleu, "chrF++": CHRF(word_order=2)}


def all_metrics(tokenize: str = BLEU_TOKENIZER) -> dict[str, Metric]:
    return {**bleu_and_chrf(tokenize), "TER": TER()}


def score(
    translations: Sequence[str], references: References, metrics: dict[str, Metric], resamples: int = 0
) -> list[Score]:
    """The scores of a whole set of translations."""
    if len(translations) > MOST_RESAMPLED:
        resamples = 0
    scores = []
    for name, metric in metrics.items():
        found = metric.corpus_score(list(translations), _streams(references), n_bootstrap=max(resamples, 1))
        mean, interval = (float(found._mean), float(found._ci)) if resamples > 1 else (None, None)
        scores.append(Score(name, found.score, str(metric.get_signature()), mean, interval))
    return scores


def compare(
    ours: Sequence[str], theirs: Sequence[str], references: References, metrics: dict[str, Metric]
) -> list[Compared]:
    """Both systems' scores with two paired significance tests: the bootstrap and approximate randomisation."""
    if len(ours) > MOST_RESAMPLED:
        raise UserError(
            f"significance tests take {MOST_RESAMPLED:,} sentences at most, not {len(ours):,}: compare on a part of them"
        )
    systems: list[tuple[str, Sequence[str]]] = [("theirs", list(theirs)), ("ours", list(ours))]
    found = []
    for test in ("bs", "ar"):
        # Named by sacreBLEU's own names, which come in our order.
        _, by_metric = PairedTest(systems, metrics, _streams(references), test_type=test)()
        found.append([results for name, results in by_metric.items() if name != "System"])
    return [
        Compared(name, bootstrap[1].score, bootstrap[0].score, bootstrap[1].p_value, randomised[1].p_value)
        for name, bootstrap, randomised in zip(metrics, *found, strict=True)
    ]


def sentence_scores(translations: Sequence[str], references: References) -> list[float]:
    """chrF++ of each sentence alone; against several references, the best."""
    chrf = CHRF(word_order=2)
    return [chrf.sentence_score(made, list(right)).score for made, right in zip(translations, references, strict=True)]


def nearest_references(translations: Sequence[str], references: References) -> list[str]:
    """Of several right translations, the one that each translation comes nearest to, by chrF++."""
    chrf = CHRF(word_order=2)

    def near(made: str, right: Sequence[str]) -> str:
        return max(right, key=lambda one: chrf.sentence_score(made, [one]).score) if len(right) > 1 else right[0]

    return [near(made, right) for made, right in zip(translations, references, strict=True)]


def _streams(references: References) -> list[list[Any]]:
    """As sacreBLEU takes them: all first references, all second ones, …; None where a sentence has no more."""
    return [list(stream) for stream in zip_longest(*references)]
