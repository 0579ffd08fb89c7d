"""What must come out of a translation as it went in: `%s`, `{name}`, `<b>`, `&amp;`, an address, `` `code` ``.

A model writes them like any other text, mostly right. What it wrote is checked against its source: the same ones, as
often, and in the same order unless they say by name what they stand for.
"""

import re
from collections import Counter

_PRINTF = r"%(?:\(\w+\)|\d+\$)?[-+0#]*+(?:\d+|\*)?(?:\.(?:\d+|\*))?(?:hh|h|ll|l|z|j|t|L)?[diouxXeEfFgGcrsaAp@%]"
_BRACES = r"\$?\{\{[^{}\n]*+\}\}|\$?\{[^{}\n]*+\}"
_TAG = r"<!--[^\n]*?-->|</?[A-Za-z0-9][^<>\n]*+>"
_ENTITY = r"&(?:[A-Za-z]\w*+|#\d+|#[xX][0-9A-Fa-f]+);"
_ADDRESS = r"(?:https?://|www\.|mailto:)[^\s<>()\"'`\]]*[^\s<>()\"'`\].,;:!?]"
_COMMON = (_PRINTF, _BRACES, _TAG, _ENTITY, _ADDRESS)

PLACEHOLDER = re.compile("|".join(_COMMON))
MARKDOWN = re.compile(
    "|".join(
        (
            r"\\[!-/:-@\[-`{-~]",  # an escaped sign
            r"(?<!`)(?P<ticks>`++).*?(?<!`)(?P=ticks)(?!`)",  # code
            r"\$(?=\S)[^$\n]++(?<=\S)\$(?!\d)",  # mathematics
            r"\[[ xX]\]",  # the box of a task
            r"\[[^\[\]\n]++\]\[\]",  # a link whose words are its name elsewhere
            r"\[[^\[\]\n]++\](?![(\[])",
            r"!?\[(?=[^\[\]\n]*+\][(\[])",  # the links that have words of their own: [words](target), [words][name]
            r"\]\((?:[^()\n]|\([^()\n]*+\))*+\)|\]\[[^\]\n]*+\]",
            *_COMMON,
            r"\*+|~~|(?<!\w)_++(?=\S)|(?<=\S)_++(?!\w)",  # emphasis
        )
    )
)
_NAMED = re.compile(r"%\(|%\d+\$|\$?\{+\s*\w|&|`|\$|http|www|mailto")
_MARKUP = re.compile(r"<.*|\{\\.*|\*+|_+|~~|\[[ xX]\]|\[\^.*|!?\[|\][(\[].*")


def spans(text: str, pattern: re.Pattern[str]) -> list[tuple[int, int]]:
    return [found.span() for found in pattern.finditer(text)]


def harmed(source: str, translation: str, pattern: re.Pattern[str]) -> list[str]:
    """The placeholders that a translation has lost, made up, or brought into an order that means something else."""
    wanted, found = ([match[0] for match in pattern.finditer(text)] for text in (source, translation))
    if difference := (Counter(wanted) - Counter(found)) or (Counter(found) - Counter(wanted)):
        return list(difference.elements())
    in_order = ([holder for holder in holders if not _NAMED.match(holder)] for holders in (wanted, found))
    return [one for one, other in zip(*in_order, strict=True) if one != other]


def unwrapped(text: str, start: int, end: int, pattern: re.Pattern[str]) -> tuple[int, int]:
    """The span without the markup around it, if none is inside: what a model need not see, it cannot harm."""
    first, last = start, end
    marks = [(*found.span(), bool(_MARKUP.fullmatch(found[0]))) for found in pattern.finditer(text, start, end)]
    while marks and marks[0][2] and not text[first : marks[0][0]].strip():
        first = marks.pop(0)[1]
    while marks and marks[-1][2] and not text[marks[-1][1] : last].strip():
        last = marks.pop()[0]
    inner = text[first:last].strip()
    if not inner or any(is_markup for *_, is_markup in marks):
        return start, end
    first = text.index(inner, first)
    return first, first + len(inner)
