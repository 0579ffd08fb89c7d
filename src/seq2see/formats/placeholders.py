"""Text that a translation must keep unchanged: `%s`, `{name}`, `<b>`, `&amp;`, URLs, `` `code` ``.

The model copies those that stand for words, such as `%s`, like any other text, mostly correctly. Its output is checked
against the source: the same placeholders, equally often, and in the same order unless they are named. Markup, such as `<b>`,
goes around the model (`markup.py`).
"""

import re
from collections import Counter

_PRINTF = r"%(?:\(\w+\)|\d+\$)?[-+0#]*+(?:\d+|\*)?(?:\.(?:\d+|\*))?(?:hh|h|ll|l|z|j|t|L)?[diouxXeEfFgGcrsaAp@%]"
_BRACES = r"\$?\{\{[^{}\n]*+\}\}|\$?\{[^{}\n]*+\}"
ATTRIBUTES = r"""(?:(?:[^<>"']|"[^"]*+"|'[^']*+')*+|[^<>]*+)"""  # of a tag; quoted values may have angle brackets
_TAG = rf"<!--[^\n]*?-->|</?[A-Za-z0-9]{ATTRIBUTES}>"
ENTITY = r"&(?:[A-Za-z]\w*+|#\d+|#[xX][0-9A-Fa-f]+);"
_URL = r"(?:https?://|www\.|mailto:)[^\s<>()\"'`\]]*[^\s<>()\"'`\].,;:!?]"
_COMMON = (_PRINTF, _BRACES, _TAG, ENTITY, _URL)

PLACEHOLDER = re.compile("|".join(_COMMON))
MARKDOWN_PLACEHOLDER = re.compile(
    "|".join(
        (
            r"\\[!-/:-@\[-`{-~]",  # backslash escapes
            r"(?<!`)(?P<ticks>`++).*?(?<!`)(?P=ticks)(?!`)",  # code
            r"\$(?=\S)[^$\n]++(?<=\S)\$(?!\d)",  # mathematics
            r"\[[ xX]\]",  # task list checkboxes
            r"\[[^\[\]\n]++\]\[\]",  # reference links whose text is the label: [label][], [label]
            r"\[[^\[\]\n]++\](?![(\[])",
            r"!?\[(?=[^\[\]\n]*+\][(\[])",  # links with translatable text: [text](target), [text][label]
            r"\]\((?:[^()\n]|\([^()\n]*+\))*+\)|\]\[[^\]\n]*+\]",
            *_COMMON,
            r"\*+|~~|(?<!\w)_++(?=\S)|(?<=\S)_++(?!\w)",  # emphasis
        )
    )
)
_NAMED = re.compile(r"%\(|%\d+\$|\$?\{+\s*\w|&|`|\$|http|www|mailto")
_MARKUP = re.compile(r"<.*|\{\\.*|\*+|_+|~~|\[[ xX]\]|\[\^.*|!?\[|\][(\[].*")


def changed_placeholders(source: str, translation: str, pattern: re.Pattern[str]) -> list[str]:
    """Returns the placeholders that a translation lost, added, or reordered although they have no names."""
    expected, actual = ([match[0] for match in pattern.finditer(text)] for text in (source, translation))
    if difference := (Counter(expected) - Counter(actual)) or (Counter(actual) - Counter(expected)):
        return list(difference.elements())
    ordered = ([holder for holder in holders if not _NAMED.match(holder)] for holders in (expected, actual))
    return [one for one, other in zip(*ordered, strict=True) if one != other]


def is_markup(placeholder: str) -> bool:
    """Returns whether a placeholder marks up the text around it, unlike `%s` or a URL, which stand for words."""
    return bool(_MARKUP.fullmatch(placeholder))


def strip_markup(text: str, start: int, end: int, pattern: re.Pattern[str]) -> tuple[int, int]:
    """Returns the span without the markup around it, unless there is markup inside as well.

    The model cannot damage what it does not see.
    """
    first, last = start, end
    marks = [(*match.span(), is_markup(match[0])) for match in pattern.finditer(text, start, end)]
    while marks and marks[0][2] and not text[first : marks[0][0]].strip():
        first = marks.pop(0)[1]
    while marks and marks[-1][2] and not text[marks[-1][1] : last].strip():
        last = marks.pop()[0]
    inner = text[first:last].strip()
    if not inner or any(inner_markup for *_, inner_markup in marks):
        return start, end
    first = text.index(inner, first)
    return first, first + len(inner)
