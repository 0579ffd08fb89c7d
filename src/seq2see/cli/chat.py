"""`seq2see chat`: a conversation with a language model in the terminal."""

import os
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seq2see.cli.model_options import Compute, SamplingSeed, is_interactive, prompt_loop
from seq2see.cli.options import Options
from seq2see.config import option
from seq2see.config.search import Search
from seq2see.errors import UserError

if TYPE_CHECKING:
    from seq2see.api import Model
    from seq2see.storage.chat import Message

SAMPLED = Search(max_new_tokens=500, temperature=0.7, top_p=0.95)
ANSWER = {"help": "Maximum number of tokens of an answer.", "min": 1}
OPTIONS = Options("max_new_tokens", "temperature", "top_p", max_new_tokens=ANSWER)
_HINT = "Type a message; /reset starts a new conversation, /system TEXT sets the instructions."


def chat(
    model: Annotated[
        Path,
        typer.Option(
            "--model",
            help="Directory of a language model, ours or Hugging Face's, or a GGUF file.",
            metavar="DIRECTORY",
        ),
    ],
    system: str = option("", "Instructions to the model.", metavar="TEXT"),
    search: Annotated[Search, OPTIONS] = SAMPLED,
    seed: SamplingSeed = None,
    *,
    compute: Compute,
) -> None:
    """Chat with a language model, with the template that it was trained with; the conversation is its history.

    Answers are printed as they are generated. In a pipe, every line is a message.

    Examples:

    seq2see chat --model SmolLM2-135M-Instruct

    seq2see chat --model gemma-3-270m-it-Q4_K_M.gguf --system "Answer in one sentence." --temperature 0

    echo "What is a transformer?" | seq2see chat --model Qwen3-0.6B
    """
    from seq2see.exchange.foreign_tokenizer import ForeignTokenizer
    from seq2see.storage.chat import ChatTemplate

    language_model = compute.load_of_shape(model, "decoder")
    foreign = isinstance(language_model.tokenizers[1], ForeignTokenizer)
    if foreign and isinstance(language_model.chat_template, ChatTemplate):
        raise UserError(
            f'{model} has no chat template, so it was not trained for conversations: use "seq2see generate"'
        )
    conversation = _Conversation(language_model, search, seed, system)
    if is_interactive():
        prompt_loop("> ", conversation.respond, _HINT)
        return
    if sys.stdin is None:
        raise UserError("standard input is closed: write messages to it, one per line")
    for line in sys.stdin.buffer:
        if text := line.decode(errors="replace").strip():
            conversation.respond(text)


@dataclass
class _Conversation:
    """A model and what has been said."""

    model: "Model"
    search: Search
    seed: int | None
    system: str
    messages: "list[Message]" = field(default_factory=list)  # without the instructions

    def respond(self, text: str) -> None:
        """Prints the answer to a message, or carries out a command."""
        command, _, argument = text.strip().partition(" ")
        if command == "/reset":
            self.messages = []
        elif command == "/system":
            self.system = argument.strip()
        elif command.startswith("/") and command.strip("/").isalpha():
            typer.echo(f'seq2see: unknown command "{command}": use /reset or /system TEXT', err=True)
        else:
            self._answer(text)

    def _answer(self, text: str) -> None:
        seed = int.from_bytes(os.urandom(4)) if self.seed is None else self.seed
        instructions: list[Message] = [("system", self.system)] if self.system else []
        messages: list[Message] = [*self.messages, ("user", text)]
        pieces = []
        for piece in self.model.stream_chat([*instructions, *messages], **vars(replace(self.search, seed=seed))):
            typer.echo(piece, nl=False)
            pieces.append(piece)
        typer.echo()
        self.messages = [*messages, ("model", "".join(pieces).strip())]
