"""A little language in which every sentence can be turned round: who did what to whom, and when.

    yesterday Nithish killed lion       कल नितीश ने शेर को मारा
    yesterday lion killed Nithish       कल शेर ने नितीश को मारा

Articles are left out, as in the notes, so that a sentence and its mirror are made of the very same words. A small model
learns it in seconds, which is what a lesson needs; the built-in corpus (`seq2see.course.grammar`) takes minutes.
"""

from dataclasses import dataclass
from itertools import combinations, product
from random import Random

# Words whose Hindi form is the same before ने and को as alone, so that nothing else changes when they change places.
ACTORS = {
    "Nithish": "नितीश", "Sita": "सीता", "Ravi": "रवि", "Meera": "मीरा", "lion": "शेर", "tiger": "बाघ", "bear": "भालू",
    "elephant": "हाथी", "monkey": "बंदर", "king": "राजा", "farmer": "किसान", "doctor": "डॉक्टर", "thief": "चोर",
    "soldier": "सैनिक",
}  # fmt: skip
# The plain past and the compound one, which says that it is done: both translate the English past.
DEEDS = {
    "killed": ("मारा", "मार डाला"), "saw": ("देखा", "देख लिया"), "caught": ("पकड़ा", "पकड़ लिया"),
    "recognised": ("पहचाना", "पहचान लिया"), "called": ("बुलाया", "बुला लिया"), "saved": ("बचाया", "बचा लिया"),
    "stopped": ("रोका", "रोक लिया"), "woke": ("जगाया", "जगा दिया"),
}  # fmt: skip
TIMES = {"": "", "yesterday": "कल", "today": "आज"}


@dataclass(frozen=True)
class Sentence:
    """One sentence, in both languages."""

    subject: str
    deed: str
    object: str
    time: str = ""

    @property
    def english(self) -> str:
        return f"{self.time} {self.subject} {self.deed} {self.object}".strip()

    @property
    def hindi(self) -> str:
        """The plain translation: when, who, whom, what."""
        return self.ways[0]

    @property
    def ways(self) -> tuple[str, ...]:
        """All right translations: with either past, and the time first or right before the verb."""
        time, both = TIMES[self.time], f"{ACTORS[self.subject]} ने {ACTORS[self.object]} को"
        starts = (f"{time} {both}", f"{both} {time}") if time else (both,)
        return tuple(f"{start} {deed}" for start in starts for deed in DEEDS[self.deed])

    @property
    def mirror(self) -> "Sentence":
        """The same words, the other way round."""
        return Sentence(self.object, self.deed, self.subject, self.time)


NOTES = Sentence("Nithish", "killed", "lion")  # the notes' example; its mirror is their second sentence


@dataclass(frozen=True)
class Split:
    """Sentences to learn from, and to be tested on: no deed between the same two is in both, however it is said."""

    train: list[Sentence]
    test: list[Sentence]  # each followed by its mirror; the notes' two come first


def language(seed: int, train: int = 3000, test: int = 100) -> Split:
    """So many sentences, drawn from the 4,368 there are."""
    random = Random(seed)
    stories = [Sentence(a, deed, b) for (a, b), deed in product(combinations(ACTORS, 2), DEEDS)]
    random.shuffle(stories)
    stories.sort(key=lambda story: NOTES not in (story, story.mirror))  # the notes' own first, the rest as shuffled
    held, learnt = stories[: test // 2], stories[test // 2 :]
    times = ["", *random.choices(list(TIMES), k=len(held) - 1)]
    tested = [_at(story, time) for story, time in zip(held, times, strict=True)]
    whole = [said for story, time in product(learnt, TIMES) for said in (_at(story, time), _at(story, time).mirror)]
    return Split(random.sample(whole, train), [said for one in tested for said in (one, one.mirror)])


def _at(story: Sentence, time: str) -> Sentence:
    return Sentence(story.subject, story.deed, story.object, time)
