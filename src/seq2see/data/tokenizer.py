"""Text to tokens and back, losslessly.

A tokenizer is trained on any iterator over text with Hugging Face's `tokenizers` and saved as a `tokenizer.json`. The
default kind is byte-level BPE: it starts from the 256 bytes, so it can encode any text and changes none. Two more kinds serve
for teaching: one token per character, and one token per word with `<unknown>` for unseen words.
"""

import hashlib
import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
import tokenizers as hf
from numpy.typing import NDArray
from tokenizers import decoders, models, normalizers

from seq2see.config import Normalization, TokenizerKind
from seq2see.config.extensions import load_extension
from seq2see.data.framing import Framing, Languages
from seq2see.data.token_spans import TokenSpan, character_spans, close_gaps, make_token_spans, readable
from seq2see.errors import UserError, foreign
from seq2see.tensors.files import require_regular_file, write_text

if TYPE_CHECKING:  # a model that translates does not train
    from seq2see.data.bpe_dropout import BpeDropout, MergeRules

PAD, START, END, UNKNOWN = "<pad>", "<start>", "<end>", "<unknown>"

# Letters, combining marks, and the joiner and non-joiner of Indic and Persian words.
LETTERS = "\\p{L}\\p{M}\u200c\u200d"

# The word tokenizer does not store whitespace; it decodes without a space before or after these.
NO_SPACE_BEFORE = frozenset(".,!?;:।॥…)]}%’”»")
NO_SPACE_AFTER = frozenset("([{‘“«")


class RaggedTokens(NamedTuple):
    """Many concatenated sequences: sequence i is tokens[offsets[i] : offsets[i + 1]]."""

    tokens: NDArray[Any]  # [T] int32 ids; of pictures and sounds, [T, F] numbers
    offsets: NDArray[np.int64]


class Tokenizer:
    """Converts text to tokens and back. Encoding never produces `<start>`, `<end>`, `<pad>` or role tokens."""

    languages = Languages()
    can_split = True  # whether the parts of a text that `split_text` splits have the same tokens as the whole
    omits_spaces = False  # whether no token covers the spaces between words

    def __init__(self, backend: hf.Tokenizer) -> None:
        self._backend = backend
        # Not saved in the file, so it is set here: "<end>" in a user's text is five characters.
        backend.encode_special_tokens = True
        self.kind: str = _tokenizer_kind(backend)
        self.omits_spaces = self.kind == "word"
        self.normalize: Normalization = "NFC" if isinstance(backend.normalizer, normalizers.NFC) else "none"
        pad, start, end = (_token_id(backend, token) for token in (PAD, START, END))
        self.pad, self.start, self.end = pad, start, end
        self.unknown: int | None = None if self.kind == "bpe" else _token_id(backend, UNKNOWN)
        special = {token.content: id for id, token in backend.get_added_tokens_decoder().items()}
        self.roles = {token[1:-1]: id for token, id in special.items() if token not in (PAD, START, END, UNKNOWN)}
        self.framing = Framing(pad, start, end, (start,), after=(end,), banned=(pad, start, *self.roles.values()))
        self.banned = self.framing.banned  # never generated
        self.special = frozenset(special.values())  # the tokens that stand for no text

    def choose_languages(
        self, target: "Tokenizer", source_code: str | None, target_code: str | None
    ) -> "tuple[Tokenizer, Tokenizer]":
        """Returns this tokenizer of sources and that of targets for a pair of languages; None keeps what is chosen."""
        raise UserError("this model has no choice of languages: leave out the language options")

    def chosen_languages(self, target: "Tokenizer") -> tuple[str | None, str | None]:
        """Returns the languages chosen; no source if the model detects it, no target if none is chosen yet."""
        return None, None

    def frame_source(self, ids: Iterable[int]) -> list[int]:
        """Adds the special tokens that an encoder expects around a text: `<end>` after it."""
        return [*self.framing.before, *ids, *self.framing.after]

    def frame_prompt(self, ids: Iterable[int]) -> list[int]:
        """Adds the special tokens that a decoder expects before a text: `<start>`."""
        return self.framing.prompt_with(ids)

    @classmethod
    def train(
        cls,
        texts: Iterable[str],
        kind: TokenizerKind = "bpe",
        vocab_size: int = 8000,
        roles: Sequence[str] = (),
        normalize: Normalization = "none",
    ) -> Self:
        """Trains a tokenizer of at most `vocab_size` tokens; a role `user` becomes the token `<user>`."""
        from seq2see.data.tokenizer_training import train_backend

        return cls(train_backend(texts, kind, vocab_size, roles, normalize))

    @staticmethod
    def load(path: Path | str) -> "Tokenizer":
        """Loads a tokenizer that was saved by `save`: one of ours, or one of another library's model."""
        try:
            text = require_regular_file(Path(path)).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"cannot read {path}: {error}") from error
        try:
            with foreign("this is not a tokenizer.json"):
                if '"seq2see"' in text[:20]:
                    kind: type[Tokenizer] = load_extension("tokenizers", "other libraries")
                    return kind.from_table(json.loads(text))
                return Tokenizer(hf.Tokenizer.from_str(text))
        except UserError as error:
            raise UserError(f"{path}: {error}") from error

    def save(self, path: Path | str) -> None:
        write_text(path, self._backend.to_str(pretty=True))

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> Self:
        """Rebuilds a tokenizer from the content of its tokenizer.json."""
        return cls(hf.Tokenizer.from_str(json.dumps(table)))

    def table(self) -> dict[str, Any]:
        """Returns the content of its tokenizer.json, as the `tokenizers` library writes it."""
        return json.loads(self._backend.to_str())

    def __len__(self) -> int:
        return self._backend.get_vocab_size()

    @cached_property
    def fingerprint(self) -> str:
        """A hash that changes whenever any tokenization could change."""
        return hashlib.sha256(self._backend.to_str().encode()).hexdigest()

    def normalized(self, text: str) -> str:
        """Returns the text after the tokenizer's Unicode normalisation."""
        return unicodedata.normalize("NFC", text) if self.normalize == "NFC" else text

    def encode(self, text: str) -> list[int]:
        """Returns the token ids of a text, without `<start>` or `<end>`."""
        return self._ids(self._encode_one(text))

    def encode_batch(self, texts: Sequence[str]) -> RaggedTokens:
        """Encodes many texts in parallel, on all cores."""
        with _encoding(texts):
            return self._ragged(self._backend.encode_batch_fast(texts, add_special_tokens=False))

    def encode_with_dropout(self, texts: Sequence[str], dropout: "BpeDropout", first: int = 0) -> RaggedTokens:
        """Encodes many texts with BPE-dropout; `first` is the index of the first text in the corpus.

        The segmentation of a text depends only on `dropout`, its index and its words.
        """
        from seq2see.data.bpe_dropout import merge, word_seeds

        if self.kind != "bpe":
            raise UserError(f"BPE-dropout needs a BPE tokenizer, but this is a {self.kind} tokenizer: set it to 0")
        if not 0 <= dropout.probability <= 1:
            raise UserError(f"BPE-dropout of {dropout.probability} is not a probability: choose a value from 0 to 1")
        with _encoding(texts):
            encodings = self._backend.encode_batch(texts, add_special_tokens=False)
        tokens, offsets = self._ragged(encodings)
        if not len(tokens):
            return RaggedTokens(tokens, offsets)
        word_in_text = np.array([word for e in encodings for word in e.word_ids], dtype=np.int64)
        text_of_token = np.repeat(np.arange(len(texts)), np.diff(offsets))
        new_word = np.r_[True, (np.diff(word_in_text) != 0) | (np.diff(text_of_token) != 0)]
        heads = np.flatnonzero(new_word)
        text_of_word = text_of_token[heads]  # [W]
        seeds = word_seeds(dropout, text_of_word + first, word_in_text[heads])

        # Split tokens back into the bytes that they were merged from.
        starts, sizes = self._token_bytes.offsets[tokens], np.diff(self._token_bytes.offsets)[tokens]
        symbols = self._token_bytes.tokens[concat_ranges(starts, sizes)]
        words = np.repeat(np.cumsum(new_word) - 1, sizes)
        symbols, words = merge(symbols, words, seeds, self._merge_rules, dropout.probability)
        counts = np.bincount(text_of_word[words], minlength=len(texts))
        return RaggedTokens(symbols, np.r_[0, np.cumsum(counts)])

    def decode(self, ids: Iterable[int], continues: bool = False) -> str:
        """Returns the text of tokens, without special tokens; `continues`: they continue another text, space included."""
        return b"".join(self._contents(list(map(int, ids)), continues)).decode(errors="replace")

    def token_spans(self, text: str) -> list[TokenSpan]:
        """Returns the tokens of a text, each with the characters of the original text that it covers."""
        encoding = self._encode_one(text)
        ids = self._ids(encoding)
        spans = encoding.offsets if self.omits_spaces else close_gaps(encoding.offsets, len(text))
        return make_token_spans(ids, [self._label(id) for id in ids], spans, text)

    def token_spans_from_ids(self, ids: Iterable[int]) -> list[TokenSpan]:
        """Returns tokens that a model generated, each with the characters of `decode(ids)` that it covers."""
        ids = list(map(int, ids))
        contents = self._contents(ids)
        spans = character_spans(contents)
        labels = [self._label(id) if id in self.special else content for id, content in zip(ids, contents, strict=True)]
        return make_token_spans(ids, labels, spans, b"".join(contents).decode(errors="replace"))

    def token_offsets(self, ids: Iterable[int], continues: bool = False) -> list[int]:
        """Returns the index in `decode(ids, continues)` of the first character of each token, whole or in part."""
        return [start for start, _ in character_spans(self._contents(list(map(int, ids)), continues))]

    def token_text(self, id: int) -> str:
        """Returns a token on its own, readable, also if it is special."""
        return readable(self._label(id))

    def _label(self, id: int) -> bytes:
        """The token on its own, also if it is special."""
        return self._token(id).encode() if id in self.special else self._token_contents[id]

    def _encode_one(self, text: str) -> hf.Encoding:
        try:
            return self._backend.encode(text, add_special_tokens=False)
        except BaseException:  # a panic of the library is no Exception
            with _encoding([text]):
                raise

    def _ids(self, encoding: hf.Encoding) -> list[int]:
        return encoding.ids

    def _ragged(self, encodings: Sequence[hf.Encoding]) -> RaggedTokens:
        ids: list[int] = []
        ends = [0]
        for encoding in encodings:
            ids += self._ids(encoding)
            ends.append(len(ids))
        return RaggedTokens(np.array(ids, dtype=np.int32), np.array(ends, dtype=np.int64))

    def _token(self, id: int) -> str:
        return self._backend.id_to_token(id) or ""

    @cached_property
    def _token_contents(self) -> list[bytes]:
        """The bytes that each token adds to the text."""
        empty = self.special - {self.unknown}
        tokens = ["" if id in empty else self._token(id) for id in range(len(self))]
        if self.kind != "bpe":
            return [token.encode() for token in tokens]
        byte_of = {character: bytes([byte]) for character, byte in byte_characters().items()}
        return [b"".join(byte_of[character] for character in token) for token in tokens]

    def _contents(self, ids: Sequence[int], continues: bool = False) -> list[bytes]:
        contents = [self._token_contents[id] for id in ids]
        return join_words(contents) if self.kind == "word" else contents

    @cached_property
    def _token_bytes(self) -> RaggedTokens:
        """The single-byte tokens that each token is merged from."""
        single = np.zeros(256, dtype=np.int32)
        for character, byte in byte_characters().items():
            single[byte] = _token_id(self._backend, character)
        sizes = [len(content) for content in self._token_contents]
        content = np.frombuffer(b"".join(self._token_contents), dtype=np.uint8)
        return RaggedTokens(single[content], np.r_[0, np.cumsum(sizes)])

    @cached_property
    def _merge_rules(self) -> "MergeRules":
        from seq2see.data.bpe_dropout import MergeRules

        model = self.table()["model"]
        id_of = model["vocab"]
        triples = [(id_of[left], id_of[right], id_of[left + right]) for left, right in model["merges"]]
        return MergeRules.from_triples(triples, len(self))


def join_words(words: list[bytes]) -> list[bytes]:
    """Puts a space before each word that follows another, but not before a full stop or after an opening bracket."""
    joined, previous = [], ""
    for content in words:
        word = content.decode()
        spaced = previous and word and word not in NO_SPACE_BEFORE and previous not in NO_SPACE_AFTER
        joined.append(b" " + content if spaced else content)
        previous = word or previous
    return joined


def concat_ranges(starts: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Concatenates the ranges start, start + 1, …, start + size − 1."""
    ends = np.cumsum(sizes)
    return np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - (ends - sizes), sizes)


def _tokenizer_kind(backend: hf.Tokenizer) -> TokenizerKind:
    if isinstance(backend.model, models.BPE):
        return "bpe"
    return "character" if isinstance(backend.decoder, decoders.Fuse) else "word"


def _token_id(backend: hf.Tokenizer, token: str) -> int:
    id = backend.token_to_id(token)
    if id is None:
        raise UserError(
            f'this tokenizer has no "{token}" token, so it was not trained by seq2see: train one on your text'
        )
    return id


def byte_characters() -> dict[str, int]:
    """Returns the byte that each printable character of a byte-level vocabulary stands for, as defined by GPT-2."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + i): byte for i, byte in enumerate(others)}


@contextmanager
def _encoding(texts: Sequence[str]) -> Iterator[None]:
    """Explains a failure: a text is not valid, or the tokenizer's rules are not (a regular expression that never ends)."""
    try:
        with foreign("the tokenizer cannot split this text"):
            yield
    except UserError as error:
        if isinstance(error.__cause__, TypeError):
            raise _invalid_text_error(texts) from None
        raise


def _invalid_text_error(texts: Sequence[str]) -> Exception:
    """Explains why texts cannot be encoded: an unpaired surrogate is the one invalid character in a Python string."""
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            return TypeError(f"text {number + 1} is {type(text).__name__}, not str")
        if found := re.search("[\ud800-\udfff]", text):
            return UserError(
                f"text {number + 1} has an unpaired surrogate, U+{ord(found[0]):04X}, at character {found.start() + 1}: "
                "read the file as UTF-8"
            )
    return TypeError("not a sequence of str")
