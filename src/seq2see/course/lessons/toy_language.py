"""A toy language in which every sentence can be reversed: who did what to whom, and when.

    yesterday Nithish killed lion       कल नितीश ने शेर को मारा
    yesterday lion killed Nithish       कल शेर ने नितीश को मारा

Articles are omitted, as in the notes, so a sentence and its mirror consist of the same words. A small model learns it in
seconds; the built-in corpus (`seq2see.course.sample_corpus`) takes minutes.
"""

from dataclasses import dataclass
from itertools import combinations, product
from random import Random

# Nouns whose Hindi form does not change before ने and को, so subject and object can be exchanged.
NOUNS = {
    "Nithish": "नितीश", "Sita": "सीता", "Ravi": "रवि", "Meera": "मीरा", "lion": "शेर", "tiger": "बाघ", "bear": "भालू",
    "elephant": "हाथी", "monkey": "बंदर", "king": "राजा", "farmer": "किसान", "doctor": "डॉक्टर", "thief": "चोर",
    "soldier": "सैनिक",
}  # fmt: skip
# The simple past and the compound (completive) past: both translate the English past.
VERBS = {
    "killed": ("मारा", "मार डाला"),
    "saw": ("देखा", "देख लिया"),
    "caught": ("पकड़ा", "पकड़ लिया"),
    "recognised": ("पहचाना", "पहचान लिया"),
    "called": ("बुलाया", "बुला लिया"),
    "saved": ("बचाया", "बचा लिया"),
    "stopped": ("रोका", "रोक लिया"),
    "woke": ("जगाया", "जगा दिया"),
}
TIMES = {"": "", "yesterday": "कल", "today": "आज"}


@dataclass(frozen=True)
class Sentence:
    """A sentence in both languages."""

    subject: str
    verb: str
    object: str
    time: str = ""

    @property
    def english(self) -> str:
        return f"{self.time} {self.subject} {self.verb} {self.object}".strip()

    @property
    def hindi(self) -> str:
        """The canonical translation: time, subject, object, verb."""
        return self.references[0]

    @property
    def references(self) -> tuple[str, ...]:
        """All correct translations: either past, and the time first or directly before the verb."""
        time, nouns = TIMES[self.time], f"{NOUNS[self.subject]} ने {NOUNS[self.object]} को"
        starts = (f"{time} {nouns}", f"{nouns} {time}") if time else (nouns,)
        return tuple(f"{start} {verb}" for start in starts for verb in VERBS[self.verb])

    @property
    def mirror(self) -> "Sentence":
        """The same sentence with subject and object exchanged."""
        return Sentence(self.object, self.verb, self.subject, self.time)

    def at(self, time: str) -> "Sentence":
        return Sentence(self.subject, self.verb, self.object, time)


EXAMPLE = Sentence("Nithish", "killed", "lion")  # from the notes, as is its mirror


@dataclass(frozen=True)
class ToyCorpus:
    """Training and test sentences. No verb occurs with the same two nouns in both, in either order and at any time."""

    train: list[Sentence]
    test: list[Sentence]  # each followed by its mirror; `EXAMPLE` first


def toy_corpus(seed: int, train: int = 3000, test: int = 100) -> ToyCorpus:
    """Draws sentences from the 4,368 possible ones."""
    random = Random(seed)
    events = [Sentence(a, verb, b) for (a, b), verb in product(combinations(NOUNS, 2), VERBS)]
    random.shuffle(events)
    events.sort(key=lambda event: EXAMPLE not in (event, event.mirror))  # stable: the rest stays shuffled
    held_out, learned = events[: test // 2], events[test // 2 :]
    times = ["", *random.choices(list(TIMES), k=len(held_out) - 1)]
    tested = [event.at(time) for event, time in zip(held_out, times, strict=True)]
    candidates = [s for event, time in product(learned, TIMES) for s in (event.at(time), event.at(time).mirror)]
    return ToyCorpus(random.sample(candidates, train), [s for sentence in tested for s in (sentence, sentence.mirror)])
