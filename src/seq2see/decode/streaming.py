"""Decoding tokens to text while they are generated, and stop strings."""

from collections.abc import Iterable, Iterator, Sequence

from seq2see.text.token_spans import grapheme_boundaries
from seq2see.text.tokenizer import Tokenizer


def stream_text(
    tokenizer: Tokenizer, tokens: Iterable[int], stop: Sequence[str] = (), continues: bool = False
) -> Iterator[str]:
    """Yields the text of tokens as they arrive, never splitting a grapheme; ends before the first stop string.

    `continues`: the tokens continue a prompt, so that a space before the first word is part of the text.

    The last grapheme is held back until a later token completes it: the bytes of one character may be spread over
    several tokens, and a vowel sign, an accent or the rest of an emoji may follow.
    """
    ids: list[int] = []
    shown = 0
    for token in tokens:
        ids.append(token)
        text = tokenizer.decode(ids, continues)
        end = find_stop(text, stop)
        if end is not None:
            yield text[shown:end]
            return
        stable = _stable_length(text.removesuffix("\ufffd"), shown, stop)
        if stable > shown:
            yield text[shown:stable]
            shown = stable
    rest = tokenizer.decode(ids, continues)[shown:]
    if rest:
        yield rest


def _stable_length(text: str, shown: int, stop: Sequence[str]) -> int:
    """Returns the length of the prefix that no later token can change or turn into a stop string."""
    boundaries = sorted(grapheme_boundaries(text[shown:]))
    stable = shown + (boundaries[-2] if len(boundaries) > 1 else 0)
    for string in stop:
        partial = next((n for n in range(len(string) - 1, 0, -1) if text.endswith(string[:n])), 0)
        stable = min(stable, max(shown, len(text) - partial))
    return stable


def find_stop(text: str, stop: Sequence[str]) -> int | None:
    """Returns the index of the first stop string in the text, or None."""
    found = [text.find(string) for string in stop]
    return min((index for index in found if index >= 0), default=None)
