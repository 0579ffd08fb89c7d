"""Chat templates: how a conversation becomes the prompt of a language model.

Ours has a format for each role; those of other libraries' models are programs (`exchange/jinja_template.py`).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Protocol, Self

from seq2see.config.extensions import load_extension
from seq2see.config.toml import build, parse_toml, to_toml
from seq2see.data.tokenizer import Tokenizer
from seq2see.errors import UserError, did_you_mean
from seq2see.tensors.files import write_text

Message = tuple[str, str]  # role and content
ROLES = ("system", "user", "model")
FILE, JINJA_FILE = "chat.toml", "chat_template.json"  # in a model directory


class ConversationTemplate(Protocol):
    """How a conversation becomes a prompt."""

    @property
    def stops(self) -> tuple[str, ...]:
        """The strings that end the model's message."""

    def prompt(self, tokenizer: Tokenizer, messages: Sequence[Message]) -> list[int]:
        """Encodes the messages followed by the start of the model's next one; the prompt is complete."""

    def render(self, messages: Sequence[Message]) -> str:
        """The same prompt as text."""

    def save(self, path: Path) -> None: ...


@dataclass(frozen=True)
class ChatTemplate:
    """The format of each role's messages, with {text} in place of the content.

    `<name>` in a format is the tokenizer's special token of that name, if it has one; users cannot type it.
    """

    system: str = "{text}\n\n"
    user: str = "User: {text}\n"
    model: str = "Model: {text}\n"

    def __post_init__(self) -> None:
        for role in ROLES:
            format = getattr(self, role)
            if (count := format.count("{text}")) != 1:
                raise UserError(
                    f"chat template: {role} = {to_toml(format)[:100]} contains {{text}} {count} times instead of once"
                )

    @classmethod
    def load(cls, path: Path) -> Self:
        """Loads chat.toml of a model directory, or returns the default template if there is none."""
        if not path.is_file():
            return cls()
        try:
            table = parse_toml(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise UserError(f"cannot read {path}: {error}") from error
        try:
            return build(cls, table)
        except UserError as error:
            raise UserError(f"{path}: {error}") from error

    def save(self, path: Path) -> None:
        lines = [f"{field.name} = {to_toml(getattr(self, field.name))}\n" for field in fields(self)]
        write_text(path, "".join(lines))

    @property
    def stops(self) -> tuple[str, ...]:
        """The strings that end the model's message."""
        return (self.model.partition("{text}")[2] or self.user.partition("{text}")[0],)

    def prompt(self, tokenizer: Tokenizer, messages: Sequence[Message]) -> list[int]:
        """Encodes the messages followed by the start of the model's next one, with `<start>` before them."""
        tokens = tokenizer.frame_prompt(())
        for role, text in messages:
            if role not in ROLES:
                raise UserError(f'unknown chat role "{role}": {did_you_mean(role, ROLES)}')
            before, _, after = getattr(self, role).partition("{text}")
            tokens += self._encode(tokenizer, before, text, after)
        return tokens + self._encode(tokenizer, self.model.partition("{text}")[0].rstrip(" "), "", "")

    def render(self, messages: Sequence[Message]) -> str:
        formatted = "".join(getattr(self, role).replace("{text}", text) for role, text in messages)
        return formatted + self.model.partition("{text}")[0]

    @staticmethod
    def _encode(tokenizer: Tokenizer, before: str, text: str, after: str) -> list[int]:
        """Encodes one message; special tokens are recognised in the format only, never in the text."""
        ids, split = {f"<{role}>": id for role, id in tokenizer.roles.items()}, re.compile(r"(<[A-Za-z]+>)").split
        pieces = [(piece, ids.get(piece)) for piece in split(before)]
        pieces += [(text, None), *((piece, ids.get(piece)) for piece in split(after))]
        tokens: list[int] = []
        plain = ""
        for piece, id in pieces:
            if id is None:
                plain += piece
            else:
                tokens += [*tokenizer.encode(plain), id]
                plain = ""
        return tokens + tokenizer.encode(plain)


def load_chat_template(folder: Path) -> ConversationTemplate:
    """Loads the template of a model directory, or returns the default one."""
    if not (folder / JINJA_FILE).is_file():
        return ChatTemplate.load(folder / FILE)
    template: ConversationTemplate = load_extension("chat templates", "other libraries").load(folder / JINJA_FILE)
    return template
