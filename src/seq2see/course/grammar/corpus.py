"""The corpus: sentences drawn, shared out among training, validation and test, and written to files.

A sentence belongs to the set its facts (subject, verb, object) fall to, by a seeded hash, so the sets have no fact in common;
validation and test keep only sentences whose every word occurs in training. "Longer" has more words, in both languages,
than any training sentence.
"""

import json
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from zlib import crc32

from seq2see.course.grammar import english, hindi_clauses
from seq2see.course.grammar.ambiguities import Reading, every_reading
from seq2see.course.grammar.lexicon import linked, of_kind, rows
from seq2see.course.grammar.meaning import Fact, Meaning, Word, facts, links
from seq2see.course.grammar.paraphrases import alike
from seq2see.course.grammar.sentences import draw, draw_longer
from seq2see.errors import UserError
from seq2see.files import written_whole
from seq2see.text.word_spans import MARKS, words

# The most words, marks included, of an English and of a Hindi sentence in training, validation and test.
LONGEST = (10, 11)
FEWEST_PAIRS = 1000
# A word is known when training has it so many times in 30,000 pairs.
KNOWN = 20
# The share of facts kept for validation, and as much for the test.
HELD_OUT = 0.08
# A greeting has so many words at most.
GREETING = 3
# A new sentence is found within that many draws, or the grammar is exhausted.
PATIENCE = 20000


@dataclass(frozen=True)
class Pair:
    source: str
    target: str
    references: tuple[str, ...]  # every right translation, the target first; in training only the target
    alignment: tuple[tuple[int, int], ...]  # positions in words(source) and words(target)
    facts: tuple[Fact, ...] = ()  # subject, verb and object of each clause


@dataclass(frozen=True)
class Sample:
    train: list[Pair]
    valid: list[Pair]
    test: list[Pair]
    longer: list[Pair]


def sample(pairs: int = 30000, seed: int = 1) -> Sample:
    """The corpus with that many training pairs. The same seed gives the same corpus on any machine."""
    if pairs < FEWEST_PAIRS:
        raise UserError(f"{pairs} pairs are too few to show every word in training: ask for at least {FEWEST_PAIRS}")
    fixed = list(_fixed_pairs())
    reserved = {fact for pair in fixed for fact in pair.facts}

    def share(fact: Fact) -> str:
        number = crc32(f"{seed} {fact}".encode()) / 2**32
        held_out = "valid" if number < HELD_OUT else "test" if number < 2 * HELD_OUT else "train"
        return "train" if fact in reserved else held_out

    maker = _Maker(Random(f"seq2see {seed}"), share, {pair.source for pair in fixed})
    train = fixed + [maker.pair("train", _short) for _ in range(pairs - len(fixed))]
    times = Counter(word for pair in train for side in (pair.source, pair.target) for word in words(side))
    known = {word for word, count in times.items() if count >= max(1, min(KNOWN, KNOWN * pairs // 30000))}
    longest = [
        max(len(words(side)) for side in sides) for sides in zip(*((p.source, p.target) for p in train), strict=True)
    ]

    def familiar(source: list[Word], target: list[Word]) -> bool:
        return all(word.text in known for word in (*source, *target))

    def longer(source: list[Word], target: list[Word]) -> bool:
        return len(source) > longest[0] and len(target) > longest[1] and familiar(source, target)

    def fits(source: list[Word], target: list[Word]) -> bool:
        return _short(source, target) and familiar(source, target)

    held_out = max(1, pairs // 30)
    return Sample(
        train,
        valid=[maker.pair("valid", fits) for _ in range(held_out)],
        test=[maker.pair("test", fits) for _ in range(held_out)],
        longer=[maker.pair("longer", longer) for _ in range(max(1, pairs // 60))],
    )


class _Maker:
    """Draws sentences that were not there before, each for the set that its facts belong to."""

    def __init__(self, rng: Random, share: Callable[[Fact], str], seen: set[str]) -> None:
        self.rng, self.share, self.seen = rng, share, seen
        self.tested: set[Fact] = set()
        self.waiting: dict[str, deque[_Drawn]] = {"train": deque(), "valid": deque(), "test": deque()}

    def pair(self, name: str, fits: Callable[[list[Word], list[Word]], bool]) -> Pair:
        for _ in range(PATIENCE):
            drawn = self._drawn(name)
            if drawn is None or (name in ("valid", "test") and self.tested.intersection(drawn.facts)):
                continue  # one test sentence a fact, or narrow constructions would crowd the test
            source = english.sentence(drawn.meaning)
            text = join(source)
            if text in self.seen:
                continue
            target = hindi_clauses.sentence(drawn.meaning, Reading(rng=self.rng))
            if not fits(source, target):
                continue
            self.seen.add(text)
            self.tested.update(drawn.facts if name != "train" else ())
            made = join(target)
            right = (made,) if name == "train" else references(drawn.meaning, made)
            return Pair(text, made, right, links(source, target), drawn.facts)
        raise UserError(f"no new {name} sentence in {PATIENCE} draws after {len(self.seen)}: ask for fewer pairs")

    def _drawn(self, name: str) -> "_Drawn | None":
        """A meaning for that set; what is drawn for another is kept for it."""
        if name == "longer":
            meaning = draw_longer(self.rng, lambda fact: self.share(fact) == "train")
            return _Drawn(meaning, facts(meaning))
        if self.waiting[name]:
            return self.waiting[name].popleft()
        chance = self.rng.random()
        aim = "valid" if chance < HELD_OUT else "test" if chance < 2 * HELD_OUT else "train"
        meaning = draw(self.rng, lambda fact: self.share(fact) == aim)
        drawn = _Drawn(meaning, facts(meaning))
        shares = {self.share(fact) for fact in drawn.facts}
        if shares == {name}:
            return drawn
        if len(shares) == 1:
            self.waiting[shares.pop()].append(drawn)
        return None


@dataclass(frozen=True)
class _Drawn:
    meaning: Meaning
    facts: tuple[Fact, ...]


def references(meaning: Meaning, target: str) -> tuple[str, ...]:
    """Every right translation, the target first."""
    right = [target]
    for same in alike(meaning):
        right += (join(words) for words in every_reading(partial(hindi_clauses.sentence, same)))
    return tuple(dict.fromkeys(right))


def _short(source: list[Word], target: list[Word]) -> bool:
    return len(source) <= LONGEST[0] and len(target) <= LONGEST[1]


def join(parts: list[Word]) -> str:
    """Words to text, marks without a space before them."""
    text = parts[0].text
    for word in parts[1:]:
        text += word.text if word.text in MARKS else f" {word.text}"
    return text


def _fixed_pairs() -> Iterator[Pair]:
    """The sentences of the notes and the greetings, with and without their final mark; and greetings to somebody, since
    no model learns a sentence from seeing it twice.
    """
    for row in rows("notes.txt", width=2):
        source = tuple(words(row.cell(0)))
        target = linked(row, source, row.cell(1))
        alignment = tuple(sorted((i, j) for j, (_, numbers) in enumerate(target) for i in numbers))
        fact = tuple(part.strip() for part in row.cell(4).split(","))
        if len(fact) not in (1, 3):
            raise row.fault(f'"{row.cell(4)}" is not a subject, a verb and an object')
        stated = ((fact[0], fact[1], fact[2]),) if len(fact) == 3 else ()
        hindi_text = join([Word(text) for text, _ in target])
        others = [other.strip() for other in row.cell(3).split("~") if other.strip()]
        ends = [("", ""), (row.cell(2), "।" if row.cell(2) == "." else row.cell(2))]
        for mark, danda in ends if row.cell(2) else ends[:1]:
            end = ((len(source), len(target)),) if mark else ()
            right = tuple(text + danda for text in (hindi_text, *others))
            yield Pair(row.cell(0) + mark, hindi_text + danda, right, alignment + end, stated)
        if stated or len(source) > GREETING or not row.cell(2):
            continue
        for name in of_kind("first-name"):
            called = tuple((len(source) + i, len(target) + i) for i in range(3))  # comma, name, mark
            right = tuple(f"{text}, {name.hindi[0]}{danda}" for text in (hindi_text, *others))
            yield Pair(f"{row.cell(0)}, {name.english}{mark}", right[0], right, alignment + called)


def write(sample: Sample, folder: Path) -> None:
    """Each set as text, alignments and, where there are several, all right translations; nothing half-written.

    A file that is already there with other content is an error, not overwritten.
    """
    contents = {name: content.encode() for name, content in _contents(sample).items()}
    for name, content in contents.items():
        path = folder / name
        if path.exists() and path.read_bytes() != content:
            raise UserError(f"{path} is already there with other content: remove it, or choose another folder")
    try:
        for name, content in contents.items():
            with written_whole(folder / name) as temporary:
                temporary.write_bytes(content)
    except OSError as error:
        raise UserError(f"cannot write into {folder}: {error.strerror or error}; choose another folder") from error


def _contents(sample: Sample) -> dict[str, str]:
    sets = {"train": sample.train, "valid": sample.valid, "test": sample.test, "longer": sample.longer}
    contents = {"README.md": _readme(sets)}
    for name, pairs in sets.items():
        contents[f"{name}.en"] = _lines(pair.source for pair in pairs)
        contents[f"{name}.hi"] = _lines(pair.target for pair in pairs)
        contents[f"{name}.align"] = _lines(" ".join(f"{i}-{j}" for i, j in pair.alignment) for pair in pairs)
        if name != "train":
            rows = ({"source": pair.source, "references": pair.references} for pair in pairs)
            contents[f"{name}.jsonl"] = _lines(json.dumps(row, ensure_ascii=False) for row in rows)
    return contents


def _lines(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _readme(sets: dict[str, list[Pair]]) -> str:
    table = "\n".join(f"| {name} | {len(pairs):,} | {_size(pairs)} |" for name, pairs in sets.items())
    return README.format(table=table)


def _size(pairs: list[Pair]) -> str:
    sides = [[words(pair.source) for pair in pairs], [words(pair.target) for pair in pairs]]
    distinct = [len({word for sentence in side for word in sentence}) for side in sides]
    longest = [max(len(sentence) for sentence in side) for side in sides]
    return f"{distinct[0]:,} / {distinct[1]:,} | {longest[0]} / {longest[1]}"


README = """# An English–Hindi corpus, made by a grammar

Written by `seq2see data sample`. Licence: Apache-2.0, as seq2see itself.

| set | pairs | different words, English / Hindi | words in the longest |
|---|---|---|---|
{table}

`X.en` and `X.hi` are parallel, one sentence a line. `X.align` has the gold word alignment of each line as `i-j`: word i of the
English line stands for word j of the Hindi one, counted from 0 after commas and final marks (. , ? ! ।) are split off as
words of their own. `X.jsonl` has every right translation of each sentence, the one of `X.hi` first: English leaves open
whether "you" is तू, तुम or आप and whether "I" is a man or a woman.

No fact (subject, verb, object) of valid and test stands in train, though all their words do; the sentences of longer have
more words than any in train.
"""
