"""Generates the corpus: samples sentences, assigns them to training, validation and test sets, and writes the files.

A seeded hash assigns every fact (subject, verb, object) to one set, so the sets share no facts; validation and test sets
contain only words that occur in training. The "longer" set has more words, in both languages, than any training sentence.
"""

import json
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from random import Random
from zlib import crc32

from grammar import english, hindi_clauses
from grammar.english_ambiguity import meanings_with_same_english
from grammar.lexicon import of_kind, parse_linked, read_rows
from grammar.meaning import Fact, Meaning, Word, align_words, facts
from grammar.readings import Reading, all_readings
from grammar.sentences import sample_longer, sample_sentence
from seq2see.course.sample_corpus import Pair
from seq2see.data.word_spans import PUNCTUATION, split_words
from seq2see.errors import UserError

# Words of an English and of a Hindi sentence in training, validation and test, including punctuation.
MAX_WORDS = (10, 11)
MIN_PAIRS, MAX_PAIRS = 1000, 1_000_000
# How often a word must occur in 30,000 training pairs to be used in the other sets.
MIN_OCCURRENCES = 20
HELD_OUT_SHARE = 0.08  # of the facts, for validation and for test each
MAX_GREETING_WORDS = 3
MAX_ATTEMPTS = 20000  # to find a new sentence before the grammar counts as exhausted


@dataclass(frozen=True)
class GeneratedPair(Pair):
    facts: tuple[Fact, ...] = ()  # subject, verb and object of each clause


@dataclass(frozen=True)
class GeneratedCorpus:
    train: list[GeneratedPair]
    valid: list[GeneratedPair]
    test: list[GeneratedPair]
    longer: list[GeneratedPair]


def generate_corpus(pairs: int = 30000, seed: int = 1) -> GeneratedCorpus:
    """Generates the corpus with that many training pairs. The same seed gives the same corpus on any machine."""
    if pairs < MIN_PAIRS:
        raise UserError(f"{pairs} pairs are too few for every word to occur in training: use at least {MIN_PAIRS:,}")
    if pairs > MAX_PAIRS:
        raise UserError(f"{pairs:,} pairs do not fit in memory: use at most {MAX_PAIRS:,}")
    fixed = list(fixed_pairs())
    fixed_facts = {fact for pair in fixed for fact in pair.facts}

    def assign_set(fact: Fact) -> str:
        number = crc32(f"{seed} {fact}".encode()) / 2**32
        assigned = "valid" if number < HELD_OUT_SHARE else "test" if number < 2 * HELD_OUT_SHARE else "train"
        return "train" if fact in fixed_facts else assigned

    generator = _PairGenerator(Random(f"seq2see {seed}"), assign_set, {pair.source for pair in fixed})
    train = fixed + [generator.next_pair("train", _is_short) for _ in range(pairs - len(fixed))]
    counts = Counter(word for pair in train for side in (pair.source, pair.target) for word in split_words(side))
    minimum = max(1, min(MIN_OCCURRENCES, MIN_OCCURRENCES * pairs // 30000))
    known = {word for word, count in counts.items() if count >= minimum}
    max_lengths = [
        max(len(split_words(side)) for side in sides)
        for sides in zip(*((p.source, p.target) for p in train), strict=True)
    ]

    def is_known(source: list[Word], target: list[Word]) -> bool:
        return all(word.text in known for word in (*source, *target))

    def is_longer(source: list[Word], target: list[Word]) -> bool:
        return len(source) > max_lengths[0] and len(target) > max_lengths[1] and is_known(source, target)

    def is_short_and_known(source: list[Word], target: list[Word]) -> bool:
        return _is_short(source, target) and is_known(source, target)

    held_out = max(1, pairs // 30)
    return GeneratedCorpus(
        train,
        valid=[generator.next_pair("valid", is_short_and_known) for _ in range(held_out)],
        test=[generator.next_pair("test", is_short_and_known) for _ in range(held_out)],
        longer=[generator.next_pair("longer", is_longer) for _ in range(max(1, pairs // 60))],
    )


@dataclass(frozen=True)
class _Candidate:
    meaning: Meaning
    facts: tuple[Fact, ...]


class _PairGenerator:
    """Samples new sentences, each for the set that its facts belong to."""

    def __init__(self, rng: Random, assign_set: Callable[[Fact], str], seen: set[str]) -> None:
        self.rng, self.assign_set, self.seen = rng, assign_set, seen
        self.held_out_facts: set[Fact] = set()
        self.queues: dict[str, deque[_Candidate]] = {"train": deque(), "valid": deque(), "test": deque()}

    def next_pair(self, name: str, fits: Callable[[list[Word], list[Word]], bool]) -> GeneratedPair:
        for _ in range(MAX_ATTEMPTS):
            candidate = self._sample(name)
            if candidate is None or (name in ("valid", "test") and self.held_out_facts.intersection(candidate.facts)):
                continue  # one test sentence per fact, or narrow constructions would dominate the test set
            source = english.sentence(candidate.meaning)
            source_text = join(source)
            if source_text in self.seen:
                continue
            target = hindi_clauses.sentence(candidate.meaning, Reading(rng=self.rng))
            if not fits(source, target):
                continue
            self.seen.add(source_text)
            self.held_out_facts.update(candidate.facts if name != "train" else ())
            target_text = join(target)
            translations = (target_text,) if name == "train" else references(candidate.meaning, target_text)
            return GeneratedPair(source_text, target_text, translations, align_words(source, target), candidate.facts)
        raise UserError(
            f"no new {name} sentence after {MAX_ATTEMPTS} attempts, with {len(self.seen)} so far: use fewer pairs"
        )

    def _sample(self, name: str) -> _Candidate | None:
        """Samples a meaning for a set; one that belongs to another set is queued for it."""
        if name == "longer":
            meaning = sample_longer(self.rng, lambda fact: self.assign_set(fact) == "train")
            return _Candidate(meaning, facts(meaning))
        if self.queues[name]:
            return self.queues[name].popleft()
        number = self.rng.random()
        preferred = "valid" if number < HELD_OUT_SHARE else "test" if number < 2 * HELD_OUT_SHARE else "train"
        meaning = sample_sentence(self.rng, lambda fact: self.assign_set(fact) == preferred)
        candidate = _Candidate(meaning, facts(meaning))
        sets = {self.assign_set(fact) for fact in candidate.facts}
        if sets == {name}:
            return candidate
        if len(sets) == 1:
            self.queues[sets.pop()].append(candidate)
        return None


def references(meaning: Meaning, target: str) -> tuple[str, ...]:
    """Returns all correct translations, the target first."""
    translations = [target]
    for same in meanings_with_same_english(meaning):
        translations += (join(words) for words in all_readings(partial(hindi_clauses.sentence, same)))
    return tuple(dict.fromkeys(translations))


def _is_short(source: list[Word], target: list[Word]) -> bool:
    return len(source) <= MAX_WORDS[0] and len(target) <= MAX_WORDS[1]


def join(words: list[Word]) -> str:
    """Joins words to text, without a space before punctuation."""
    text = words[0].text
    for word in words[1:]:
        text += word.text if word.text in PUNCTUATION else f" {word.text}"
    return text


def fixed_pairs() -> Iterator[GeneratedPair]:
    """Yields the sentences of the lecture notes and greetings, with and without final punctuation.

    Greetings also come with names, because no model learns a sentence from seeing it twice.
    """
    for row in read_rows("fixed_sentences.txt", width=2):
        source = tuple(split_words(row.cell(0)))
        target = parse_linked(row, source, row.cell(1))
        alignment = tuple(sorted((i, j) for j, (_, indices) in enumerate(target) for i in indices))
        fact = tuple(part.strip() for part in row.cell(4).split(","))
        if len(fact) not in (1, 3):
            raise row.error(f'"{row.cell(4)}" is not a subject, a verb and an object')
        stated = ((fact[0], fact[1], fact[2]),) if len(fact) == 3 else ()
        hindi = join([Word(text) for text, _ in target])
        alternatives = [text.strip() for text in row.cell(3).split("~") if text.strip()]
        endings = [("", ""), (row.cell(2), "।" if row.cell(2) == "." else row.cell(2))]
        for mark, danda in endings if row.cell(2) else endings[:1]:
            end = ((len(source), len(target)),) if mark else ()
            translations = tuple(text + danda for text in (hindi, *alternatives))
            yield GeneratedPair(row.cell(0) + mark, hindi + danda, translations, alignment + end, stated)
        if stated or len(source) > MAX_GREETING_WORDS or not row.cell(2):
            continue
        for name in of_kind("first-name"):
            address = tuple((len(source) + i, len(target) + i) for i in range(3))  # comma, name, final mark
            translations = tuple(f"{text}, {name.hindi[0]}{danda}" for text in (hindi, *alternatives))
            yield GeneratedPair(
                f"{row.cell(0)}, {name.english}{mark}", translations[0], translations, alignment + address
            )


def corpus_files(corpus: GeneratedCorpus) -> dict[str, bytes]:
    """Returns each set as text, alignments and, except for training, all correct translations, by file name."""
    sets = {"train": corpus.train, "valid": corpus.valid, "test": corpus.test, "longer": corpus.longer}
    contents = {"README.md": _readme(sets)}
    for name, pairs in sets.items():
        contents[f"{name}.en"] = _lines(pair.source for pair in pairs)
        contents[f"{name}.hi"] = _lines(pair.target for pair in pairs)
        contents[f"{name}.align"] = _lines(" ".join(f"{i}-{j}" for i, j in pair.alignment) for pair in pairs)
        if name != "train":
            rows = ({"source": pair.source, "references": pair.references} for pair in pairs)
            contents[f"{name}.jsonl"] = _lines(json.dumps(row, ensure_ascii=False) for row in rows)
    return {name: content.encode() for name, content in contents.items()}


def _lines(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _readme(sets: dict[str, list[GeneratedPair]]) -> str:
    table = "\n".join(f"| {name} | {len(pairs):,} | {_table_cells(pairs)} |" for name, pairs in sets.items())
    return README.format(table=table)


def _table_cells(pairs: list[GeneratedPair]) -> str:
    sides = [[split_words(pair.source) for pair in pairs], [split_words(pair.target) for pair in pairs]]
    distinct = [len({word for sentence in side for word in sentence}) for side in sides]
    max_lengths = [max(len(sentence) for sentence in side) for side in sides]
    return f"{distinct[0]:,} / {distinct[1]:,} | {max_lengths[0]} / {max_lengths[1]}"


README = """# An English–Hindi corpus generated by a grammar

Written by `seq2see data sample`. Licence: Apache-2.0, like seq2see itself.

| set | pairs | distinct words, English / Hindi | maximum length in words, English / Hindi |
|---|---|---|---|
{table}

`X.en` and `X.hi` are parallel, one sentence per line. `X.align` has the gold word alignment of each line as `i-j`: word i of
the English line is aligned with word j of the Hindi line, counted from 0, with punctuation (. , ? ! ।) as separate words.
`X.jsonl` has all correct translations of each sentence, the one in `X.hi` first: English leaves open whether "you" is तू, तुम
or आप and whether "I" is a man or a woman.

No fact (subject, verb, object) of valid and test occurs in train, but all their words do; the sentences of longer have more
words than any in train.
"""
