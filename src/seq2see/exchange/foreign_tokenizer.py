"""Tokenizers of other libraries' models, which keep their own rules: normalisation, added tokens, special tokens in text.

Their vocabularies write spaces and bytes in one of a few notations; with those, tokens become text and spans of text as in
our own tokenizers.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import tokenizers as hf
from tokenizers import models, pre_tokenizers

from seq2see.data.framing import Framing, Languages
from seq2see.data.tokenizer import Tokenizer, byte_characters, join_words
from seq2see.errors import UserError
from seq2see.tensors.files import write_text

# How a vocabulary writes spaces: as one of GPT-2's 256 characters for bytes, as ▁ (SentencePiece), as the absence of ## inside
# a word (WordPiece), or not at all: words are then joined by spaces, or as our own word tokenizer joins them.
# Characters need no rule.
Notation = Literal["bytes", "metaspace", "wordpiece", "words", "our words", "characters"]
KINDS = {"BPE": "BPE", "Unigram": "Unigram", "WordPiece": "WordPiece", "WordLevel": "word-level"}


def with_languages(
    framing: Framing, languages: Languages, source: str | None = None, target: str | None = None
) -> Framing:
    """Returns the framing with the tokens of a source language, a target language, or both."""
    follows = languages.style == "after"
    if source is not None:
        id = languages.id(source)
        before, after = ((), (framing.end, id)) if follows else ((id,), (framing.end,))
        framing = replace(framing, before=before, after=after)
    if target is not None:
        id = languages.id(target)
        framing = (
            replace(framing, prompt=(id,)) if follows else replace(framing, prompt=(framing.prompt[0], id), forced=1)
        )
    return framing


@dataclass(frozen=True)
class Vocabulary:
    """What a `tokenizers` file does not say."""

    size: int  # of the model's embeddings; ids beyond the tokenizer's own have no token
    notation: Notation
    strips_first_space: bool  # a text does not begin with the space before its first word
    # If the model numbers tokens differently from the tokenizer: the tokens by id, and the id of each of the tokenizer's.
    tokens: tuple[str, ...] = ()
    ids: tuple[int, ...] = ()


class ForeignTokenizer(Tokenizer):
    """Converts text to tokens and back by another library's rules: special tokens in a text are recognised."""

    def __init__(
        self,
        backend: hf.Tokenizer,
        framing: Framing,
        vocabulary: Vocabulary,
        languages: Languages | None = None,
        needs_language: bool = False,
    ) -> None:
        """`needs_language`: a target language has to be chosen before the tokenizer can frame a text."""
        backend.encode_special_tokens = False
        self._backend, self.base_framing, self.vocabulary = backend, framing, vocabulary
        self.languages, self.needs_language = languages or Languages(), needs_language
        self.pad, self.start, self.end, self.banned = framing.pad, framing.start, framing.end, framing.banned
        self.can_split = vocabulary.notation == "bytes"  # others may add a space before a text, or merge across spaces
        self.omits_spaces = vocabulary.notation in ("wordpiece", "words", "our words")
        self.kind = KINDS.get(type(backend.model).__name__, "unknown")
        if self.kind == "BPE" and vocabulary.notation == "bytes":
            self.kind = "byte-level BPE"
        self.normalize = "none"
        self.roles: dict[str, int] = {}
        self.unknown = self._model_id(_unknown_id(backend))
        added = backend.get_added_tokens_decoder()
        special = {self._model_id(id) or 0 for id, token in added.items() if token.special}
        embedded = {framing.start, framing.end, *framing.prompt, *framing.before, *framing.after}
        if wrong := [id for id in embedded if not 0 <= id < vocabulary.size]:
            raise UserError(f"the special token {wrong[0]} is not one of the model's {vocabulary.size:,} tokens")
        special |= {framing.pad, *embedded}
        special |= set(self.languages.codes.values())
        self.special = frozenset(special)
        self._ids_by_backend = np.array(vocabulary.ids, dtype=np.int64)

    @property
    def framing(self) -> Framing:  # type: ignore[override]
        if self.needs_language:
            known = ", ".join(list(self.languages.codes)[:8])
            raise UserError(
                f"this model translates into {len(self.languages.codes)} languages: choose one with --target-language, "
                f"model.with_languages() in Python or target_language in a request; they are {known}, …"
            )
        return self.base_framing

    def with_framing(self, framing: Framing) -> Self:
        return type(self)(self._backend, framing, self.vocabulary, self.languages)

    def choose_languages(
        self, target: Tokenizer, source_code: str | None, target_code: str | None
    ) -> tuple[Tokenizer, Tokenizer]:
        languages = self.languages
        if not languages.codes or not isinstance(target, ForeignTokenizer):
            return super().choose_languages(target, source_code, target_code)
        if languages.style == "source":
            if source_code is not None:
                raise UserError("this model detects the source language: choose only the target language")
            if target_code is None:
                return self, target
            return self.with_framing(replace(self.framing, before=(languages.id(target_code),))), target
        if languages.style == "spoken":
            if target_code is not None:
                raise UserError(
                    "this model writes what it hears: choose only the language that is spoken, --source-language"
                )
            if source_code is None:
                return self, target
            start, *others = (id for id in target.framing.prompt if id not in languages.codes.values())
            prompt = (start, languages.id(source_code), *others)
            spoken = target.with_framing(replace(target.framing, prompt=prompt))
            return spoken, spoken
        source = self
        if source_code is not None:
            source = source.with_framing(with_languages(source.base_framing, languages, source=source_code))
        if target_code is not None:
            source = source.with_framing(source.base_framing)  # reads sources whatever the target
            target = target.with_framing(with_languages(target.base_framing, languages, target=target_code))
        return source, target

    def chosen_languages(self, target: Tokenizer) -> tuple[str | None, str | None]:
        if not isinstance(target, ForeignTokenizer):
            return None, None
        if self.languages.style == "spoken":
            return target.languages.find(target.base_framing.prompt), None
        around_source = self.languages.find((*self.base_framing.before, *self.base_framing.after))
        if self.languages.style == "source":
            return None, around_source
        return around_source, None if target.needs_language else target.languages.find(target.base_framing.prompt)

    def __len__(self) -> int:
        return self.vocabulary.size

    def save(self, path: Path | str) -> None:
        state = {
            "framing": asdict(self.base_framing),
            "vocabulary": asdict(self.vocabulary),
            "languages": asdict(self.languages),
            "needs_language": self.needs_language,
        }
        text = json.dumps({"seq2see": state, "tokenizer": json.loads(self._backend.to_str())}, ensure_ascii=False)
        write_text(path, text)

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> Self:
        """Rebuilds a saved tokenizer."""
        state = table["seq2see"]
        vocabulary, languages, framing = state["vocabulary"], state["languages"], state["framing"]
        vocabulary = Vocabulary(**_tuples(vocabulary))
        backend = hf.Tokenizer.from_str(json.dumps(table["tokenizer"]))
        return cls(backend, Framing(**_tuples(framing)), vocabulary, Languages(**languages), state["needs_language"])

    def _model_id(self, id: int | None) -> int | None:
        return self.vocabulary.ids[id] if id is not None and self.vocabulary.ids else id

    def _ids(self, encoding: hf.Encoding) -> list[int]:
        ids = encoding.ids
        if self.vocabulary.ids:
            # What the tokenizer does not know, the model may know from its other language.
            pairs = zip(self._ids_by_backend[ids].tolist(), encoding.tokens, strict=True)
            ids = [self._id_of.get(token, id) if id == self.unknown else id for id, token in pairs]
        if ids and max(ids) >= len(self):
            token = encoding.tokens[ids.index(max(ids))]
            raise UserError(f'the text contains "{token}", a token that the model has no embedding for')
        return ids

    @cached_property
    def _id_of(self) -> dict[str, int]:
        return {token: id for id, token in enumerate(self.vocabulary.tokens)}

    def _token(self, id: int) -> str:
        tokens = self.vocabulary.tokens
        token = tokens[id] if tokens and id < len(tokens) else self._backend.id_to_token(id) if not tokens else None
        return token or f"⟨{id}⟩"

    @cached_property
    def _token_contents(self) -> list[bytes]:
        """The bytes that each token adds to the text."""
        added = self._backend.get_added_tokens_decoder()
        contents = []
        byte_of = {character: bytes([byte]) for character, byte in byte_characters().items()}
        for id in range(len(self)):
            token = self._token(id)
            if id in self.special:
                contents.append(b"")
            elif id in added and not self.vocabulary.tokens:
                contents.append(token.encode())
            else:
                contents.append(_content(token, self.vocabulary.notation, byte_of))
        return contents

    def _contents(self, ids: Sequence[int], continues: bool = False) -> list[bytes]:
        contents = [self._token_contents[id] for id in ids]
        if self.vocabulary.notation == "our words":
            return join_words(contents)
        first = next((i for i, content in enumerate(contents) if content), None)
        if first is not None and not continues and self.vocabulary.strips_first_space:
            contents[first] = contents[first].removeprefix(b" ")
        return contents


def _unknown_id(backend: hf.Tokenizer) -> int | None:
    if isinstance(backend.model, models.Unigram):
        return json.loads(backend.to_str())["model"]["unk_id"]
    token = getattr(backend.model, "unk_token", None)
    return None if token is None else backend.token_to_id(token)


def _tuples(table: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()}


def _content(token: str, notation: Notation, byte_of: Mapping[str, bytes]) -> bytes:
    if notation == "bytes":
        if all(character in byte_of for character in token):
            return b"".join(byte_of[character] for character in token)
        return token.encode()
    if notation == "wordpiece":
        return token[2:].encode() if token.startswith("##") else f" {token}".encode()
    if notation == "words":
        return f" {token}".encode()
    if notation in ("our words", "characters"):
        return token.encode()
    if re.fullmatch("<0x[0-9A-Fa-f]{2}>", token):  # a byte of a character without a token
        return bytes([int(token[3:5], 16)])
    return token.replace("▁", " ").encode()


def ids_tokenizer(size: int, framing: Framing) -> ForeignTokenizer:
    """A tokenizer for a model without one: a text is a list of ids, such as "12 7 99"."""
    backend = hf.Tokenizer(models.WordLevel({str(id): id for id in range(size)}, unk_token="0"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return ForeignTokenizer(backend, framing, Vocabulary(size, "words", strips_first_space=True))
