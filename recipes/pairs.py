"""Sentence pairs for the bundled translators: reading, splitting by source, and variants that make a model robust."""

import lzma
import random
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from seq2see.tensors.files import atomic_write

Pair = tuple[str, str]

# All start with a consonant, since a vowel would change the French word before it ("de Tom", "d'Anna").
NAMES = [
    "Maria",
    "Peter",
    "Ravi",
    "Sophie",
    "Kenji",
    "Fatima",
    "Luca",
    "Chen",
    "Priya",
    "David",
    "Nadia",
    "Boris",
    "Clara",
    "Diego",
    "Greta",
    "Jamal",
    "Katrin",
    "Leila",
    "Marco",
    "Nina",
    "Pablo",
    "Rosa",
    "Samir",
    "Tanya",
    "Victor",
    "Wanda",
    "Yusuf",
    "Zoe",
    "Benjamin",
    "Charlotte",
    "Dmitri",
    "Felix",
    "Gabriel",
    "Jasmine",
    "Kumar",
    "Lakshmi",
    "Mohammed",
    "Natasha",
    "Patrick",
    "Rachel",
    "Sanjay",
    "Theresa",
    "Vikram",
    "Yuki",
    "Bernard",
    "Camille",
    "Dorothy",
    "Francesca",
    "Gupta",
    "Julia",
    "Karl",
    "Linda",
    "Martin",
    "Paul",
    "Robert",
    "Simon",
    "Thomas",
    "Brown",
    "Smith",
    "Garcia",
    "Tanaka",
    "Schmidt",
    "Patel",
    "Rossi",
    "Dubois",
    "Singh",
    "Nguyen",
    "Kowalski",
]
CONSONANTS, VOWELS = "bcdfgjklmnprstvz", "aeiou"
CONTRACTIONS = {
    "do not": "don't",
    "does not": "doesn't",
    "did not": "didn't",
    "is not": "isn't",
    "are not": "aren't",
    "was not": "wasn't",
    "will not": "won't",
    "would not": "wouldn't",
    "can not": "can't",
    "cannot": "can't",
    "could not": "couldn't",
    "should not": "shouldn't",
    "have not": "haven't",
    "has not": "hasn't",
    "I am": "I'm",
    "you are": "you're",
    "it is": "it's",
    "we are": "we're",
    "they are": "they're",
    "I have": "I've",
    "I will": "I'll",
    "he is": "he's",
    "she is": "she's",
}
EXPANSIONS = {short: long for long, short in CONTRACTIONS.items() if long != "can not"}


def read_lines(path: Path) -> list[str]:
    """Reads a text file, or the same file compressed with xz."""
    if not path.exists():
        return lzma.decompress(path.with_name(path.name + ".xz").read_bytes()).decode().splitlines()
    return path.read_text(encoding="utf-8").splitlines()


def parallel(stem: Path, source: str, target: str) -> list[Pair]:
    """Reads two files of parallel lines, such as val.en and val.de."""
    return list(zip(*(read_lines(stem.with_name(f"{stem.name}.{code}")) for code in (source, target)), strict=True))


def hindi_parts(data: Path) -> dict[str, list[Pair]]:
    """Reads the English–Hindi pairs by the name of their source."""
    parts = defaultdict(list)
    for line in read_lines(data / "en-hi" / "train.tsv"):
        name, source, target = line.split("\t")
        parts[name.removesuffix("-manythings")].append((source, target))
    return parts


def read_tsv(path: Path) -> list[Pair]:
    return [(source, target) for source, target in (line.split("\t") for line in read_lines(path))]


def write_pairs(path: Path, pairs: Iterable[Pair]) -> tuple[str]:
    """Writes a TSV file, unless another process has, and returns its path as DataConfig takes it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(f"{source}\t{target}\n" for source, target in pairs)
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        with atomic_write(path) as part:
            part.write_text(text, encoding="utf-8")
    return (str(path),)


def source_key(source: str) -> str:
    """Returns what identifies a source sentence: its letters and digits in lower case."""
    return "".join(re.findall(r"\w+", source.lower()))


def split_by_source(pairs: Sequence[Pair], held_out: int, seed: int = 1) -> tuple[list[Pair], list[Pair], list[Pair]]:
    """Returns training, validation and test pairs: no source of one set occurs in another, not even in another case.

    The validation and the test set have `held_out` sources each, and one random translation of each source.
    """
    by_source = defaultdict(list)
    for pair in pairs:
        by_source[source_key(pair[0])].append(pair)
    chance = random.Random(seed)
    keys = sorted(by_source)
    chance.shuffle(keys)
    valid, test = (
        [chance.choice(by_source[key]) for key in part] for part in (keys[:held_out], keys[held_out : 2 * held_out])
    )
    return [pair for key in keys[2 * held_out :] for pair in by_source[key]], valid, test


def variants(pairs: Sequence[Pair], share: float, names: bool, seed: int = 1) -> Iterator[Pair]:
    """Yields the pairs, and for a share of them variants as people type them.

    Lower case, capitals, no final punctuation, contractions, other names (if they are copied), and two sentences in one.
    """
    chance = random.Random(seed)
    for pair in pairs:
        yield pair
        if chance.random() < share:
            source, target = pair
            if names:
                source, target = _rename(source, target, chance)
            kind = chance.randrange(10)
            if kind < 3:
                source, target = _without_punctuation(source, target)
            elif kind < 5:
                other = pairs[chance.randrange(len(pairs))]
                if len(source) + len(other[0]) < 160:
                    source, target = f"{source} {other[0]}", f"{target} {other[1]}"
            elif kind < 7:
                source = _contract(source)
            if chance.random() < 0.3:
                source = source.lower()
            elif chance.random() < 0.1:
                source = source.upper()
            if (source, target) != pair:
                yield source, target


def _rename(source: str, target: str, chance: random.Random) -> Pair:
    """Exchanges names that are the same in both languages, so that a model learns to copy names instead of a few of them."""
    for name in ("Tom", "Mary", "John"):
        pattern = rf"\b{name}\b"
        if re.search(pattern, source) and re.search(pattern, target):
            new = chance.choice(NAMES) if chance.random() < 0.5 else _invent_name(chance)
            source, target = re.sub(pattern, new, source), re.sub(pattern, new, target)
    return source, target


def _invent_name(chance: random.Random) -> str:
    syllables = [chance.choice(CONSONANTS) + chance.choice(VOWELS) for _ in range(chance.randint(2, 3))]
    return "".join([*syllables, chance.choice(["", "n", "r", "s", "l"])]).capitalize()


def _without_punctuation(source: str, target: str) -> Pair:
    return source.rstrip(".!? "), target.rstrip(".!?।\u202f\u00a0 ")


def _contract(source: str) -> str:
    for table in (EXPANSIONS, CONTRACTIONS):
        for old, new in table.items():
            if re.search(rf"\b{old}\b", source):
                return re.sub(rf"\b{old}\b", new, source)
    return source
