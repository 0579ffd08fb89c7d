"""Chat templates of other libraries' models: Jinja, rendered in a sandbox.

A template comes with a model, so it is foreign code. It runs without access to Python's objects, within a second, and
without operations that could fill the memory.
"""

import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from types import FrameType
from typing import Any

from jinja2 import Template, TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from seq2see.data.tokenizer import Tokenizer
from seq2see.errors import UserError
from seq2see.storage.chat import JINJA_FILE, ChatTemplate, ConversationTemplate, Message

MAX_SECONDS = 2.0
MAX_SIZE = 1_000_000  # of a string or list that a template builds by multiplication, and of the rendered text
FILE = "chat_template.jinja"  # theirs; ours, with the special tokens, is JINJA_FILE
_PADDING = frozenset({"center", "ljust", "rjust", "zfill", "expandtabs", "format", "format_map"})
_FILTERS = frozenset(
    {"center", "format", "batch", "slice", "wordwrap", "urlize", "xmlattr", "pprint", "random", "indent"}
)


class _Stopped(Exception):
    pass


class _Sandbox(ImmutableSandboxedEnvironment):
    intercepted_binops = frozenset({"*", "**", "%"})

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        sizes = [
            len(x) if hasattr(x, "__len__") else abs(x) if isinstance(x, int | float) else 1 for x in (left, right)
        ]
        if operator == "%" and isinstance(left, str):
            raise _Stopped("it formats a string with %")
        if operator != "%" and (sizes[0] * sizes[1] > MAX_SIZE or (operator == "**" and sizes[1] > 64)):
            raise _Stopped(f"it computes with {operator} something larger than {MAX_SIZE:,}")
        return super().call_binop(context, operator, left, right)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        return not (isinstance(obj, str) and attr in _PADDING) and super().is_safe_attribute(obj, attr, value)


class _Generation(Extension):
    """`{% generation %}` marks the model's words for training; here its content is rendered as it is."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Any) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


@dataclass(frozen=True)
class JinjaTemplate:
    """A chat template with the special tokens that it may mention."""

    source: str
    bos_token: str = ""
    eos_token: str = ""
    stops: tuple[str, ...] = ()  # none: the model ends its message with a token

    def save(self, path: Path) -> None:
        table = {"source": self.source, "bos_token": self.bos_token, "eos_token": self.eos_token}
        path.with_name(JINJA_FILE).write_text(json.dumps(table, ensure_ascii=False, indent=1), encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> "JinjaTemplate":
        """Loads the file that `save` wrote."""
        try:
            table = json.loads(path.read_text(encoding="utf-8"))
            return cls(str(table["source"]), str(table["bos_token"]), str(table["eos_token"]))
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise UserError(f"cannot read {path}: {error}") from error

    def prompt(self, tokenizer: Tokenizer, messages: Sequence[Message]) -> list[int]:
        """Encodes the rendered conversation, up to where the model's next message begins."""
        return tokenizer.encode(self.render(messages))

    def render(self, messages: Sequence[Message]) -> str:
        roles = {"model": "assistant"}
        listed = [{"role": roles.get(role, role), "content": text} for role, text in messages]
        template = self._template
        tokens = {"bos_token": self.bos_token, "eos_token": self.eos_token}
        fields: dict[str, Any] = {"messages": listed, "add_generation_prompt": True, "tools": None, "documents": None}
        try:
            text = _with_deadline(lambda: template.render(fields | tokens))
        except (TemplateError, _Stopped) as error:
            raise UserError(f"the chat template cannot format this conversation: {error}") from error
        except Exception as error:  # whatever foreign code does
            raise UserError(f"the chat template failed: {type(error).__name__}: {str(error)[:200]}") from error
        if len(text) > MAX_SIZE:
            raise UserError(f"the chat template made {len(text):,} characters of {len(listed)} messages: it is broken")
        return text

    @cached_property
    def _template(self) -> Template:
        environment = _Sandbox(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _Generation])
        environment.filters = {name: f for name, f in environment.filters.items() if name not in _FILTERS}
        environment.filters["tojson"] = _to_json
        environment.globals |= {"raise_exception": _raise, "strftime_now": lambda f: datetime.now(UTC).strftime(f)}
        environment.globals.pop("lipsum", None)
        try:
            return environment.from_string(self.source)
        except (TemplateError, RecursionError, MemoryError) as error:
            raise UserError(f"the chat template is not valid: {' '.join(str(error).split())[:200]}") from error


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: Any = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise(message: str) -> None:
    raise _Stopped(message)


def _with_deadline(render: Callable[[], str]) -> str:
    """Runs a function, and stops it if it takes too long: a trace function is called before each line of Python."""
    deadline, previous = time.monotonic() + MAX_SECONDS, sys.gettrace()

    def check(frame: FrameType, event: str, argument: Any) -> Any:
        if time.monotonic() > deadline:
            raise _Stopped(f"it takes more than {MAX_SECONDS:g} seconds")
        return check

    sys.settrace(check)
    try:
        return render()
    finally:
        sys.settrace(previous)


def jinja_source(chat: ConversationTemplate, tokenizer: Tokenizer) -> str:
    """Returns a chat template as Jinja; an empty string for our default, which no model was trained on."""
    if isinstance(chat, JinjaTemplate):
        return chat.source
    if not isinstance(chat, ChatTemplate) or chat == ChatTemplate():
        return ""
    start = "".join(tokenizer.token_text(id) for id in tokenizer.framing.prompt)
    parts = [_quote(start)]
    roles = {"system": chat.system, "user": chat.user, "assistant": chat.model}
    parts.append("{% for message in messages %}")
    for i, (role, format) in enumerate(roles.items()):
        before, _, after = format.partition("{text}")
        parts.append(f"{{% {'el' * (i > 0)}if message['role'] == '{role}' %}}")
        parts.append(f"{_quote(before)}{{{{ message['content'] }}}}{_quote(after)}")
    parts.append("{% endif %}{% endfor %}{% if add_generation_prompt %}")
    parts.append(_quote(chat.model.partition("{text}")[0].rstrip(" ")) + "{% endif %}")
    return "".join(parts)


def _quote(text: str) -> str:
    return f"{{{{ {json.dumps(text, ensure_ascii=False)} }}}}" if text else ""
