"""Text to tokens and back, losslessly.

A tokenizer is trained here from any iterator over text, on Hugging Face's `tokenizers`, and saved as their
`tokenizer.json`. The usual kind is byte-level BPE: it starts from the 256 bytes, so there is nothing that it cannot
encode, and it changes nothing. What differs from GPT-2's is where words end: letters stay together with their combining
marks and joiners, for otherwise Devanagari falls apart at every vowel sign. Two more kinds serve for teaching: one
token a character, and one token a word with `<unknown>` for the words never seen.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Self, get_args

import numpy as np
import tokenizers as hf
from numpy.typing import NDArray
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from seq2see.config import Kind, Normalise
from seq2see.errors import UserError, nearest
from seq2see.files import written_whole
from seq2see.text.bpe_dropout import Dropout, Merges, merge, word_seeds
from seq2see.text.token_spans import Piece, close_gaps, make_pieces, spans_of

PAD, START, END, UNKNOWN = "<pad>", "<start>", "<end>", "<unknown>"

# Letters, combining marks, and the joiner and non-joiner that shape Indic and Persian words.
_WORD = "\\p{L}\\p{M}\u200c\u200d"
_WORDS_AND_ALL_BETWEEN = "|".join(
    (
        f"['’](?:[sdmt]|ll|ve|re)(?![{_WORD}])",  # she's, we'll; but not the s of j'suis
        f" ?[{_WORD}]+",
        r" ?\p{N}{1,3}\p{M}*",
        f" ?[^\\s\\p{{N}}{_WORD}][^\\s\\p{{L}}\\p{{N}}]*",  # signs; marks and joiners go on in them: ❤️, 👩‍👧
        r"\s*[\r\n]+",
        r"\s+(?!\S)",  # all spaces but the last, which belongs to the next word
        r"\s+",
    )
)
_WORDS = f"[\\p{{N}}{_WORD}]+(?:['’-][\\p{{N}}{_WORD}]+)*|[^\\s\\p{{N}}{_WORD}][\\p{{M}}\u200c\u200d]*"
_ANY_CHARACTER = "[\\s\\S]"

# Where the word tokenizer, which does not know what stood between two words, writes no space.
_NO_SPACE_BEFORE = frozenset(".,!?;:।॥…)]}%’”»")
_NO_SPACE_AFTER = frozenset("([{‘“«")

_PORTION = 1 << 18  # characters of text that are handed on at a time


class Ragged(NamedTuple):
    """Many sequences end to end: number i is tokens[offsets[i] : offsets[i + 1]]."""

    tokens: NDArray[np.int32]
    offsets: NDArray[np.int64]


class Tokenizer:
    """Text to tokens and back. `<start>`, `<end>`, `<pad>` and the roles never come out of a user's text."""

    def __init__(self, inner: hf.Tokenizer) -> None:
        self._inner = inner
        # Not part of the file, so it is set here: a user who types <end> means five characters.
        inner.encode_special_tokens = True
        self.kind: Kind = _kind_of(inner)
        self.normalise: Normalise = "NFC" if isinstance(inner.normalizer, normalizers.NFC) else "none"
        self.pad, self.start, self.end = (_id_of(inner, token) for token in (PAD, START, END))
        self.unknown: int | None = None if self.kind == "bpe" else _id_of(inner, UNKNOWN)
        special = {token.content: id for id, token in inner.get_added_tokens_decoder().items()}
        self.roles = {token[1:-1]: id for token, id in special.items() if token not in (PAD, START, END, UNKNOWN)}
        self._special = frozenset(special.values())

    @classmethod
    def train(
        cls, texts: Iterable[str], kind: Kind = "bpe", vocabulary: int = 8000,
        roles: Sequence[str] = (), normalise: Normalise = "none",
    ) -> Self:  # fmt: skip
        """A tokenizer of at most this many tokens; a role `user` becomes the token `<user>`."""
        special = _special_tokens(kind, vocabulary, roles, normalise)
        inner = hf.Tokenizer(models.BPE() if kind == "bpe" else models.WordLevel(unk_token=UNKNOWN))
        if normalise == "NFC":
            inner.normalizer = normalizers.NFC()
        trainer: trainers.Trainer
        if kind == "bpe":
            inner.pre_tokenizer = pre_tokenizers.Sequence(
                [
                    pre_tokenizers.Split(hf.Regex(_WORDS_AND_ALL_BETWEEN), "isolated"),
                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
                ]
            )
            inner.decoder = decoders.ByteLevel()
            trainer = trainers.BpeTrainer(
                vocab_size=vocabulary, min_frequency=2, special_tokens=special, show_progress=False,
                initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            )  # fmt: skip
        else:
            if kind == "character":
                inner.pre_tokenizer = pre_tokenizers.Split(hf.Regex(_ANY_CHARACTER), "isolated")
                inner.decoder = decoders.Fuse()
            else:
                inner.pre_tokenizer = pre_tokenizers.Split(hf.Regex(_WORDS), "removed", invert=True)
            trainer = trainers.WordLevelTrainer(vocab_size=vocabulary, special_tokens=special, show_progress=False)
        inner.train_from_iterator(_portions(texts), trainer)
        return cls(inner)

    @classmethod
    def load(cls, path: Path | str) -> Self:
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"cannot read {path}: {error}") from error
        try:
            return cls(hf.Tokenizer.from_str(text))
        except UserError as error:
            raise UserError(f"{path}: {error}") from error
        except Exception as error:  # the library raises nothing more special
            raise UserError(f"{path} is no tokenizer.json: {error}") from error

    def save(self, path: Path | str) -> None:
        try:
            with written_whole(path) as part:
                part.write_text(self._inner.to_str(pretty=True), encoding="utf-8")
        except OSError as error:
            raise UserError(f"cannot write {path}: {error.strerror}") from error

    def __len__(self) -> int:
        return self._inner.get_vocab_size()

    @cached_property
    def fingerprint(self) -> str:
        """Changes with anything that changes a single token."""
        return hashlib.sha256(self._inner.to_str().encode()).hexdigest()

    def encode(self, text: str) -> list[int]:
        """The tokens of a text, without `<start>` or `<end>`."""
        return self._encoded(text).ids

    def encode_batch(self, texts: Sequence[str]) -> Ragged:
        """The tokens of many texts at once, on all cores."""
        try:
            return self._ragged(self._inner.encode_batch_fast(texts, add_special_tokens=False))
        except TypeError:
            raise _not_text(texts) from None

    def encode_sampled(self, texts: Sequence[str], dropout: Dropout, first: int = 0) -> Ragged:
        """`encode_batch` with BPE-dropout; `first` is the number of the first text in the corpus.

        How a text is cut depends on nothing but `dropout`, its own number and its own words.
        """
        if self.kind != "bpe":
            raise UserError(f"BPE-dropout is for a BPE tokenizer, and this is a {self.kind} tokenizer: set it to 0")
        if not 0 <= dropout.probability <= 1:
            raise UserError(f"BPE-dropout of {dropout.probability} is no probability: take one from 0 to 1")
        try:
            encodings = self._inner.encode_batch(texts, add_special_tokens=False)
        except TypeError:
            raise _not_text(texts) from None
        tokens, offsets = self._ragged(encodings)
        if not len(tokens):
            return Ragged(tokens, offsets)
        word_in_text = np.array([word for e in encodings for word in e.word_ids], dtype=np.int64)
        text_of_token = np.repeat(np.arange(len(texts)), np.diff(offsets))
        new_word = np.r_[True, (np.diff(word_in_text) != 0) | (np.diff(text_of_token) != 0)]
        heads = np.flatnonzero(new_word)
        text_of_word = text_of_token[heads]  # [W]
        seeds = word_seeds(dropout, text_of_word + first, word_in_text[heads])

        # Back to the bytes that the tokens were merged from.
        starts, sizes = self._bytes_of_token.offsets[tokens], np.diff(self._bytes_of_token.offsets)[tokens]
        symbols = self._bytes_of_token.tokens[ranges(starts, sizes)]
        words = np.repeat(np.cumsum(new_word) - 1, sizes)
        symbols, words = merge(symbols, words, seeds, self._merges, dropout.probability)
        counts = np.bincount(text_of_word[words], minlength=len(texts))
        return Ragged(symbols, np.r_[0, np.cumsum(counts)])

    def decode(self, ids: Iterable[int]) -> str:
        """The text of tokens; those that stand for no text are left out."""
        return b"".join(self._contents(list(map(int, ids)))).decode(errors="replace")

    def pieces(self, text: str) -> list[Piece]:
        """The tokens of a text, each with the characters of that very text that it covers."""
        encoding = self._encoded(text)
        spans = encoding.offsets if self.kind == "word" else close_gaps(encoding.offsets, len(text))
        return make_pieces(encoding.ids, [self._content[id] for id in encoding.ids], spans, text)

    def pieces_of(self, ids: Iterable[int]) -> list[Piece]:
        """Tokens that a model wrote, each with the characters of `decode(ids)` that it covers."""
        ids = list(map(int, ids))
        contents = self._contents(ids)
        spans = spans_of(contents)
        shown = [
            self._token(id).encode() if id in self._special else content
            for id, content in zip(ids, contents, strict=True)
        ]
        return make_pieces(ids, shown, spans, b"".join(contents).decode(errors="replace"))

    def _encoded(self, text: str) -> hf.Encoding:
        try:
            return self._inner.encode(text, add_special_tokens=False)
        except TypeError:
            raise _not_text([text]) from None

    @staticmethod
    def _ragged(encodings: Sequence[hf.Encoding]) -> Ragged:
        ids: list[int] = []
        ends = [0]
        for encoding in encodings:
            ids += encoding.ids
            ends.append(len(ids))
        return Ragged(np.array(ids, dtype=np.int32), np.array(ends, dtype=np.int64))

    def _token(self, id: int) -> str:
        return self._inner.id_to_token(id) or ""

    @cached_property
    def _content(self) -> list[bytes]:
        """What each token adds to the text."""
        silent = self._special - {self.unknown}
        tokens = ["" if id in silent else self._token(id) for id in range(len(self))]
        if self.kind != "bpe":
            return [token.encode() for token in tokens]
        byte_of = {character: bytes([byte]) for character, byte in _byte_characters().items()}
        return [b"".join(byte_of[character] for character in token) for token in tokens]

    def _contents(self, ids: Sequence[int]) -> list[bytes]:
        contents = [self._content[id] for id in ids]
        if self.kind != "word":
            return contents
        before = ""
        for i, content in enumerate(contents):
            word = content.decode()
            if before and word and word not in _NO_SPACE_BEFORE and before not in _NO_SPACE_AFTER:
                contents[i] = b" " + content
            before = word or before
        return contents

    @cached_property
    def _bytes_of_token(self) -> Ragged:
        """The tokens of the single bytes that each token is merged from."""
        single = np.zeros(256, dtype=np.int32)
        for character, byte in _byte_characters().items():
            single[byte] = _id_of(self._inner, character)
        sizes = [len(content) for content in self._content]
        content = np.frombuffer(b"".join(self._content), dtype=np.uint8)
        return Ragged(single[content], np.r_[0, np.cumsum(sizes)])

    @cached_property
    def _merges(self) -> Merges:
        model: dict[str, Any] = json.loads(self._inner.to_str())["model"]
        id_of = model["vocab"]
        rules = [(id_of[left], id_of[right], id_of[left + right]) for left, right in model["merges"]]
        return Merges.of(rules, len(self))


def ranges(starts: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """start, start + 1, … for each start and size, end to end."""
    ends = np.cumsum(sizes)
    return np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - (ends - sizes), sizes)


def cut(text: str, size: int) -> Iterator[str]:
    """A long text in parts of about this many characters, whose tokens are those of the whole.

    Every kind of tokenizer starts a new word at a space or newline after something else, and nothing looks behind.
    """
    start = 0
    while len(text) - start > size:
        match = _CUT.search(text, start + size)
        if match is None:
            break
        yield text[start : match.start()]
        start = match.start()
    yield text[start:] if start else text


_CUT = re.compile(r"(?<=\S)[ \n]")


def _portions(texts: Iterable[str]) -> Iterator[list[str]]:
    """Texts in lists, as the library likes them, long ones cut: that much is in memory at a time."""
    portion: list[str] = []
    held = read = 0
    for text in texts:
        for part in cut(text, _PORTION // 16):
            portion.append(part)
            held += len(part)
            if held >= _PORTION:
                yield portion
                portion, held, read = [], 0, read + held
    yield portion
    if read + held == 0:
        raise UserError("there is no text to train a tokenizer on")


def _special_tokens(kind: str, vocabulary: int, roles: Sequence[str], normalise: str) -> list[hf.AddedToken]:
    for value, known in ((kind, get_args(Kind)), (normalise, get_args(Normalise))):
        if value not in known:
            raise UserError(f'a tokenizer can not be "{value}": {nearest(value, known)}')
    names = [PAD, START, END] if kind == "bpe" else [PAD, START, END, UNKNOWN]
    for role in roles:
        # Letters between angle brackets: no word of any kind of tokenizer mixes the two, so no text makes this token.
        if not re.fullmatch(r"[A-Za-z]+", role) or f"<{role}>" in names:
            raise UserError(f'"{role}" cannot be a role: take a word of Latin letters that no other token has')
        names.append(f"<{role}>")
    least = len(names) + (256 if kind == "bpe" else 1)
    if vocabulary < least:
        what = "256 bytes and" if kind == "bpe" else "one token and"
        raise UserError(f"a vocabulary of {vocabulary:,} cannot hold {what} {', '.join(names)}: take at least {least}")
    return [hf.AddedToken(name, special=True, normalized=False) for name in names]


def _kind_of(inner: hf.Tokenizer) -> Kind:
    if isinstance(inner.model, models.BPE):
        return "bpe"
    return "character" if isinstance(inner.decoder, decoders.Fuse) else "word"


def _id_of(inner: hf.Tokenizer, token: str) -> int:
    id = inner.token_to_id(token)
    if id is None:
        raise UserError(f'this tokenizer has no "{token}", so seq2see did not train it: train one on your text')
    return id


def _byte_characters() -> dict[str, int]:
    """The printable character that stands for each byte in a byte-level vocabulary: itself, or one from U+0100 on."""
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in shown]
    return {chr(byte): byte for byte in shown} | {chr(0x100 + i): byte for i, byte in enumerate(hidden)}


def _not_text(texts: Sequence[str]) -> Exception:
    """Half a surrogate pair is the one thing in a Python string that is no Unicode text."""
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            return TypeError(f"text number {number} is {type(text).__name__}, not str")
        for place, character in enumerate(text):
            if "\ud800" <= character <= "\udfff":
                return UserError(
                    f"text number {number + 1} has U+{ord(character):04X} at character {place + 1}, which is half a "
                    "character and no UTF-8: read the file as UTF-8"
                )
    return TypeError("not text")
