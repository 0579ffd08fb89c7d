"""The built-in English–Hindi corpus: morphology against paradigms, grammar by example, sets by their properties."""

import json
import os
import subprocess
import sys
import unicodedata
from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from grammar import GeneratedCorpus, GeneratedPair, corpus_files, english, generate_corpus, hindi_clauses
from grammar import morphology as forms
from grammar.copula import BE
from grammar.corpus import MAX_WORDS, join, references
from grammar.lexicon import Gender, adjectives, function_words, noun, nouns, read_rows, verbs, word
from grammar.meaning import AdjectivePhrase, Clause, Modal, NounPhrase, Tense
from grammar.morphology import Agreement
from grammar.phrase_sampler import pronoun
from grammar.readings import Reading, all_readings
from grammar.sentences import sample_sentence

from seq2see.course import sample_corpus
from seq2see.data.word_spans import split_words
from seq2see.errors import UserError


@pytest.fixture(scope="module")
def corpus() -> GeneratedCorpus:
    return generate_corpus()


def nfc(text: str) -> str:
    return unicodedata.normalize("NFC", text)


GENDERS: tuple[Gender, Gender] = ("m", "f")


# Morphology, against hand-written paradigms

NOUNS = """
लड़का      m  लड़का लड़के लड़के लड़कों
बच्चा      m  बच्चा बच्चे बच्चे बच्चों
रुपया     m  रुपया रुपये रुपये रुपयों
घर       m  घर घर घर घरों
डॉक्टर    m  डॉक्टर डॉक्टर डॉक्टर डॉक्टरों
आदमी     m  आदमी आदमी आदमी आदमियों
भाई      m  भाई भाई भाई भाइयों
पति      m  पति पति पति पतियों
आलू      m  आलू आलू आलू आलुओं
चाकू     m  चाकू चाकू चाकू चाकुओं
=राजा    m  राजा राजा राजा राजाओं
लड़की     f  लड़की लड़की लड़कियाँ लड़कियों
मिठाई    f  मिठाई मिठाई मिठाइयाँ मिठाइयों
चिड़िया    f  चिड़िया चिड़िया चिड़ियाँ चिड़ियों
किताब    f  किताब किताब किताबें किताबों
गाय      f  गाय गाय गायें गायों
दवा      f  दवा दवा दवाएँ दवाओं
कविता    f  कविता कविता कविताएँ कविताओं
मेज़      f  मेज़ मेज़ मेज़ें मेज़ों
"""


@pytest.mark.parametrize("row", NOUNS.strip().splitlines(), ids=lambda row: row.split()[0])
def test_noun_declension_matches_the_paradigm(row: str) -> None:
    hindi_noun, gender, *expected = nfc(row).split()
    assert gender in ("m", "f")
    got = [
        forms.noun_form(hindi_noun, gender, plural, oblique) for plural in (False, True) for oblique in (False, True)
    ]
    assert got == expected


ADJECTIVES = """
अच्छा        अच्छा अच्छे अच्छे अच्छी अच्छी
नया         नया नए नए नई नई
लाल         लाल लाल लाल लाल लाल
थका         थका थके थके थकी थकी
हुआ         हुआ हुए हुए हुई हुई
मेरा         मेरा मेरे मेरे मेरी मेरी
का          का के के की की
कौन-सा      कौन-सा कौन-से कौन-से कौन-सी कौन-सी
=पसंदीदा     पसंदीदा पसंदीदा पसंदीदा पसंदीदा पसंदीदा
"""


@pytest.mark.parametrize("row", ADJECTIVES.strip().splitlines(), ids=lambda row: row.split()[0])
def test_adjective_agreement_matches_the_paradigm(row: str) -> None:
    """Masculine direct singular, oblique singular, plural; feminine singular, plural."""
    adjective, *expected = nfc(row).split()
    form = forms.adjective_form
    masculine = [form(adjective, "m", False), form(adjective, "m", False, True), form(adjective, "m", True)]
    assert [*masculine, form(adjective, "f", False), form(adjective, "f", True)] == expected


# root: perfective m sg, m pl, f sg, f pl; future मैं m, वह m, तुम m, वे f; command तुम, आप; infinitive f
VERBS = """
पढ़   पढ़ा पढ़े पढ़ी पढ़ीं        पढ़ूँगा पढ़ेगा पढ़ोगे पढ़ेंगी       पढ़ो पढ़िए     पढ़नी
खा   खाया खाए खाई खाईं       खाऊँगा खाएगा खाओगे खाएँगी    खाओ खाइए     खानी
सो   सोया सोए सोई सोईं       सोऊँगा सोएगा सोओगे सोएँगी     सोओ सोइए     सोनी
पी   पिया पिए पी पीं          पिऊँगा पिएगा पियोगे पिएँगी      पियो पीजिए    पीनी
कर   किया किए की कीं         करूँगा करेगा करोगे करेंगी       करो कीजिए    करनी
दे   दिया दिए दी दीं           दूँगा देगा दोगे देंगी            दो दीजिए      देनी
ले   लिया लिए ली लीं          लूँगा लेगा लोगे लेंगी            लो लीजिए      लेनी
जा   गया गए गई गईं           जाऊँगा जाएगा जाओगे जाएँगी     जाओ जाइए     जानी
हो   हुआ हुए हुई हुईं           होऊँगा होगा होगे होंगी          हो होइए       होनी
धो   धोया धोए धोई धोईं        धोऊँगा धोएगा धोओगे धोएँगी      धोओ धोइए     धोनी
छू   छुआ छुए छुई छुईं         छुऊँगा छुएगा छुओगे छुएँगी       छुओ छुइए     छूनी
रह   रहा रहे रही रहीं          रहूँगा रहेगा रहोगे रहेंगी        रहो रहिए      रहनी
"""


@pytest.mark.parametrize("row", VERBS.strip().splitlines(), ids=lambda row: row.split()[0])
def test_verb_conjugation_matches_the_paradigm(row: str) -> None:
    root, *expected = nfc(row).split()
    perfective = [forms.perfective(root, gender, plural) for gender in "mf" for plural in (False, True)]
    persons = (Agreement("मैं"), Agreement("वह"), Agreement("तुम"), Agreement("वे", "f"))
    future = [forms.future(root, agreement) for agreement in persons]
    commands = [forms.command(root, person) for person in ("तुम", "आप")]
    assert [*perfective, *future, *commands, forms.infinitive(root, "f")] == expected
    assert forms.command(root, "तू") == root


def test_copula_agrees_in_person_gender_and_number() -> None:
    assert [forms.PRESENT_BE[person] for person in forms.PERSONS] == ["हूँ", "है", "हो", "हैं", "हैं", "है", "हैं"]
    past = [forms.PAST_BE[Agreement(person, gender).key] for person in ("वह", "वे") for gender in GENDERS]
    assert past == ["था", "थी", "थे", "थीं"]


def test_feminine_plural_is_nasal_only_without_auxiliary() -> None:
    assert forms.habitual("खा", "f", True) == "खाती"  # खाती हैं
    assert forms.habitual("खा", "f", True, last=True) == "खातीं"  # नहीं खातीं
    assert forms.perfective("जा", "f", True, last=False) == "गई"  # गई हैं


PRONOUN_TABLE = """
मैं    मैं मैंने मुझे मुझ मेरा
तू     तू तूने तुझे तुझ तेरा
तुम    तुम तुमने तुम्हें तुम तुम्हारा
आप    आप आपने आपको आप आपका
हम    हम हमने हमें हम हमारा
वह    वह उसने उसे उस उसका
वे     वे उन्होंने उन्हें उन उनका
कौन   कौन किसने किसे किस किसका
"""


def test_pronouns_match_the_paradigm() -> None:
    for row in nfc(PRONOUN_TABLE).strip().splitlines():
        person, *expected = row.split()
        assert forms.PRONOUNS[person] == tuple(expected)


ENGLISH_VERBS = {
    "eat": ("eats", "ate", "eaten", "eating"),
    "go": ("goes", "went", "gone", "going"),
    "cry": ("cries", "cried", "cried", "crying"),
    "play": ("plays", "played", "played", "playing"),
    "stop": ("stops", "stopped", "stopped", "stopping"),
    "open": ("opens", "opened", "opened", "opening"),
    "wash": ("washes", "washed", "washed", "washing"),
    "have": ("has", "had", "had", "having"),
    "put": ("puts", "put", "put", "putting"),
    "die": ("dies", "died", "died", "dying"),
    "write": ("writes", "wrote", "written", "writing"),
    "swim": ("swims", "swam", "swum", "swimming"),
}


@pytest.mark.parametrize("base", ENGLISH_VERBS)
def test_english_verb_forms(base: str) -> None:
    verb = next(entry for entry in verbs() if entry.english[0] == base)
    got = (english.third_person(base), english.past(verb), english.participle(verb), english.ing(base))
    assert got == ENGLISH_VERBS[base]


def test_english_plurals_and_comparatives() -> None:
    plurals = {"child": "children", "city": "cities", "box": "boxes", "knife": "knives", "boy": "boys", "fish": "fish"}
    assert {entry: english.plural(noun(entry)) for entry in plurals} == plurals
    by_name = {adjective.english: english.comparative(adjective) for adjective in adjectives()}
    expected = {"big": "bigger", "heavy": "heavier", "good": "better", "tall": "taller", "beautiful": "more beautiful"}
    assert {entry: " ".join(by_name[entry]) for entry in expected} == expected


# Grammar, by example


def hindi(clause: Clause, choices: tuple[int, ...] = ()) -> str:
    return join(hindi_clauses.sentence(clause, Reading(choices)))


def person(name: str) -> NounPhrase:
    return NounPhrase(noun(name))


def the(name: str, plural: bool = False, kind: str = "") -> NounPhrase:
    return NounPhrase(noun(name, kind), plural, "the")


def make_clause(
    lemma: str, subject: NounPhrase, obj: NounPhrase | None = None, tense: Tense = "past", root: str = ""
) -> Clause:
    entry = next(entry for entry in verbs() if entry.lemma == lemma and (not root or entry.root == root))
    return Clause(entry, subject, obj, tense=tense)


def test_perfective_subject_takes_ne_and_verb_agrees_with_object() -> None:
    assert hindi(make_clause("read", person("Ravi"), the("book"))) == nfc("रवि ने किताब पढ़ी।")
    assert hindi(make_clause("read", person("Ravi"), the("book", plural=True))) == nfc("रवि ने किताबें पढ़ीं।")
    assert hindi(make_clause("read", person("Meera"), the("newspaper"))) == nfc("मीरा ने अख़बार पढ़ा।")
    assert hindi(make_clause("eat", the("boy"), the("banana", plural=True))) == nfc("लड़के ने केले खाए।")
    assert hindi(make_clause("eat", the("boy", plural=True), the("bread"), "perfect")) == nfc("लड़कों ने रोटी खाई है।")


def test_verb_is_masculine_singular_if_the_object_takes_ko() -> None:
    assert hindi(make_clause("see", person("Ravi"), person("Meera"))) == nfc("रवि ने मीरा को देखा।")
    assert hindi(make_clause("kill", person("Nithish"), the("lion"))) == nfc("नितीश ने शेर को मारा।")
    assert hindi(make_clause("see", person("Meera"), the("girl", plural=True))) == nfc("मीरा ने लड़कियों को देखा।")
    indefinite = NounPhrase(noun("dog"), article="a")
    assert hindi(make_clause("see", person("Meera"), indefinite)) == nfc("मीरा ने एक कुत्ता देखा।")


def test_verb_agrees_with_subject_without_ne() -> None:
    assert hindi(make_clause("go", person("Meera"), the("market"))) == nfc("मीरा बाज़ार गई।")
    assert hindi(make_clause("bring", person("Meera"), the("pen"))) == nfc("मीरा पेन लाई।")  # लाना never takes ने
    assert hindi(make_clause("read", the("girl", plural=True), the("book"), "progressive")) == nfc(
        "लड़कियाँ किताब पढ़ रही हैं।"
    )
    assert hindi(make_clause("read", the("girl", plural=True), the("book"), "past progressive")) == nfc(
        "लड़कियाँ किताब पढ़ रही थीं।"
    )


def test_host_noun_agrees_and_takes_a_genitive() -> None:
    assert hindi(make_clause("help", person("Ravi"), person("Meera"))) == nfc("रवि ने मीरा की मदद की।")
    assert hindi(make_clause("wait for", person("Meera"), person("Ravi"))) == nfc("मीरा ने रवि का इंतज़ार किया।")
    assert hindi(make_clause("clean", person("Ravi"), the("table"))) == nfc("रवि ने मेज़ साफ़ की।")
    assert hindi(make_clause("talk to", pronoun("I"), pronoun("he"), "present")) == nfc("मैं उससे बात करता हूँ।")


def test_subject_case_of_liking_having_and_needing() -> None:
    mangoes = NounPhrase(noun("mango"), True)
    assert hindi(make_clause("like", pronoun("I"), mangoes, "present")) == nfc("मुझे आम पसंद हैं।")
    assert hindi(make_clause("want", the("boy"), NounPhrase(noun("water")), "present")) == nfc("लड़के को पानी चाहिए।")
    assert hindi(make_clause("need", pronoun("we"), NounPhrase(noun("money")), "present")) == nfc("हमें पैसों की ज़रूरत है।")
    a_book, two_brothers = (
        NounPhrase(noun("book"), article="a"),
        NounPhrase(noun("brother"), True, count=word("numbers", "two")),
    )
    with_thing, with_kin = (v for v in verbs() if v.lemma == "have" and v.subject_case in ("के पास", "का"))
    assert hindi(Clause(with_thing, person("Meera"), a_book)) == nfc("मीरा के पास एक किताब है।")
    assert hindi(Clause(with_kin, pronoun("I"), two_brothers)) == nfc("मेरे दो भाई हैं।")
    a_sister = NounPhrase(noun("sister"), article="a")
    assert hindi(Clause(with_kin, person("Ravi"), a_sister, tense="past")) == nfc("रवि की एक बहन थी।")


def test_modals_conjugate_and_their_infinitives_agree() -> None:
    clause = make_clause("read", person("Meera"), the("book"), "present")
    expected: dict[Modal, str] = {
        "can": "मीरा किताब पढ़ सकती है।",
        "want": "मीरा किताब पढ़ना चाहती है।",
        "have": "मीरा को किताब पढ़नी है।",
        "should": "मीरा को किताब पढ़नी चाहिए।",
        "like": "मीरा को किताब पढ़ना पसंद है।",
    }
    for modal, text in expected.items():
        assert hindi(replace(clause, modal=modal)) == nfc(text)
    assert hindi(replace(clause, modal="start", tense="past")) == nfc("मीरा किताब पढ़ने लगी।")


def test_negation_and_commands() -> None:
    drinks = make_clause("drink", pronoun("she"), NounPhrase(noun("tea")), "present")
    assert hindi(replace(drinks, negative=True)) == nfc("वह चाय नहीं पीती।")
    assert join(english.sentence(replace(drinks, negative=True))) == "She does not drink tea."
    order = replace(make_clause("read", pronoun("you"), the("book")), mood="command")
    assert {hindi(order, (level,)) for level in range(3)} == {
        nfc(t) for t in ("किताब पढ़िए।", "किताब पढ़ो।", "किताब पढ़।")
    }
    assert hindi(replace(order, mood="please")) == nfc("कृपया किताब पढ़िए।")
    assert hindi(replace(order, negative=True), (1,)) == nfc("किताब मत पढ़ो।")


def test_elders_take_the_honorific_plural() -> None:
    father = NounPhrase(noun("father"), possessor=pronoun("I"))
    a_doctor = NounPhrase(noun("doctor"), article="a")
    assert hindi(Clause(BE, father, complement=a_doctor)) == nfc("मेरे पिताजी डॉक्टर हैं।")
    assert hindi(make_clause("come", father, NounPhrase(noun("home")))) == nfc("मेरे पिताजी घर आए।")
    brother = NounPhrase(noun("brother"), possessor=pronoun("he"))
    assert hindi(Clause(BE, pronoun("you"), complement=brother)) == nfc("आप उसके भाई हैं।")


def test_possessive_of_the_subject_is_apna() -> None:
    mine, his = (NounPhrase(noun("book"), possessor=pronoun(who)) for who in ("I", "he"))
    assert hindi(make_clause("read", pronoun("I"), mine, "progressive")) == nfc("मैं अपनी किताब पढ़ रहा हूँ।")
    assert hindi(make_clause("read", person("Meera"), mine)) == nfc("मीरा ने मेरी किताब पढ़ी।")
    assert hindi(make_clause("read", person("Meera"), his)) == nfc("मीरा ने उसकी किताब पढ़ी।")
    either = {
        join(w) for w in all_readings(lambda r: hindi_clauses.sentence(make_clause("read", person("Ravi"), his), r))
    }
    assert either == {nfc("रवि ने अपनी किताब पढ़ी।"), nfc("रवि ने उसकी किताब पढ़ी।")}


def test_attributive_and_predicative_adjectives_agree() -> None:
    good = next(a for a in adjectives() if a.english == "good" and "comparative" not in a.features)
    old_of = {
        kind: next(a for a in adjectives() if a.english == "old" and kind in a.kinds) for kind in ("adult", "thing")
    }
    assert hindi(Clause(BE, the("table", True), complement=AdjectivePhrase(old_of["thing"]))) == nfc("मेज़ें पुरानी हैं।")
    assert hindi(Clause(BE, the("man"), complement=AdjectivePhrase(old_of["adult"]))) == nfc("आदमी बूढ़ा है।")
    good_boy = NounPhrase(noun("boy"), article="the", adjective=good)
    assert hindi(make_clause("eat", good_boy, the("apple"))) == nfc("अच्छे लड़के ने सेब खाया।")


def test_all_readings_of_you_and_i_are_enumerated() -> None:
    clause = make_clause("go", pronoun("you"), the("market"))
    got = {join(w) for w in all_readings(lambda r: hindi_clauses.sentence(clause, r))}
    expected = ("आप बाज़ार गए।", "आप बाज़ार गईं।", "तुम बाज़ार गए।", "तुम बाज़ार गईं।", "तू बाज़ार गया।", "तू बाज़ार गई।")
    assert got == {nfc(text) for text in expected}
    mine = {
        join(w)
        for w in all_readings(lambda r: hindi_clauses.sentence(make_clause("go", pronoun("I"), the("market")), r))
    }
    assert mine == {nfc("मैं बाज़ार गया।"), nfc("मैं बाज़ार गई।")}


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
