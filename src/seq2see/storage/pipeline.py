"""A network with its tokenizers: text in, text out.

`Pipeline` encodes sentences and prompts, runs the decoding engine and decodes the result. Training, evaluation, inspection and
the translation of whole texts work on pipelines; `seq2see.api.Model` adds what needs those layers.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, Unpack

import torch
from torch import Tensor

from seq2see.config import Config
from seq2see.config.extensions import load_extension
from seq2see.config.search import Search, SearchOptions
from seq2see.data.known_words import KnownWords, unknown_words
from seq2see.data.layout import Packed, Tokens
from seq2see.data.tokenizer import Tokenizer
from seq2see.decode.constraints import Constraints
from seq2see.decode.generate import build_requests, generate_tokens, stream_tokens, translate_tokens
from seq2see.decode.search import Hypothesis
from seq2see.decode.streaming import find_stop, stream_text
from seq2see.errors import Notice, UserError
from seq2see.model.network import Network
from seq2see.storage.assessment import Assessment
from seq2see.storage.bundled import model_label
from seq2see.storage.chat import ChatTemplate, ConversationTemplate, Message
from seq2see.storage.scores import score_number

if TYPE_CHECKING:
    from seq2see.data.store import MediaReader
    from seq2see.model.pooling import Pooling

EMBED_TEXTS = 32  # encoded together
Decode = Callable[..., list[list[Hypothesis]]]  # with the parameters of `translate_tokens`


@dataclass(frozen=True)
class Pipeline:
    """A trained network with its tokenizers. `search` takes the fields of `Search`: beam=4, temperature=0.8, top_p=0.95, …"""

    config: Config
    network: Network
    tokenizers: tuple[Tokenizer, Tokenizer]  # source, target; often the same object
    scores: Mapping[str, Any]
    chat_template: ConversationTemplate = field(default_factory=ChatTemplate)
    known_words: KnownWords | None = field(default=None, repr=False)  # of the source; not needed with a word tokenizer
    pooling: "Pooling | None" = None  # how an encoder's publisher makes one vector of a text, if that is known
    decode: Decode = field(
        default=translate_tokens, repr=False
    )  # a server decodes the sentences of many requests together
    folder: Path | None = field(default=None, repr=False)  # that it was loaded from

    @property
    def label(self) -> str:
        """What to call it in a message: the name of a bundled model, otherwise the path."""
        return model_label(self.folder) if self.folder else "this model"

    def translate_sentences(
        self, sentences: Sequence[str], *, prefixes: Sequence[str] = (), **search: Unpack[SearchOptions]
    ) -> list[str]:
        """Translates each text as one sentence; with prefixes, each translation starts with its prefix."""
        found = self.hypotheses(sentences, prefixes=prefixes, **search)
        return [self.text(best, prefixes[i] if prefixes else "") for i, (best, *_) in enumerate(found)]

    def hypotheses(
        self, sentences: Sequence[str], *, prefixes: Sequence[str] = (), **search: Unpack[SearchOptions]
    ) -> list[list[Hypothesis]]:
        """Returns the n best translations of each sentence with their log-probabilities, best first."""
        if isinstance(sentences, str):
            raise TypeError("expected a list of sentences, not one string: write [sentence]")
        options = Search(**search)
        if self._possible_languages:
            each = [(self.with_detected_language(path), path, prefixes[i : i + 1]) for i, path in enumerate(sentences)]
            return [model.search_sentences([path], options, prefix)[0] for model, path, prefix in each]
        return self.search_sentences(sentences, options, prefixes)

    def search_sentences(
        self,
        sentences: Sequence[str],
        search: Search,
        prefixes: Sequence[str] = (),
        constraints: Sequence[Constraints | None] = (),
    ) -> list[list[Hypothesis]]:
        """The same, with the options as one object and in the languages that are chosen.

        Constraints, one for each sentence or none, need a beam.
        """
        if not self.config.model.classifier:
            self.require("encoder-decoder", "translates")
        target = self.tokenizers[1]
        sources = [self.encode_source(sentence) for sentence in sentences]
        starts = [target.encode(prefix) for prefix in prefixes]
        return self.decode(self.network, sources, target.framing, search, starts, constraints=constraints)

    def encode_source(self, source: str) -> Tokens:
        """Returns what the encoder reads: the tokens of a text, or the rows of the picture or sound at this path."""
        if self.config.model.source != "tokens":
            return self._media_reader.read(source)
        tokenizer = self.tokenizers[0]
        return tokenizer.frame_source(tokenizer.encode(source))

    @property
    def _media_reader(self) -> "MediaReader":
        reader: MediaReader = load_extension("media", "reader")(self.config.model)
        return reader

    @property
    def _possible_languages(self) -> Mapping[str, int]:
        """The ids of the languages that a recording may be in; empty if there is no choice, or one is chosen."""
        target = self.tokenizers[1]
        if target.languages.style != "spoken":
            return {}
        return {} if target.languages.find(target.framing.prompt) else target.languages.codes

    def with_detected_language(self, path: Path | str) -> Self:
        """Returns the model for the language that it hears at the beginning of a sound, if it has a choice and none is made."""
        codes = self._possible_languages
        if not codes:
            return self
        rows = self._media_reader.windows(path)[0]
        device = self.network.embedding.weight.device
        source, start = (
            Packed.from_sequences([tokens], device) for tokens in (rows, [self.tokenizers[1].framing.start])
        )
        with torch.inference_mode():
            logits = self.network(source, start)[-1]
        return self.with_languages(source=max(codes, key=lambda code: float(logits[codes[code]])))

    def transcribe(self, paths: Sequence[Path | str], **search: Unpack[SearchOptions]) -> list[str]:
        """Returns the text of each picture or sound; a sound in several windows is read window by window."""
        kind = self.config.model.source
        if kind == "tokens":
            raise UserError("this model reads text: use one that was trained on pictures or sounds")
        if not self.config.model.writes_text:
            self.require("encoder-decoder", f"reads {kind}")
        if self._possible_languages:
            return [self.with_detected_language(path).transcribe([path], **search)[0] for path in paths]
        reader, target = self._media_reader, self.tokenizers[1]
        windows = [reader.windows(path) if self.config.model.window_seconds else [reader.read(path)] for path in paths]
        sources = [rows for file in windows for rows in file]
        found = iter(translate_tokens(self.network, sources, target.framing, Search(**search)))
        return [" ".join(target.decode(next(found)[0].tokens).strip() for _ in file) for file in windows]

    def text(self, hypothesis: Hypothesis, prefix: str = "") -> str:
        """Decodes a hypothesis to text, after the prefix it continues."""
        target = self.tokenizers[1]
        before = target.encode(prefix) if prefix else []
        return target.decode([*before, *hypothesis.tokens])

    def assess(self, source: str, confidence: float) -> Assessment:
        """Returns how far an output can be trusted, from its source and its mean log-probability per token."""
        return Assessment(self.unknown_words(source), confidence, score_number(self.scores, "confidence", "threshold"))

    def unknown_words(self, text: str) -> tuple[str, ...] | None:
        """Returns the words of a source or prompt that training never saw; None if the model has no list of words."""
        if self.config.model.source != "tokens":
            return None
        return unknown_words(text, self.tokenizers[0], self.known_words)

    def generate(self, prompt: str, *, stop: Sequence[str] = (), **search: Unpack[SearchOptions]) -> list[str]:
        """Continues the prompt with a language model: `samples` or `nbest` continuations, one by default."""
        tokenizer = self.tokenizers[1]
        return self._generate(tokenizer.frame_prompt(tokenizer.encode(prompt)), stop, Search(**search))

    def chat(self, messages: Sequence[Message], *, stop: Sequence[str] = (), **search: Unpack[SearchOptions]) -> str:
        """Returns the model's next message in a conversation of ("system" | "user" | "model", text) messages."""
        prompt = self.chat_template.prompt(self.tokenizers[1], messages)
        return self._generate(prompt, [*self.chat_template.stops, *stop], Search(**search))[0].strip()

    def stream_chat(
        self, messages: Sequence[Message], *, stop: Sequence[str] = (), **search: Unpack[SearchOptions]
    ) -> Iterator[str]:
        """Like `chat`, but yields text as it is generated."""
        prompt = self.chat_template.prompt(self.tokenizers[1], messages)
        self.require("decoder", "continues a prompt")
        return self._stream((), prompt, [*self.chat_template.stops, *stop], Search(**search))

    def _generate(self, prompt: list[int], stop: Sequence[str], options: Search) -> list[str]:
        self.require("decoder", "continues a prompt")
        target = self.tokenizers[1]
        should_stop = (lambda ids: find_stop(target.decode(ids, True), stop) is not None) if stop else None
        special_tokens = replace(target.framing, prompt=())  # the prompt is complete
        (hypotheses,) = generate_tokens(self.network, [prompt], special_tokens, options, should_stop)
        texts = [target.decode(hypothesis.tokens, continues=True) for hypothesis in hypotheses]
        return [text[: find_stop(text, stop)] for text in texts]

    def stream(self, prompt: str, *, stop: Sequence[str] = (), **search: Unpack[SearchOptions]) -> Iterator[str]:
        """Yields a continuation, or the translation of a sentence, as it is generated, whole graphemes only."""
        if self._possible_languages:
            return self.with_detected_language(prompt).stream(prompt, stop=stop, **search)
        target = self.tokenizers[1]
        if self.config.model.shape == "decoder":
            return self._stream((), target.frame_prompt(target.encode(prompt)), stop, Search(**search))
        self.require("encoder-decoder", "translates")
        return self._stream(self.encode_source(prompt), target.frame_prompt(()), stop, Search(**search))

    def _stream(self, source: Tokens, prompt: list[int], stop: Sequence[str], options: Search) -> Iterator[str]:
        target = self.tokenizers[1]
        request, *_ = build_requests(self.network, 0, source, prompt, options)
        tokens = stream_tokens(self.network, request, options, target.framing)
        return stream_text(target, tokens, stop, continues=self.config.model.shape == "decoder")

    def with_languages(self, source: str | None = None, target: str | None = None) -> Self:
        """Returns the same model for another pair of languages, if it has a choice: "eng_Latn", "fra_Latn"."""
        first, second = self.tokenizers
        return replace(self, tokenizers=first.choose_languages(second, source, target))

    @torch.inference_mode()
    def embed(self, texts: Sequence[str], pooling: "Pooling | None" = None) -> Tensor:
        """Returns one vector for each text, [texts, width], by the model's own pooling or a given one."""
        from seq2see.model.pooling import Pooling

        self.require("encoder", "makes vectors of texts")
        pooling = pooling or self.pooling or Pooling()
        framed = self._framed(texts, pooling)
        vectors = torch.empty(len(texts), self.config.model.width)
        order = sorted(range(len(framed)), key=lambda i: len(framed[i]))  # texts of similar length share a batch
        for start in range(0, len(order), EMBED_TEXTS):
            batch = order[start : start + EMBED_TEXTS]
            packed = Packed.from_sequences([framed[i] for i in batch], self.network.embedding.weight.device)
            encoded = self.network.encode(packed, self.network.taps())
            vectors[batch] = pooling(self.network, encoded, packed.layout).float().cpu()
        return vectors

    def _framed(self, texts: Sequence[str], pooling: "Pooling") -> list[Tokens]:
        """Returns what the encoder reads of each text, cut to its limit, or of the pictures or sounds at these paths."""
        if self.config.model.source != "tokens":
            return [self.encode_source(path) for path in texts]
        tokenizer, limit = self.tokenizers[0], self.config.model.max_positions
        limit = min(limit, pooling.max_tokens or limit) - len(tokenizer.frame_source(()))
        sequences = [tokenizer.encode(text) for text in texts]
        if too_long := sum(len(ids) > limit for ids in sequences):
            warnings.warn(f"{too_long:,} of {len(texts):,} texts are cut to {limit:,} tokens", Notice, stacklevel=3)
        return [tokenizer.frame_source(ids[:limit]) for ids in sequences]

    def require(self, shape: str, action: str) -> None:
        """Raises a UserError if the model has another shape; `action` is what it cannot do, such as "translates"."""
        actual = self.config.model.shape
        if actual != shape:
            raise UserError(f"this model is {with_article(actual)}; only {with_article(shape)} {action}")


def with_article(noun: str) -> str:
    """Returns "a decoder", "an encoder"."""
    return f"a{'n' * (noun[0] in 'aeiou')} {noun}"
