"""Where a translator is weak: scores by the length of sentences, and words got right by how often training had them.

A word here is what BLEU's tokenizer takes for one, so that marks count as words and `--tokenize` decides for scripts
without spaces.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from sacrebleu.metrics.bleu import BLEU

from seq2see.metrics.translation import BLEU_TOKENIZER, References, bleu_and_chrf, score

LENGTHS = (1, 5, 8, 11, 16, 21, 31, 51)  # where bands begin, in words of the reference
FREQUENCIES = (0, 1, 2, 5, 10, 100, 1000)  # where bands begin, in times that training has a word

Words = Callable[[str], list[str]]


@dataclass(frozen=True)
class LengthBand:
    low: int
    high: int | None  # included; None: no end
    sentences: int
    bleu: float
    chrf: float
    ratio: float  # words written for each word of the references: below 1, something is left out


@dataclass(frozen=True)
class FrequencyBand:
    low: int
    high: int | None
    words: int  # of the references
    right: int  # of these, found in the translation too
    recall: float  # right / words


def words_by(tokenize: str = BLEU_TOKENIZER) -> Words:
    metric = bleu_and_chrf(tokenize)["BLEU"]
    assert isinstance(metric, BLEU)
    return lambda text: metric.tokenizer(text.rstrip()).split()


def by_length(
    translations: Sequence[str], references: References, tokenize: str = BLEU_TOKENIZER
) -> tuple[LengthBand, ...]:
    """BLEU and chrF++ of the short sentences, of longer ones, and so on, by the length of the first reference."""
    split = words_by(tokenize)
    lengths = [len(split(right[0])) for right in references]
    members: dict[int, list[int]] = {}
    for i, length in enumerate(lengths):
        members.setdefault(max(bisect_right(LENGTHS, length) - 1, 0), []).append(i)
    bands = []
    for band, chosen in sorted(members.items()):
        made, right = [translations[i] for i in chosen], [references[i] for i in chosen]
        bleu, chrf = score(made, right, bleu_and_chrf(tokenize))
        written = sum(len(split(text)) for text in made)
        low, high = _bounds(LENGTHS, band)
        ratio = written / max(sum(lengths[i] for i in chosen), 1)
        bands.append(LengthBand(low, high, len(chosen), bleu.value, chrf.value, ratio))
    return tuple(bands)


def by_frequency(
    translations: Sequence[str], references: Sequence[str], times: Mapping[str, int], split: Words
) -> tuple[FrequencyBand, ...]:
    """How many words of the references, one for each translation, are in the translation too.

    A word that a reference has twice is right twice only if the translation has it twice as well.
    """
    words: Counter[int] = Counter()
    right: Counter[int] = Counter()
    for made, reference in zip(translations, references, strict=True):
        written = Counter(split(made))
        for word, count in Counter(split(reference)).items():
            band = bisect_right(FREQUENCIES, times.get(word, 0)) - 1
            words[band] += count
            right[band] += min(count, written[word])
    return tuple(
        FrequencyBand(*_bounds(FREQUENCIES, band), count, right[band], right[band] / count)
        for band, count in sorted(words.items())
    )


def frequencies(texts: Iterable[str], split: Words) -> Counter[str]:
    counted = lru_cache(1 << 14)(lambda text: tuple(split(text)))  # corpora say some things often
    times: Counter[str] = Counter()
    for text in texts:
        times.update(counted(text))
    return times


def _bounds(starts: Sequence[int], band: int) -> tuple[int, int | None]:
    return starts[band], starts[band + 1] - 1 if band + 1 < len(starts) else None
