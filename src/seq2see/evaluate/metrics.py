"""The metrics of translations and of recognised text, and the table that a new one is added to.

BLEU, chrF++ and TER are all computed by sacreBLEU: the only place where seq2see computes them.
Each score of sacreBLEU carries its signature, which makes it comparable with published scores, and a 95% confidence interval
from bootstrap resampling of the test set. `METRICS` has all metrics as functions of translations and references: a new one is
an entry there, or an entry point of another package. `seq2see evaluate` reports it, and `train.metric` may name it.
"""

import unicodedata
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from operator import itemgetter
from typing import Any

from sacrebleu.metrics.base import Metric as SacreBleuMetric
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER
from sacrebleu.significance import PairedTest

from seq2see.config.extensions import extension_names, load_extension
from seq2see.errors import UsageError, UserError, did_you_mean

BLEU_TOKENIZER = "intl"  # sacreBLEU's default tokenizer does not split the danda
RESAMPLES = 1000
# sacreBLEU holds all resampled statistics in memory: 100 kB per sentence.
MAX_RESAMPLED = 10_000

References = Sequence[Sequence[str]]  # the references of each sentence


@dataclass(frozen=True)
class Metric:
    """A score of all translations of a test set."""

    name: str  # in tables, where no other metric may have it
    compute: Callable[[Sequence[str], References], float]
    is_share: bool = False  # from 0 to 1, reported in percent; others are in points of 100
    error_rate: bool = False  # lower is better
    listed: bool = True  # among the scores of an evaluation; others have a field of their own there


@dataclass(frozen=True)
class Score:
    name: str
    value: float
    signature: str
    mean: float | None = None  # over the resampled test sets
    interval: float | None = None  # 95% confidence interval: mean ± interval


@dataclass(frozen=True)
class SystemComparison:
    """One metric for two systems, with p-values of the difference."""

    name: str
    system: float
    baseline: float
    p_bootstrap: float
    p_randomization: float


class _ChrF(CHRF):
    """chrF without a bug of sacreBLEU 2.6: resampled scores of 0 are Python's, others NumPy's, and have no mean together."""

    def _compute_score_from_stats(self, stats: list[int]) -> Any:
        return super()._compute_score_from_stats([int(count) for count in stats])


def bleu_and_chrf(tokenize: str = BLEU_TOKENIZER, references: References | None = None) -> dict[str, SacreBleuMetric]:
    """Returns the two metrics. With `references` they keep the n-gram counts of these, which take most of the time."""
    if tokenize not in BLEU.TOKENIZERS:
        raise UsageError(f'BLEU has no tokenizer "{tokenize}": {did_you_mean(tokenize, BLEU.TOKENIZERS)}')
    streams = None if references is None else _streams(references)
    try:
        bleu = BLEU(tokenize=tokenize, references=streams)
    except (ImportError, RuntimeError) as error:  # some tokenizers need an extra package or download
        raise UsageError(f"--tokenize {tokenize}: {' '.join(str(error).split())}") from error
    return {"BLEU": bleu, "chrF++": _ChrF(word_order=2, references=streams)}


def all_metrics(tokenize: str = BLEU_TOKENIZER) -> dict[str, SacreBleuMetric]:
    return {**bleu_and_chrf(tokenize), "TER": TER()}


def score(
    translations: Sequence[str], references: References | None, metrics: dict[str, SacreBleuMetric], resamples: int = 0
) -> list[Score]:
    """Returns the corpus scores of a set of translations; without `references`, against those of the metrics."""
    if len(translations) > MAX_RESAMPLED:
        resamples = 0
    streams = None if references is None else _streams(references)
    scores = []
    for name, metric in metrics.items():
        result = metric.corpus_score(list(translations), streams, n_bootstrap=max(resamples, 1))
        mean, interval = (float(result._mean), float(result._ci)) if resamples > 1 else (None, None)
        scores.append(Score(name, result.score, str(metric.get_signature()), mean, interval))
    return scores


def compare_systems(
    translations: Sequence[str], baseline: Sequence[str], references: References, metrics: dict[str, SacreBleuMetric]
) -> list[SystemComparison]:
    """Scores both systems and runs two paired significance tests: bootstrap and approximate randomisation."""
    if len(translations) > MAX_RESAMPLED:
        raise UserError(
            f"significance tests take at most {MAX_RESAMPLED:,} sentences, not {len(translations):,}: use a subset"
        )
    systems: list[tuple[str, Sequence[str]]] = [("baseline", list(baseline)), ("system", list(translations))]
    results = []
    for test in ("bs", "ar"):
        # Keyed by sacreBLEU's names, in the order of `metrics`.
        _, by_metric = PairedTest(systems, metrics, _streams(references), test_type=test)()
        results.append([scores for name, scores in by_metric.items() if name != "System"])
    return [
        SystemComparison(name, bootstrap[1].score, bootstrap[0].score, bootstrap[1].p_value, randomization[1].p_value)
        for name, bootstrap, randomization in zip(metrics, *results, strict=True)
    ]


def sentence_scores(translations: Sequence[str], references: References) -> list[float]:
    """Returns the chrF++ of each sentence; with several references, the highest."""
    return [score for score, _ in closest_references(translations, references)]


def closest_references(translations: Sequence[str], references: References) -> list[tuple[float, str]]:
    """Returns the chrF++ of each sentence, and the reference that is closest to it by chrF++."""
    chrf, found = CHRF(word_order=2), []
    for text, options in zip(translations, references, strict=True):
        scores = [chrf.sentence_score(text, [option]).score for option in options]
        found.append(max(zip(scores, options, strict=True), key=itemgetter(0)))
    return found


def _streams(references: References) -> list[list[Any]]:
    """Transposes to sacreBLEU's form: all first references, all second ones, …; None where a sentence has fewer."""
    return [list(stream) for stream in zip_longest(*references)]


def other_scores(translations: Sequence[str], references: References) -> list[Score]:
    """Returns the scores by the metrics that are not sacreBLEU's."""
    metrics: list[Metric] = [load_extension("metrics", name) for name in extension_names("metrics")]
    (name, count), *_ = Counter(each.name for each in metrics).most_common(1)
    if count > 1:
        raise UserError(f'{count} metrics are called "{name}": rename those of other packages (seq2see.metrics)')
    others = [each for each in metrics if each.name not in SACREBLEU and each.listed]
    return [
        Score(each.name, (100 if each.is_share else 1) * each.compute(translations, references), "") for each in others
    ]


@dataclass(frozen=True)
class RecognitionScores:
    """Shares from 0 to 1; an error rate can exceed 1."""

    exact_match: float
    character_error_rate: float  # insertions, deletions and substitutions per character of the references
    word_error_rate: float

    def __str__(self) -> str:
        return f"exact {self.exact_match:.1%}  CER {self.character_error_rate:.1%}  WER {self.word_error_rate:.1%}"


def recognition_scores(texts: Sequence[str], references: Sequence[str]) -> RecognitionScores:
    """Compares texts with their references; spaces count as one, and none at the ends."""
    rows = [[reference] for reference in references]
    return RecognitionScores(exact_match(texts, rows), character_error_rate(texts, rows), word_error_rate(texts, rows))


def exact_match(texts: Sequence[str], references: References) -> float:
    """Returns the share of texts that are identical to one of their references, after NFC; spaces count as one."""
    matches = sum(_normalize(text) in map(_normalize, row) for text, row in zip(texts, references, strict=True))
    return matches / max(len(references), 1)


def _normalize(text: str) -> str:
    return unicodedata.normalize("NFC", " ".join(text.split()))


def word_error_rate(texts: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    """Returns the edits per word of the first reference of each text."""
    pairs = [(text.split(), row[0].split()) for text, row in zip(texts, references, strict=True)]
    return _error_rate(pairs)


def character_error_rate(texts: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    pairs = [(" ".join(text.split()), " ".join(row[0].split())) for text, row in zip(texts, references, strict=True)]
    return _error_rate(pairs)


def _error_rate(pairs: Sequence[tuple[Sequence[Hashable], Sequence[Hashable]]]) -> float:
    edits = sum(edit_distance(text, reference) for text, reference in pairs)
    return edits / max(sum(len(reference) for _, reference in pairs), 1)


def edit_distance(a: Sequence[Hashable], b: Sequence[Hashable]) -> int:
    """Returns the smallest number of insertions, deletions and substitutions that turn one sequence into the other."""
    distances = list(range(len(b) + 1))  # from the first i items of a to the first j of b
    for i, x in enumerate(a, 1):
        diagonal, distances[0] = distances[0], i
        for j, y in enumerate(b, 1):
            best = min(diagonal + (x != y), distances[j] + 1, distances[j - 1] + 1)
            diagonal, distances[j] = distances[j], best
    return distances[-1]


def _sacrebleu(name: str) -> Callable[[Sequence[str], References], float]:
    return lambda translations, references: score(translations, references, {name: all_metrics()[name]})[0].value


SACREBLEU = ("BLEU", "chrF++", "TER")
METRICS = {
    "bleu": Metric("BLEU", _sacrebleu("BLEU")),
    "chrf": Metric("chrF++", _sacrebleu("chrF++")),
    "ter": Metric("TER", _sacrebleu("TER"), error_rate=True),
    "exact": Metric("exact match", exact_match, is_share=True, listed=False),
    "cer": Metric("character error rate", character_error_rate, is_share=True, error_rate=True, listed=False),
    "wer": Metric("word error rate", word_error_rate, is_share=True, error_rate=True, listed=False),
}
