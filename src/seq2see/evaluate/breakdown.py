"""Where a translator is weak: scores by sentence length, and word recall by frequency in the training data.

A word is a token of BLEU's tokenizer: punctuation marks count as words, and `--tokenize` handles scripts without spaces.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from sacrebleu.metrics.bleu import BLEU

from seq2see.evaluate.metrics import BLEU_TOKENIZER, References, bleu_and_chrf, score

LENGTH_STARTS = (1, 5, 8, 11, 16, 21, 31, 51)  # lower bounds of the buckets, in words of the reference
FREQUENCY_STARTS = (0, 1, 2, 5, 10, 100, 1000)  # lower bounds of the buckets, in occurrences in the training data

Tokenize = Callable[[str], list[str]]


@dataclass(frozen=True)
class LengthBucket:
    low: int
    high: int | None  # inclusive; None: unbounded
    sentences: int
    bleu: float
    chrf: float
    length_ratio: float  # words of the translations / words of the references; below 1, something is left out


@dataclass(frozen=True)
class FrequencyBucket:
    low: int
    high: int | None
    words: int  # in the references
    matched: int  # of these, present in the translation
    recall: float  # matched / words


def word_tokenizer(tokenize: str = BLEU_TOKENIZER) -> Tokenize:
    metric = bleu_and_chrf(tokenize)["BLEU"]
    assert isinstance(metric, BLEU)
    return lambda text: metric.tokenizer(text.rstrip()).split()


def scores_by_length(
    translations: Sequence[str], references: References, tokenize: str = BLEU_TOKENIZER
) -> tuple[LengthBucket, ...]:
    """Computes BLEU and chrF++ for each range of sentence lengths; the length is that of the first reference."""
    split = word_tokenizer(tokenize)
    lengths = [len(split(row[0])) for row in references]
    members: dict[int, list[int]] = {}
    for i, length in enumerate(lengths):
        members.setdefault(max(bisect_right(LENGTH_STARTS, length) - 1, 0), []).append(i)
    buckets = []
    for bucket, indices in sorted(members.items()):
        hypotheses = [translations[i] for i in indices]
        bleu, chrf = score(hypotheses, [references[i] for i in indices], bleu_and_chrf(tokenize))
        words = sum(len(split(text)) for text in hypotheses)
        ratio = words / max(sum(lengths[i] for i in indices), 1)
        low, high = _bounds(LENGTH_STARTS, bucket)
        buckets.append(LengthBucket(low, high, len(indices), bleu.value, chrf.value, ratio))
    return tuple(buckets)


def recall_by_frequency(
    translations: Sequence[str], references: Sequence[str], frequencies: Mapping[str, int], split: Tokenize
) -> tuple[FrequencyBucket, ...]:
    """Computes the share of reference words that the translation contains, for each range of word frequencies.

    There is one reference per translation. A word that occurs twice in the reference matches twice only if the translation
    contains it twice as well.
    """
    words: Counter[int] = Counter()
    matched: Counter[int] = Counter()
    for translation, reference in zip(translations, references, strict=True):
        available = Counter(split(translation))
        for word, count in Counter(split(reference)).items():
            bucket = bisect_right(FREQUENCY_STARTS, frequencies.get(word, 0)) - 1
            words[bucket] += count
            matched[bucket] += min(count, available[word])
    return tuple(
        FrequencyBucket(*_bounds(FREQUENCY_STARTS, bucket), count, matched[bucket], matched[bucket] / count)
        for bucket, count in sorted(words.items())
    )


def count_words(texts: Iterable[str], split: Tokenize) -> Counter[str]:
    cached_split = lru_cache(1 << 14)(lambda text: tuple(split(text)))  # corpora repeat sentences
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(cached_split(text))
    return counts


def _bounds(starts: Sequence[int], bucket: int) -> tuple[int, int | None]:
    return starts[bucket], starts[bucket + 1] - 1 if bucket + 1 < len(starts) else None
