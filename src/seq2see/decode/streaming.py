"""Decoding tokens to text while they are generated, and stop strings."""

from collections.abc import Iterable, Iterator, Sequence

from seq2see.data.token_spans import grapheme_boundaries
from seq2see.data.tokenizer import Tokenizer


class TextStream:
    """The text of tokens that arrive one after another; ends before the first stop string.

    `continues`: the tokens continue a prompt, so that a space before the first word is part of the text.

    The last grapheme is held back until a later token completes it: the bytes of one character may be spread over
    several tokens, and a vowel sign, an accent or the rest of an emoji may follow.
    """

    def __init__(self, tokenizer: Tokenizer, stop: Sequence[str] = (), continues: bool = False) -> None:
        self.tokenizer, self.stop, self.continues = tokenizer, stop, continues
        self.shown = 0
        self.stopped = False  # at a stop string

    def advance(self, tokens: Sequence[int]) -> str:
        """Returns the text that no later token can change and that was not returned before; takes all tokens so far."""
        if self.stopped:
            return ""
        text = self.tokenizer.decode(tokens, self.continues)
        end = find_stop(text, self.stop)
        self.stopped = end is not None
        stable = _stable_length(text.removesuffix("\ufffd"), self.shown, self.stop) if end is None else end
        return self._show(text, stable)

    def finish(self, tokens: Sequence[int]) -> str:
        """Returns the rest of the text."""
        piece = self.advance(tokens)
        text = self.tokenizer.decode(tokens, self.continues)
        return piece if self.stopped else piece + self._show(text, len(text))

    def _show(self, text: str, end: int) -> str:
        piece = text[self.shown : end]
        self.shown = max(self.shown, end)
        return piece


def stream_text(
    tokenizer: Tokenizer, tokens: Iterable[int], stop: Sequence[str] = (), continues: bool = False
) -> Iterator[str]:
    """Yields the text of tokens as they arrive, never splitting a grapheme; ends before the first stop string."""
    ids: list[int] = []
    stream = TextStream(tokenizer, stop, continues)
    for token in tokens:
        ids.append(token)
        if piece := stream.advance(ids):
            yield piece
        if stream.stopped:
            return
    if rest := stream.finish(ids):
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
