"""From tokens to text that a person may read while it is written, and the form of a conversation."""

import re
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Self

from seq2see.errors import UserError, nearest
from seq2see.text.token_spans import cut_points
from seq2see.text.tokenizer import Tokenizer

Turn = tuple[str, str]  # who speaks, and what is said


def readable(tokenizer: Tokenizer, tokens: Iterable[int], stop: Sequence[str] = ()) -> Iterator[str]:
    """The text of tokens as they come, in pieces that are never half a letter; it ends before a stop string.

    A piece is held back until the next token settles where its last letter ends: the bytes of a character may be spread
    over tokens, and a vowel sign, an accent or the rest of an emoji may be yet to come.
    """
    ids: list[int] = []
    shown = 0
    for token in tokens:
        ids.append(token)
        text = tokenizer.decode(ids)
        end = end_of(text, stop)
        if end is not None:
            yield text[shown:end]
            return
        settled = _settled(text.removesuffix("\ufffd"), shown, stop)
        if settled > shown:
            yield text[shown:settled]
            shown = settled
    rest = tokenizer.decode(ids)[shown:]
    if rest:
        yield rest


def _settled(text: str, shown: int, stop: Sequence[str]) -> int:
    """Up to where no later token can change the text."""
    cuts = sorted(cut_points(text[shown:]))
    settled = shown + (cuts[-2] if len(cuts) > 1 else 0)
    for string in stop:
        begun = next((n for n in range(len(string) - 1, 0, -1) if text.endswith(string[:n])), 0)
        settled = min(settled, max(shown, len(text) - begun))
    return settled


def end_of(text: str, stop: Sequence[str]) -> int | None:
    """Where the first stop string begins."""
    places = [text.find(string) for string in stop]
    return min((place for place in places if place >= 0), default=None)


@dataclass(frozen=True)
class Chat:
    """How a conversation is written down for a language model: the frame of each turn.

    `<name>` in a frame is the tokenizer's role of that name where it has one, which no user can type.
    """

    system: str = "{text}\n\n"
    user: str = "User: {text}\n"
    model: str = "Model: {text}\n"

    def __post_init__(self) -> None:
        for frame in fields(self):
            if getattr(self, frame.name).count("{text}") != 1:
                raise UserError(
                    f'the chat form\'s {frame.name} = "{getattr(self, frame.name)}" must have {{text}} in it once'
                )

    @classmethod
    def load(cls, path: Path) -> Self:
        """From chat.toml in a model directory; without one, the plain form."""
        if not path.is_file():
            return cls()
        try:
            table = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise UserError(f"cannot read {path}: {error}") from error
        known = [frame.name for frame in fields(cls)]
        for name in table:
            if name not in known:
                raise UserError(f'{path} has an unknown key "{name}": {nearest(name, known)}')
        return cls(**{name: str(text) for name, text in table.items()})

    @property
    def stop(self) -> str:
        """What ends the model's turn."""
        return self.model.partition("{text}")[2] or self.user.partition("{text}")[0]

    def prompt(self, tokenizer: Tokenizer, turns: Sequence[Turn]) -> list[int]:
        """The turns so far, and the beginning of the model's next one."""
        tokens: list[int] = []
        for role, text in turns:
            frame = getattr(self, role, None)
            if role not in ("system", "user", "model") or frame is None:
                raise UserError(f'nobody is called "{role}" in a chat: {nearest(role, ("system", "user", "model"))}')
            before, _, after = frame.partition("{text}")
            tokens += self._encoded(tokenizer, before, text, after)
        return tokens + self._encoded(tokenizer, self.model.partition("{text}")[0].rstrip(" "), "", "")

    @staticmethod
    def _encoded(tokenizer: Tokenizer, before: str, text: str, after: str) -> list[int]:
        parts: list[str | int] = [""]
        for fixed in (before, None, after):
            pieces = [text] if fixed is None else re.split(r"(<[A-Za-z]+>)", fixed)
            for piece in pieces:
                role = tokenizer.roles.get(piece[1:-1]) if fixed is not None else None
                if role is not None:
                    parts += [role, ""]
                else:
                    parts[-1] = str(parts[-1]) + piece
        return [token for part in parts for token in ([part] if isinstance(part, int) else tokenizer.encode(part))]
