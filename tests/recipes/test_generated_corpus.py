"""The generated corpus: its sets by their properties, and its files."""

import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from grammar import GeneratedCorpus, GeneratedPair, corpus_files, english, generate_corpus, hindi_clauses
from grammar.corpus import MAX_WORDS, join, references
from grammar.lexicon import adjectives, function_words, nouns, read_rows, verbs
from grammar.phrase_sampler import pronoun
from grammar.readings import Reading
from grammar.sentences import sample_sentence

from seq2see.course import sample_corpus
from seq2see.data.word_spans import split_words
from seq2see.errors import UserError
from tests.recipes.phrases import hindi, make_clause, nfc, the


@pytest.fixture(scope="module")
def corpus() -> GeneratedCorpus:
    return generate_corpus()


# The corpus


LECTURE_NOTES = {
    "How are you?": "आप कैसे हैं?",
    "How are you": "आप कैसे हैं",
    "Congratulations": "बधाई हो",
    "Thank you": "धन्यवाद",
    "We are friends": "हम दोस्त हैं",
    "I am good": "मैं बढ़िया हूँ",
    "I like eating ice-cream": "मुझे आइसक्रीम खाना पसंद है",
    "Nithish killed the lion.": "नितीश ने शेर को मारा।",
    "The lion killed Nithish.": "शेर ने नितीश को मारा।",
    "This is a piece of cake.": "यह बाएँ हाथ का खेल है।",
    "I ate a piece of cake.": "मैंने केक का एक टुकड़ा खाया।",
    "Apple makes great phones": "एप्पल शानदार फ़ोन बनाता है",
    "Apple is healthy": "सेब सेहतमंद है",
}


def test_lecture_note_sentences_are_in_training(corpus: GeneratedCorpus) -> None:
    translations = {pair.source: pair.target for pair in corpus.train}
    assert {source: translations.get(source) for source in LECTURE_NOTES} == {
        s: nfc(t) for s, t in LECTURE_NOTES.items()
    }
    assert all(" ".join(row.cell(0).split()) in translations for row in read_rows("fixed_sentences.txt"))


def test_alignment_of_the_lecture_note_example(corpus: GeneratedCorpus) -> None:
    pair = next(pair for pair in corpus.train if pair.source == "I like eating ice-cream")
    assert pair.alignment == ((0, 0), (1, 3), (1, 4), (2, 2), (3, 1))


def test_corpus_has_thirty_thousand_distinct_pairs(corpus: GeneratedCorpus) -> None:
    assert [len(pairs) for pairs in (corpus.train, corpus.valid, corpus.test, corpus.longer)] == [
        30000,
        1000,
        1000,
        500,
    ]
    assert len({pair.source for pair in corpus.train}) == 30000


@pytest.mark.parametrize(
    ("english_word", "senses"),
    [
        ("bank", ("बैंक", "किनार")),
        ("apple", ("सेब", "एप्पल")),
        ("mole", ("तिल", "छछूँदर", "जासूस", "मोल")),
        ("bat", ("बल्ल", "चमगादड़")),
        ("play", ("खेल", "बज", "नाटक")),
        ("old", ("पुरान", "बूढ़")),
        ("piece", ("टुकड़", "बाएँ")),
        ("fit", ("लायक", "तंदुरुस्त", "ठीक")),
        ("light", ("बत्ती", "हल्क")),
    ],
)
def test_context_determines_the_sense(corpus: GeneratedCorpus, english_word: str, senses: tuple[str, ...]) -> None:
    targets = [p.target for p in corpus.train if english_word in (w.lower().rstrip("s") for w in split_words(p.source))]
    counts = {sense: sum(nfc(sense) in target for target in targets) for sense in senses}
    assert min(counts.values()) >= 10, counts
    assert all(any(nfc(sense) in target for sense in senses) for target in targets if english_word in ("bank", "mole"))


def test_alignments_cover_all_content_words(corpus: GeneratedCorpus) -> None:
    unaligned = Counter[str]()
    for pair in (*corpus.train, *corpus.test, *corpus.longer):
        source, target = split_words(pair.source), split_words(pair.target)
        assert join_words(source) == pair.source
        assert join_words(target) == pair.target
        assert all(0 <= i < len(source) and 0 <= j < len(target) for i, j in pair.alignment)
        unaligned.update({word.lower() for i, word in enumerate(source) if i not in {i for i, _ in pair.alignment}})
        unaligned.update({word for j, word in enumerate(target) if j not in {j for _, j in pair.alignment}})
    function_words = {"the", "there", "a", "an", "to", "do", "does", "it", "at", "of", "for", "as", "are", "is", "was"}
    markers = {"ने", "को", "से", "का", "के", "की", "में", "पर", "एक", "है", "हैं", "हूँ", "हो", "था", "थी", "थे", "थीं", "पास"}
    assert set(unaligned) <= function_words | {nfc(word) for word in markers}, set(unaligned) - function_words - markers


def join_words(parts: list[str]) -> str:
    return "".join(part if part in ".,?!।" or not i else f" {part}" for i, part in enumerate(parts))


def test_references_include_the_target_and_every_level_of_you(corpus: GeneratedCorpus) -> None:
    for pair in (*corpus.valid, *corpus.test, *corpus.longer):
        assert pair.references[0] == pair.target
        assert len(set(pair.references)) == len(pair.references)
    to_you = [
        pair for pair in corpus.test if pair.source.startswith(("Are you", "Do you", "Did you", "Will you", "You "))
    ]
    assert len(to_you) > 5
    for pair in to_you:
        for level in (("आप",), ("तुम",), ("तू", "तुझ", "तेर")):
            assert any(word.startswith(level) for text in pair.references for word in split_words(text)), pair


def test_sets_share_no_facts(corpus: GeneratedCorpus) -> None:
    facts = {
        name: {fact for pair in getattr(corpus, name) for fact in pair.facts} for name in ("train", "valid", "test")
    }
    assert not facts["train"] & facts["valid"]
    assert not facts["train"] & facts["test"]
    assert not facts["valid"] & facts["test"]
    assert sum(1 for pair in corpus.test if any(fact[2] for fact in pair.facts)) > 800


def test_no_sentence_is_in_two_sets(corpus: GeneratedCorpus) -> None:
    sources = Counter(
        pair.source for pairs in (corpus.train, corpus.valid, corpus.test, corpus.longer) for pair in pairs
    )
    assert max(sources.values()) == 1


def test_every_word_of_the_other_sets_occurs_in_training(corpus: GeneratedCorpus) -> None:
    known = Counter(word for pair in corpus.train for side in (pair.source, pair.target) for word in split_words(side))
    for pair in (*corpus.valid, *corpus.test, *corpus.longer):
        assert all(known[word] >= 20 for side in (pair.source, pair.target) for word in split_words(side)), pair


def test_longer_sentences_exceed_all_training_sentences(corpus: GeneratedCorpus) -> None:
    def lengths(pairs: list[GeneratedPair], side: str) -> list[int]:
        return [len(split_words(getattr(pair, side))) for pair in pairs]

    for side, limit in zip(("source", "target"), MAX_WORDS, strict=True):
        assert max(lengths(corpus.test, side)) <= limit
        assert min(lengths(corpus.longer, side)) > max(lengths(corpus.train, side))


def test_every_word_of_the_lexicon_is_used(corpus: GeneratedCorpus) -> None:
    used = {word.lower().removesuffix("'s") for pair in corpus.train for word in split_words(pair.source)}
    assert len({entry.english for entry in nouns()}) + len({v.lemma for v in verbs()}) >= 300
    missing = [n.english for n in nouns() if not {p.lower() for p in (*n.english.split(), english.plural(n))} & used]
    missing += [a.english for a in adjectives() if not set(a.english.split()) <= used]
    missing += [v.lemma for v in verbs() if not {v.english[0], english.past(v), english.ing(v.english[0]), "is"} & used]
    missing += [
        " ".join(s.english)
        for part in FUNCTION_WORD_SECTIONS
        for s in function_words(part)
        if not {w.lower() for w in s.english} <= used
    ]
    assert not missing


FUNCTION_WORD_SECTIONS = ("adverbs", "prepositions", "determiners", "numbers")


def test_table_references_are_defined() -> None:
    kinds = {kind for entry in nouns() for kind in entry.kinds} | {"weather"}
    adverbs = {" ".join(entry.english) for entry in function_words("adverbs") if "manner" in entry.groups}
    qualities = {entry.english for entry in adjectives()}
    for entry in verbs():
        lists = entry.attributes
        asked = {kind for name in ("at", "from", "into", "tool") for kind in lists.get(name, ())}
        assert entry.subjects | entry.objects | asked <= kinds, entry.lemma
        assert set(lists.get("how", ())) <= adverbs, entry.lemma
        assert {*lists.get("because", ()), *lists.get("as", ())} <= qualities, entry.lemma
    for adjective in adjectives():
        assert adjective.kinds <= kinds, adjective.english


def test_hindi_is_nfc_and_punctuated_like_english(corpus: GeneratedCorpus) -> None:
    ends = {".": "।", "?": "?", "!": "!"}
    for pair in (*corpus.train, *corpus.test, *corpus.longer):
        assert nfc(pair.target) == pair.target
        assert pair.target[-1] == ends.get(pair.source[-1], pair.target[-1])


def test_same_seed_gives_the_same_corpus_in_another_process() -> None:
    program = "from grammar import generate_corpus; print(generate_corpus(1000, 7).test)"
    path = os.pathsep.join(sys.path)
    other = subprocess.run(
        [sys.executable, "-X", "utf8", "-c", program],
        capture_output=True,
        encoding="utf-8",
        check=True,
        env=os.environ | {"PYTHONPATH": path},
    )
    corpus = generate_corpus(1000, 7)
    assert other.stdout == f"{corpus.test}\n"
    assert corpus == generate_corpus(1000, 7)
    assert corpus != generate_corpus(1000, 8)


def test_ambiguous_sentence_has_both_translations() -> None:
    cut = make_clause("cut", pronoun("we"), the("cake"))
    assert {nfc("हमने केक काटा।"), nfc("हम केक काटते हैं।")} <= set(references(cut, hindi(cut)))
    play = replace(
        make_clause("play", pronoun("she"), pronoun("what"), "present"), mood="question", questioned="object"
    )
    assert {nfc("वह क्या खेलती है?"), nfc("वह क्या बजाती है?")} <= set(references(play, hindi(play)))


def test_same_english_has_the_same_translations() -> None:
    """Two meanings with the same English wording must accept each other's translations."""
    rng, seen = Random(3), dict[str, set[str]]()
    for _ in range(6000):
        meaning = sample_sentence(rng, lambda fact: True)
        source, target = join(english.sentence(meaning)), join(hindi_clauses.sentence(meaning, Reading()))
        if source in seen and target not in seen[source]:
            assert seen[source] & set(references(meaning, target)), (source, target, seen[source])
        seen.setdefault(source, set()).add(target)


def test_too_few_pairs_are_rejected() -> None:
    with pytest.raises(UserError, match="at least 1,000"):
        generate_corpus(10)


# Files


def test_the_package_has_exactly_what_the_grammar_generates(corpus: GeneratedCorpus) -> None:
    assert sample_corpus.corpus_files() == corpus_files(corpus)


def test_written_files_are_parallel_and_read_back(tmp_path: Path) -> None:
    corpus = generate_corpus(1000)
    sample_corpus.write_files(corpus_files(corpus), tmp_path / "d")
    for name in ("train", "valid", "test", "longer"):
        pairs: list[GeneratedPair] = getattr(corpus, name)
        lines = [(tmp_path / "d" / f"{name}.{end}").read_text("utf-8").splitlines() for end in ("en", "hi", "align")]
        assert lines[0] == [pair.source for pair in pairs]
        assert lines[1] == [pair.target for pair in pairs]
        links = [tuple(tuple(int(n) for n in link.split("-")) for link in line.split()) for line in lines[2]]
        assert links == [pair.alignment for pair in pairs]
    read = [json.loads(line) for line in (tmp_path / "d" / "test.jsonl").read_text("utf-8").splitlines()]
    assert read == [{"source": pair.source, "references": list(pair.references)} for pair in corpus.test]
    assert not list((tmp_path / "d").glob(".*"))
    assert "| train | 1,000 |" in (tmp_path / "d" / "README.md").read_text("utf-8")
