"""A network with its tokenizers: text in, text out.

`Pipeline` encodes text, runs the decoding engine and decodes the result. Training, evaluation and inspection work on
pipelines; `seq2see.api.Model` adds what needs those layers.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Unpack

from seq2see.config import Config
from seq2see.decode.chat import ChatTemplate, Message
from seq2see.decode.engine import build_requests, generate_tokens, stream_tokens, translate_tokens
from seq2see.decode.search import Hypothesis, Search, SearchOptions
from seq2see.decode.session import SpecialTokens
from seq2see.decode.streaming import find_stop, stream_text
from seq2see.errors import UserError
from seq2see.model.network import Network
from seq2see.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Pipeline:
    """A trained network with its tokenizers. `search` takes the fields of `Search`: beam=4, temperature=0.8, top_p=0.95, …"""

    config: Config
    network: Network
    tokenizers: tuple[Tokenizer, Tokenizer]  # source, target; often the same object
    scores: Mapping[str, Any]
    chat_template: ChatTemplate = field(default_factory=ChatTemplate)

    def translate(
        self, texts: Sequence[str], *, prefixes: Sequence[str] = (), **search: Unpack[SearchOptions]
    ) -> list[str]:
        """Translates each text; with prefixes, each translation starts with its prefix."""
        found = self.hypotheses(texts, prefixes=prefixes, **search)
        return [self.text(best, prefixes[i] if prefixes else "") for i, (best, *_) in enumerate(found)]

    def hypotheses(
        self, texts: Sequence[str], *, prefixes: Sequence[str] = (), **search: Unpack[SearchOptions]
    ) -> list[list[Hypothesis]]:
        """Returns the n best translations of each text with their log-probabilities, best first."""
        self._require("encoder-decoder", "translates")
        source, target = self.tokenizers
        return translate_tokens(
            self.network, [[*source.encode(text), source.end] for text in texts], SpecialTokens.from_tokenizer(target),
            Search(**search), [target.encode(prefix) for prefix in prefixes],
        )  # fmt: skip

    def text(self, hypothesis: Hypothesis, prefix: str = "") -> str:
        """Decodes a hypothesis to text, after the prefix it continues."""
        target = self.tokenizers[1]
        return target.decode([*target.encode(prefix), *hypothesis.tokens])

    def generate(self, prompt: str, *, stop: Sequence[str] = (), **search: Unpack[SearchOptions]) -> list[str]:
        """Continues the prompt with a language model: `samples` or `nbest` continuations, one by default."""
        return self._generate(self.tokenizers[1].encode(prompt), stop, Search(**search))

    def chat(self, messages: Sequence[Message], *, stop: Sequence[str] = (), **search: Unpack[SearchOptions]) -> str:
        """Returns the model's next message in a conversation of ("system" | "user" | "model", text) messages."""
        prompt = self.chat_template.prompt(self.tokenizers[1], messages)
        return self._generate(prompt, [self.chat_template.stop, *stop], Search(**search))[0].strip()

    def _generate(self, prompt: list[int], stop: Sequence[str], options: Search) -> list[str]:
        self._require("decoder", "continues a prompt")
        target = self.tokenizers[1]
        should_stop = (lambda ids: find_stop(target.decode(ids), stop) is not None) if stop else None
        special_tokens = SpecialTokens.from_tokenizer(target)
        (hypotheses,) = generate_tokens(self.network, [prompt], special_tokens, options, should_stop)
        texts = [target.decode(hypothesis.tokens) for hypothesis in hypotheses]
        return [text[: find_stop(text, stop)] for text in texts]

    def stream(self, prompt: str, *, stop: Sequence[str] = (), **search: Unpack[SearchOptions]) -> Iterator[str]:
        """Like `generate`, or `translate` for a translator, but yields text as it is generated, whole graphemes only."""
        source, target = self.tokenizers
        special_tokens, options = SpecialTokens.from_tokenizer(target), Search(**search)
        if self.config.model.shape == "decoder":
            request, *_ = build_requests(self.network, 0, (), [target.start, *target.encode(prompt)], options)
        else:
            self._require("encoder-decoder", "translates")
            ids = [*source.encode(prompt), source.end]
            request, *_ = build_requests(self.network, 0, ids, [target.start], options)
        return stream_text(target, stream_tokens(self.network, request, options, special_tokens), stop)

    def _require(self, shape: str, does: str) -> None:
        actual = self.config.model.shape
        if actual != shape:
            raise UserError(f"this model is {with_article(actual)}; only {with_article(shape)} {does}")


def with_article(noun: str) -> str:
    """Returns "a decoder", "an encoder"."""
    return f"a{'n' * (noun[0] in 'aeiou')} {noun}"
