"""The special tokens around a text, and the languages of a model that has a token for each, before or after the text."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, Self

from seq2see.errors import UserError, did_you_mean

# Where the language goes: before the source and, as the first token, before the target (NLLB, mBART-50, M2M100); after the
# source and in place of the start token (mBART); only before the source, naming the target (Marian); or after the start token,
# naming the language that is spoken (Whisper).
LanguageStyle = Literal["before", "after", "source", "spoken"]


@dataclass(frozen=True)
class Framing:
    """The special tokens of a tokenizer, and where a model expects them."""

    pad: int
    start: int
    end: int
    prompt: tuple[int, ...]  # before the text in a decoder; empty for models without a start token
    before: tuple[int, ...] = ()  # before and after the text in an encoder
    after: tuple[int, ...] = ()
    forced: int = 0  # how many tokens of `prompt` belong to the output: they count for a beam's length penalty
    other_ends: tuple[int, ...] = ()  # further tokens that end the output
    banned: tuple[int, ...] = ()  # never generated
    banned_first: tuple[int, ...] = ()  # never generated as the first token
    timestamps: int = 0  # the first token that is a time, 20 ms apart; the last of `prompt` excludes them; 0: none
    times: bool = False  # whether times are generated

    def with_times(self) -> Self:
        """Returns the framing of outputs with times, if the model has tokens for them."""
        return replace(self, prompt=self.prompt[:-1], times=True) if self.timestamps else self

    def prompt_with(self, tokens: Iterable[int]) -> list[int]:
        """Returns what a decoder reads before it generates: the prompt and a prefix; a model cannot read nothing."""
        return [*self.prompt, *tokens] or [self.start]


@dataclass(frozen=True)
class Languages:
    """The languages of a model: the id of each code."""

    codes: Mapping[str, int] = field(default_factory=dict)
    style: LanguageStyle = "before"

    def id(self, code: str) -> int:
        if code not in self.codes:
            raise UserError(f'unknown language "{code}": {did_you_mean(code, self.codes)}')
        return self.codes[code]

    def find(self, ids: Iterable[int]) -> str | None:
        """Returns the code of the first id that is a language's."""
        by_id = {id: code for code, id in self.codes.items()}
        return next((by_id[id] for id in ids if id in by_id), None)
