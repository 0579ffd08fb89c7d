"""`window`: how much of the text a language model sees, and how a chat becomes one text.

A model reads at most as many tokens as its context window; of a longer text it sees the end. What that costs is measured by
giving a model less and less of a text. A chat is one text too: a system prompt, the turns of the speakers, and the name of the
next one, which the model continues.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from seq2see.api import Model
from seq2see.course.lessons.attention import Matrix, to_matrix
from seq2see.course.lessons.exercises import Exercise
from seq2see.course.lessons.figures import heatmap, save_figure, subplots
from seq2see.course.lessons.models import NO_LANGUAGE_MODEL, find_language_model, resolve_decoder
from seq2see.course.lessons.render import (
    LANGUAGE_MODELS,
    HeatMap,
    LessonText,
    Library,
    Note,
    Section,
    Table,
    Try,
)
from seq2see.data.layout import Layout, Packed
from seq2see.errors import UserError, did_you_mean
from seq2see.model.attention import attention_mask
from seq2see.storage.chat import ROLES

TEXT = (
    "The old man lived alone in a small house by the sea. Every morning he took his boat and went out to fish. One day the old "
    "man took his"
)
ANSWER = " boat"
MESSAGES = (("system", "You're an apple."), ("user", "Give me a banana"))
SPEAKER = ("You're an apple.", "User: Give me a bun", "Apple:")  # lines
REPLY_TOKENS = 30


@dataclass(frozen=True)
class Seen:
    """The model's prediction when it sees only the last tokens of the text."""

    tokens: int
    text: str
    nll: float  # of the answer, −ln p
    best: str


@dataclass(frozen=True)
class Result:
    words: tuple[str, ...]
    window: int
    visible: Matrix  # [query, key]: 1 where a word is seen
    max_positions: int  # the context window of the model
    is_language_model: bool
    answer: str
    seen: tuple[Seen, ...]  # empty without a language model
    prompt: str  # the chat as one text
    reply: str | None  # None without a language model
    speaker: str
    speaker_reply: str | None


def compute(
    text: str = TEXT, answer: str = ANSWER, window: int = 4, messages: Sequence[tuple[str, str]] = MESSAGES,
    speaker: Sequence[str] = SPEAKER, model: Model | None = None,
) -> Result:  # fmt: skip
    """Shows what each word sees in a window, what a language model predicts with less context, and a chat as one text."""
    words = tuple(text.split())[:16]
    if window < 1 or not words:
        raise UserError(f"a window of {window} over {len(words)} words: needs at least 1 of each")
    layout = Layout.from_lengths([len(words)])
    visible = attention_mask(layout, layout, causal=True, window=window)[0, 0].double()
    model = resolve_decoder(model)
    for role, _ in messages:
        if role not in ROLES:
            raise UserError(f'unknown chat role "{role}": {did_you_mean(role, ROLES)}')
    speaking = find_language_model(model)
    reply = speaker_reply = None
    if speaking is not None:
        reply = speaking.chat([(role, each) for role, each in messages], max_new_tokens=REPLY_TOKENS)
        speaker_reply = speaking.generate("\n".join(speaker), max_new_tokens=REPLY_TOKENS, stop=["\n"])[0]
    shown = speaking or model
    return Result(
        words, window, to_matrix(visible), shown.config.model.max_positions, speaking is not None, answer,
        () if speaking is None else _shorten(speaking, text, answer), shown.chat_template.render(messages), reply,
        "\n".join(speaker),
        speaker_reply,
    )  # fmt: skip


@torch.no_grad()
def _shorten(model: Model, text: str, answer: str) -> tuple[Seen, ...]:
    tokenizer, network = model.tokenizers[1], model.network
    ids = tokenizer.encode(text)
    whole = tokenizer.encode(text + answer)
    target = whole[len(ids)] if len(whole) > len(ids) and whole[: len(ids)] == ids else tokenizer.encode(answer)[0]
    limit = min(len(ids), model.config.model.max_positions - 1)
    found = []
    for count in dict.fromkeys((*(2**n for n in range(16) if 2**n < limit), limit)):
        kept = ids[-count:]
        packed = Packed.from_sequences([tokenizer.frame_prompt(kept)], network.embedding.weight.device)
        logprobs = network(packed)[-1].float().log_softmax(-1)
        best = tokenizer.decode([int(logprobs.argmax())], continues=True)
        found.append(Seen(count, tokenizer.decode(kept), -float(logprobs[target]), best.strip() or repr(best)))
    return tuple(found)


def describe(result: Result) -> LessonText:
    shown = tuple(word[:7] for word in result.words)
    return LessonText(
        f"each row, one word, and the words it can see: itself and the {result.window - 1} before it. The window slides along "
        "with the text; what has left it is forgotten.",
        (HeatMap(f"A window of {result.window}", shown, (), result.visible),),
        (
            f"The context window of the model in use is {result.max_positions:,} tokens. Of a longer text it sees the last "
            f"{result.max_positions:,}.",
        ),
        "A model has no memory but its window. Everything that it is to take into account, earlier turns of a conversation "
        "included, must stand there as text; what it writes is appended and read again for the next token.",
        Library(
            'model.generate(text, window="slide")            # or "stop"\n'
            'model.chat([("system", "You\'re an apple."), ("user", "Give me a banana")])',
            "storage/chat.py",
        ),
        (_context_section(result), _chat_section(result)),
        (
            Try("A window of two words.", {"window": 2}),
            Try(
                "Your own conversation.",
                {"messages": [["system", "You are a pirate."], ["user", "Where is the gold?"]]},
            ),
        ),
        (
            Note(
                LANGUAGE_MODELS,
                "“Context: how many token can it process”, and the new token is fed back “as seed to repeat "
                "calculation”. The system prompt “You're an apple.” and the turns “User: Give me a bun” and “Apple: "
                "???” are the chat above: to the model a speaker's name is text like any other.",
            ),
        ),
    )


def _context_section(result: Result) -> Section:
    if not result.seen:
        return Section("What less context costs", (NO_LANGUAGE_MODEL,))
    first, last = result.seen[0], result.seen[-1]
    helped = last.nll < first.nll
    return Section(
        "What less context costs",
        (
            Table(
                ("tokens seen", "−ln p", "best guess", "the text"),
                tuple(
                    (s.tokens, s.nll, s.best, s.text if len(s.text) < 40 else f"… {s.text[-38:]}") for s in result.seen
                ),
                f"The next word is “{result.answer.strip()}”",
            ),
            f"With {first.tokens} token the right word costs {first.nll:.2f} nats, with {last.tokens} it costs {last.nll:.2f}. "
            + ("More context helps this model here." if helped else "More context does not help this model here."),
        ),
    )


def _chat_section(result: Result) -> Section:
    if result.reply is None or result.speaker_reply is None:
        answers: tuple[str, ...] = (NO_LANGUAGE_MODEL,)
    else:
        answers = (
            f"The model's reply: {result.reply.strip() or '(nothing: it ends at once)'}",
            f"Any name can speak. After\n{result.speaker}\nthe model continues: "
            f"{result.speaker_reply.strip() or '(nothing: it ends at once)'}",
            "A language model continues text. That it answers, and answers helpfully, is a matter of what it was trained on.",
        )
    return Section(
        "A chat is one text",
        (f"System prompt and turns, as the model reads them:\n{result.prompt.rstrip()} …", *answers),
    )


def exercises() -> tuple[Exercise, ...]:
    layout = Layout.from_lengths([10])
    visible = attention_mask(layout, layout, causal=True, window=4)[0, 0]
    return (
        Exercise(
            "A window of 4 over 10 words: how many does the 8th see?",
            float(visible[7].sum()),
            "Itself and 3 before it.",
        ),
        Exercise("And the 2nd?", float(visible[1].sum()), "Itself and the first: there are no more."),
        Exercise(
            "A window holds 100 tokens; the prompt has 90. How many new tokens fit before the first is forgotten?",
            10.0,
            "100 − 90: each new token is appended to the text.",
        ),
    )


def draw(result: Result, path: Path | str) -> None:
    figure, (axes,) = subplots(1)
    heatmap(axes, result.visible, result.words, result.words, f"What each word sees, window {result.window}")
    save_figure(figure, path)
