"""The inflected forms of Hindi words, from tables of endings.

Nouns have a direct and an oblique form in each number, in classes that gender and ending determine; adjectives in -ā
agree; verbs are a root with an ending that depends on the last sound of the root. Persons are named by their pronouns: मैं,
तू, तुम, आप, हम, वह, वे.
"""

from dataclasses import dataclass
from functools import cache
from unicodedata import normalize

from grammar.lexicon import Gender

# Gender, ending, and its replacements: direct singular, oblique singular, direct plural, oblique plural.
# The first row whose gender and ending match is the class of a noun.
NOUN_CLASSES: tuple[tuple[Gender, str, tuple[str, str, str, str]], ...] = (
    ("m", "िया", ("िया", "िये", "िये", "ियों")),  # भेड़िया
    ("m", "या", ("या", "ये", "ये", "यों")),  # रुपया
    ("m", "ा", ("ा", "े", "े", "ों")),  # लड़का
    ("m", "ी", ("ी", "ी", "ी", "ियों")),  # आदमी
    ("m", "ई", ("ई", "ई", "ई", "इयों")),  # भाई
    ("m", "ि", ("ि", "ि", "ि", "ियों")),  # पति
    ("m", "ू", ("ू", "ू", "ू", "ुओं")),  # आलू
    ("m", "ु", ("ु", "ु", "ु", "ुओं")),  # साधु
    ("m", "ो", ("ो", "ो", "ो", "ो")),  # रेडियो
    ("m", "ाँ", ("ाँ", "ाँ", "ाँ", "ाओं")),  # रेस्तराँ
    ("m", "", ("", "", "", "ों")),  # घर
    ("f", "िया", ("िया", "िया", "ियाँ", "ियों")),  # चिड़िया
    ("f", "ी", ("ी", "ी", "ियाँ", "ियों")),  # लड़की
    ("f", "ई", ("ई", "ई", "इयाँ", "इयों")),  # मिठाई
    ("f", "ि", ("ि", "ि", "ियाँ", "ियों")),  # तिथि
    ("f", "ा", ("ा", "ा", "ाएँ", "ाओं")),  # दवा
    ("f", "ाँ", ("ाँ", "ाँ", "ाएँ", "ाओं")),  # माँ
    ("f", "ू", ("ू", "ू", "ुएँ", "ुओं")),  # बहू
    ("f", "ु", ("ु", "ु", "ुएँ", "ुओं")),  # वस्तु
    ("f", "", ("", "", "ें", "ों")),  # किताब
)
# Masculine nouns in -ā marked "=": राजा, चाचा.
UNINFLECTED = ("ा", ("ा", "ा", "ा", "ाओं"))

# Adjectives in -ā, -yā: masculine direct singular, other masculine, feminine.
ADJECTIVE_ENDINGS: tuple[tuple[str, tuple[str, str, str]], ...] = (
    ("या", ("या", "ए", "ई")),  # नया
    ("आ", ("आ", "ए", "ई")),  # हुआ
    ("ा", ("ा", "े", "ी")),  # अच्छा
)

PERSONS = ("मैं", "तू", "तुम", "आप", "हम", "वह", "वे")
PLURAL_PERSONS = frozenset({"तुम", "आप", "हम", "वे"})

# By person: direct, with ने, with को, oblique (before से, पर), possessive.
PRONOUNS: dict[str, tuple[str, str, str, str, str]] = {
    "मैं": ("मैं", "मैंने", "मुझे", "मुझ", "मेरा"),
    "तू": ("तू", "तूने", "तुझे", "तुझ", "तेरा"),
    "तुम": ("तुम", "तुमने", "तुम्हें", "तुम", "तुम्हारा"),
    "आप": ("आप", "आपने", "आपको", "आप", "आपका"),
    "हम": ("हम", "हमने", "हमें", "हम", "हमारा"),
    "वह": ("वह", "उसने", "उसे", "उस", "उसका"),
    "वे": ("वे", "उन्होंने", "उन्हें", "उन", "उनका"),
    "यह": ("यह", "इसने", "इसे", "इस", "इसका"),
    "ये": ("ये", "इन्होंने", "इन्हें", "इन", "इनका"),
    "कौन": ("कौन", "किसने", "किसे", "किस", "किसका"),
    "क्या": ("क्या", "किसने", "किसे", "किस", "किसका"),
}

PRESENT_BE = {"मैं": "हूँ", "तू": "है", "तुम": "हो", "आप": "हैं", "हम": "हैं", "वह": "है", "वे": "हैं"}
PAST_BE = {("m", False): "था", ("m", True): "थे", ("f", False): "थी", ("f", True): "थीं"}

# Endings by the last sound of the root: consonant, ā or o, ī, ū. Person -> ending; the future adds गा, गे, गी.
SUBJUNCTIVE: dict[str, dict[str, str]] = {
    "consonant": {"मैं": "ूँ", "तू": "े", "तुम": "ो", "आप": "ें", "हम": "ें", "वह": "े", "वे": "ें"},
    "vowel": {"मैं": "ऊँ", "तू": "ए", "तुम": "ओ", "आप": "एँ", "हम": "एँ", "वह": "ए", "वे": "एँ"},
    "ी": {"मैं": "िऊँ", "तू": "िए", "तुम": "ियो", "आप": "िएँ", "हम": "िएँ", "वह": "िए", "वे": "िएँ"},
    "ू": {"मैं": "ुऊँ", "तू": "ुए", "तुम": "ुओ", "आप": "ुएँ", "हम": "ुएँ", "वह": "ुए", "वे": "ुएँ"},
}
IRREGULAR_SUBJUNCTIVE: dict[str, dict[str, str]] = {
    "दे": {"मैं": "दूँ", "तू": "दे", "तुम": "दो", "आप": "दें", "हम": "दें", "वह": "दे", "वे": "दें"},
    "ले": {"मैं": "लूँ", "तू": "ले", "तुम": "लो", "आप": "लें", "हम": "लें", "वह": "ले", "वे": "लें"},
    "हो": {"मैं": "होऊँ", "तू": "हो", "तुम": "हो", "आप": "हों", "हम": "हों", "वह": "हो", "वे": "हों"},
}
FUTURE = {("m", False): "गा", ("m", True): "गे", ("f", False): "गी", ("f", True): "गी"}

# Perfective: masculine singular and plural, feminine singular and plural.
PERFECTIVE: dict[str, tuple[str, str, str, str]] = {
    "consonant": ("ा", "े", "ी", "ीं"),
    "vowel": ("या", "ए", "ई", "ईं"),
    "ी": ("िया", "िए", "ी", "ीं"),
    "ू": ("ुआ", "ुए", "ुई", "ुईं"),
}
IRREGULAR_PERFECTIVE: dict[str, tuple[str, str, str, str]] = {
    "कर": ("किया", "किए", "की", "कीं"),
    "दे": ("दिया", "दिए", "दी", "दीं"),
    "ले": ("लिया", "लिए", "ली", "लीं"),
    "जा": ("गया", "गए", "गई", "गईं"),
    "हो": ("हुआ", "हुए", "हुई", "हुईं"),
}

POLITE_COMMAND = {"consonant": "िए", "vowel": "इए", "ी": "ीजिए", "ू": "ुइए"}
IRREGULAR_POLITE = {"कर": "कीजिए", "दे": "दीजिए", "ले": "लीजिए"}


@dataclass(frozen=True)
class Agreement:
    """What a verb or adjective agrees with."""

    person: str = "वह"
    gender: Gender = "m"

    @property
    def plural(self) -> bool:
        return self.person in PLURAL_PERSONS

    @property
    def key(self) -> tuple[str, bool]:
        return (self.gender, self.plural)


@cache
def noun_form(hindi: str, gender: Gender, plural: bool, oblique: bool) -> str:
    if hindi.startswith("="):
        ending, forms = UNINFLECTED
        return _replace_ending(hindi[1:], ending, forms[2 * plural + oblique])
    matching = (row for row in NOUN_CLASSES if row[0] == gender and hindi.endswith(row[1]))
    _, ending, forms = next(matching)
    return _replace_ending(hindi, ending, forms[2 * plural + oblique])


@cache
def adjective_form(hindi: str, gender: Gender, plural: bool, oblique: bool = False) -> str:
    if hindi.startswith("="):
        return hindi[1:]
    for ending, (first, other, feminine) in ADJECTIVE_ENDINGS:
        if hindi.endswith(ending):
            return _replace_ending(hindi, ending, feminine if gender == "f" else other if plural or oblique else first)
    return hindi


@cache
def habitual(root: str, gender: str, plural: bool, last: bool = False) -> str:
    """Returns खाता and so on; a feminine plural is nasal only if no auxiliary follows: खाती हैं, but नहीं खातीं."""
    return root + {"m": "ते" if plural else "ता", "f": "तीं" if plural and last else "ती"}[gender]


@cache
def perfective(root: str, gender: str, plural: bool, last: bool = True) -> str:
    forms = IRREGULAR_PERFECTIVE.get(root)
    if forms is None:
        stem, sound = _stem_and_sound(root)
        forms = tuple(normalize("NFC", stem + ending) for ending in PERFECTIVE[sound])  # type: ignore[assignment]
    assert forms is not None
    if gender == "m":
        return forms[1] if plural else forms[0]
    return forms[3] if plural and last else forms[2]


@cache
def subjunctive(root: str, person: str) -> str:
    if root in IRREGULAR_SUBJUNCTIVE:
        return IRREGULAR_SUBJUNCTIVE[root][person]
    stem, sound = _stem_and_sound(root)
    return normalize("NFC", stem + SUBJUNCTIVE[sound][person])


def future(root: str, agreement: Agreement) -> str:
    return subjunctive(root, agreement.person) + FUTURE[agreement.key]


@cache
def command(root: str, person: str) -> str:
    """Returns पढ़, पढ़ो or पढ़िए, by the level of address."""
    if person == "तू":
        return root
    if person == "तुम":
        return subjunctive(root, "तुम")
    stem, sound = _stem_and_sound(root)
    return IRREGULAR_POLITE.get(root) or normalize("NFC", stem + POLITE_COMMAND[sound])


@cache
def infinitive(root: str, gender: str = "m", plural: bool = False, oblique: bool = False) -> str:
    return root + ("नी" if gender == "f" else "ने" if plural or oblique else "ना")


def _replace_ending(word: str, ending: str, new: str) -> str:
    return normalize("NFC", word[: len(word) - len(ending)] + new)


def _stem_and_sound(root: str) -> tuple[str, str]:
    """Returns the stem and the row of endings: पी loses its vowel sign, खा keeps it."""
    if root[-1] in "ीू":
        return root[:-1], root[-1]
    return root, "vowel" if root[-1] in "ाोआओए" else "consonant"
