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
_TAG = (
    rf"<!--[^\n]*?(?:-->|$)|</?[A-Za-z0-9]{ATTRIBUTES}>"  # a comment that does not end reaches to the end of the line
)
ENTITY = r"&(?:[A-Za-z]\w*+|#\d+|#[xX][0-9A-Fa-f]+);"
# Without the punctuation after it.
_URL = r"(?:https?://|www\.|mailto:)(?:[.,;:!?]*+(?:[^\s<>()\"'`\].,;:!?&]++|&(?![lg]t;)|(?<=%)\(\w++\)))++"
_COMMON = (_PRINTF, _BRACES, _TAG, ENTITY, _URL)

# Each is found in linear time: an opening that has no end is looked for once, whatever follows.
PLACEHOLDER = re.compile("|".join(_COMMON), re.MULTILINE)
MARKDOWN_PLACEHOLDER = re.compile(
    "|".join(
        (
            r"\\[!-/:-@\[-`{-~]",  # backslash escapes
            r"(?<!`)(?P<ticks>`{1,32}+)(?!`).*?(?<!`)(?P=ticks)(?!`)",  # code; the limit keeps the search for its end linear
            r"\$(?=\S)[^$\n]++(?<=\S)\$(?!\d)",  # mathematics
            r"\[[ xX]\](?![(\[])",  # task list checkboxes
            r"\[\^[^\[\]\s]++\]",  # footnotes
            r"\[[^\[\]\n]++\]\[\]",  # reference links whose text is the label: [label][], [label]
            r"\[[^\[\]\n]++\](?![(\[])",
            r"!?\[(?=[^\[\]\n]*+\][(\[])",  # links with translatable text: [text](target), [text][label]
            r"\]\((?:[^()\n]|\([^()\n]*+\))*+\)|\]\[[^\]\n]*+\]",
            *_COMMON,
            r"\*+|~~|(?<!\w)_++(?=\S)|(?<=\S)_++(?!\w)",  # emphasis
        )
    ),
    re.MULTILINE,
)
_NAMED = re.compile(r"%\(|%\d+\$|\$?\{+\s*\w|&|`|\$|http|www|mailto")
_MARKUP = re.compile(r"<.*|\{\\.*|\*+|_+|~~|\[[ xX]\]|\[\^.*|!?\[|\][(\[].*", re.DOTALL)


def changed_placeholders(source: str, translation: str, pattern: re.Pattern[str]) -> list[str]:
    """Returns the placeholders that a translation lost, added, or reordered although they have no names."""
    if difference := lost_or_added(source, translation, pattern):
        return difference
    expected, actual = ([match[0] for match in pattern.finditer(text)] for text in (source, translation))
    ordered = ([holder for holder in holders if not _NAMED.match(holder)] for holders in (expected, actual))
    return [one for one, other in zip(*ordered, strict=True) if one != other]


def lost_or_added(source: str, translation: str, pattern: re.Pattern[str]) -> list[str]:
    expected, actual = (Counter(match[0] for match in pattern.finditer(text)) for text in (source, translation))
    return list(((expected - actual) or (actual - expected)).elements())


def is_markup(placeholder: str) -> bool:
    """Returns whether a placeholder marks up the text around it, unlike `%s` or a URL, which stand for words."""
    return bool(_MARKUP.fullmatch(placeholder))
