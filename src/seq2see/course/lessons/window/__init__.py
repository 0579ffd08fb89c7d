"""`window`: how much of the text a language model sees, and how a chat becomes one text.

A model reads at most as many tokens as its context window; of a longer text it sees the end. What that costs is measured by
giving a model less and less of a text. A chat is one text too: a system prompt, the turns of the speakers, and the name of the
next one, which the model continues.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import torch

from seq2see.course.lessons import kit
from seq2see.data.layout import Layout, Packed
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
    visible: kit.Matrix  # [query, key]: 1 where a word is seen
    max_positions: int  # the context window of the model
    is_language_model: bool
    answer: str
    seen: tuple[Seen, ...]  # empty without a language model
    prompt: str  # the chat as one text
    reply: str | None  # None without a language model
    speaker: str
    speaker_reply: str | None


def compute(
    text: str = TEXT,
    answer: str = ANSWER,
    window: Annotated[int, kit.Bounds(1, 1000)] = 4,
    messages: Sequence[tuple[str, str]] = MESSAGES,
    speaker: Sequence[str] = SPEAKER,
    model: kit.Model | None = None,
) -> Result:
    """Shows what each word sees in a window, what a language model predicts with less context, and a chat as one text."""
    words = tuple(text.split())[:16]
    if window < 1 or not words:
        raise kit.UserError(f"a window of {window} over {len(words)} words: needs at least 1 of each")
    layout = Layout.from_lengths([len(words)])
    visible = attention_mask(layout, layout, causal=True, window=window)[0, 0].double()
    model = kit.resolve_decoder(model)
    for role, _ in messages:
        if role not in ROLES:
            raise kit.UserError(f'unknown chat role "{role}": {kit.did_you_mean(role, ROLES)}')
    speaking = kit.find_language_model(model)
    reply = speaker_reply = None
    if speaking is not None:
        reply = speaking.chat([(role, each) for role, each in messages], max_new_tokens=REPLY_TOKENS)
        speaker_reply = speaking.generate("\n".join(speaker), max_new_tokens=REPLY_TOKENS, stop=["\n"])[0]
    shown = speaking or model
    return Result(
        words, window, kit.to_matrix(visible), shown.config.model.max_positions, speaking is not None, answer,
        () if speaking is None else _shorten(speaking, text, answer), shown.chat_template.render(messages), reply,
        "\n".join(speaker),
        speaker_reply,
    )  # fmt: skip


@torch.no_grad()
def _shorten(model: kit.Model, text: str, answer: str) -> tuple[Seen, ...]:
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


def values(result: Result) -> kit.Values:
    return {
        "shown": [word[:7] for word in result.words],
        "seen_rows": [
            (s.tokens, s.nll, s.best, s.text if len(s.text) < 40 else f"… {s.text[-38:]}") for s in result.seen
        ],
        "helps": bool(result.seen) and result.seen[-1].nll < result.seen[0].nll,
        "replies": result.reply is not None and result.speaker_reply is not None,
    }


def answers() -> kit.Values:
    layout = Layout.from_lengths([10])
    visible = attention_mask(layout, layout, causal=True, window=4)[0, 0]
    return {"eighth": float(visible[7].sum()), "second": float(visible[1].sum())}
