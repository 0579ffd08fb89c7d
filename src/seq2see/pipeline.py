"""A network with its tokenizers: text in, text out.

`Pipeline` encodes text, runs the decoding engine and decodes the result. Training, evaluation and inspection work on
pipelines; `seq2see.api.Model` adds what needs those layers.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Unpack

from seq2see.config import Config
from seq2see.decode.engine import continuations, requests_for, stream, translations
from seq2see.decode.search import Hypothesis, Search, SearchOptions
from seq2see.decode.session import Vocabulary
from seq2see.decode.text import Chat, Turn, end_of, readable
from seq2see.errors import UserError
from seq2see.model.network import Network
from seq2see.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Pipeline:
    """A trained network with its tokenizers. `search` takes the fields of `Search`: beam=4, temperature=0.8, top_p=0.95 …"""

    config: Config
    network: Network
    tokenizers: tuple[Tokenizer, Tokenizer]  # source, target; often the same object
    scores: Mapping[str, Any]
    chat_template: Chat = field(default_factory=Chat)

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
        tokens = [[*source.encode(text), source.end] for text in texts]
        begun = [target.encode(prefix) for prefix in prefixes]
        return translations(self.network, tokens, Vocabulary.of(target), Search(**search), begun)

    def text(self, hypothesis: Hypothesis, prefix: str = "") -> str:
        target = self.tokenizers[1]
        return target.decode([*target.encode(prefix), *hypothesis.tokens])

    def generate(
        self, prompt: str, *, tokens: int = 200, stop: Sequence[str] = (), **search: Unpack[SearchOptions]
    ) -> list[str]:
        """Continues the prompt with a language model: one continuation, or as many as `samples` or `nbest` ask for."""
        return self._continue(self.tokenizers[1].encode(prompt), tokens, stop, search)

    def chat(
        self, turns: Sequence[Turn], *, tokens: int = 200, stop: Sequence[str] = (), **search: Unpack[SearchOptions]
    ) -> str:
        """Returns the model's next message in a conversation of ("system" | "user" | "model", text)."""
        prompt = self.chat_template.prompt(self.tokenizers[1], turns)
        return self._continue(prompt, tokens, [self.chat_template.stop, *stop], search)[0].strip()

    def _continue(self, prompt: list[int], tokens: int, stop: Sequence[str], search: SearchOptions) -> list[str]:
        self._require("decoder", "continues a prompt")
        target = self.tokenizers[1]
        options = replace(Search(**search), longest=tokens)
        enough = (lambda ids: end_of(target.decode(ids), stop) is not None) if stop else None
        (found,) = continuations(self.network, [prompt], Vocabulary.of(target), options, enough)
        texts = [target.decode(one.tokens) for one in found]
        return [text[: end_of(text, stop)] for text in texts]

    def stream(
        self, prompt: str, *, tokens: int = 200, stop: Sequence[str] = (), **search: Unpack[SearchOptions]
    ) -> Iterator[str]:
        """Like `generate`, or for a translator `translate`, but yields readable pieces as they are produced."""
        source, target = self.tokenizers
        words, options = Vocabulary.of(target), replace(Search(**search), longest=tokens)
        if self.config.model.shape == "decoder":
            request, *_ = requests_for(self.network, 0, (), [words.start, *target.encode(prompt)], options)
        else:
            self._require("encoder-decoder", "translates")
            ids = [*source.encode(prompt), source.end]
            request, *_ = requests_for(self.network, 0, ids, [words.start], options)
        return readable(target, stream(self.network, request, options, words), stop)

    def _require(self, shape: str, does: str) -> None:
        actual = self.config.model.shape
        if actual != shape:
            raise UserError(f"this model is {with_article(actual)}, and only {with_article(shape)} {does}")


def with_article(noun: str) -> str:
    """ "a decoder", "an encoder"."""
    return f"a{'n' * (noun[0] in 'aeiou')} {noun}"
