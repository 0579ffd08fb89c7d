"""SentencePiece models, rebuilt as tokenizers of the `tokenizers` library, which also gives the span of each token.

A `.spm` or `.model` file is a protocol buffer; the few fields needed here are read directly. Unigram models and BPE models
are supported, with SentencePiece's normalisation, its treatment of spaces, and its bytes for unknown characters.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import tokenizers as hf
from tokenizers import models, normalizers, pre_tokenizers

from seq2see.errors import UserError
from seq2see.tensors.files import require_regular_file

UNIGRAM, BPE = 1, 2
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6  # types of pieces
MAX_BYTES = 1 << 28
_HIDDEN = "\U000fabcd\U000fdcba"  # private characters, before the number of a piece that no text may contain


class Piece(NamedTuple):
    text: str
    score: float
    type: int = NORMAL


@dataclass(frozen=True)
class SentencePieceModel:
    pieces: Sequence[Piece]
    kind: int = UNIGRAM
    charsmap: bytes = b""  # the compiled rules of normalisation
    add_dummy_prefix: bool = True  # a space before the text
    remove_extra_whitespaces: bool = True
    byte_fallback: bool = False

    @classmethod
    def load(cls, path: Path) -> "SentencePieceModel":
        try:
            data = require_regular_file(path).read_bytes()
            if len(data) > MAX_BYTES:
                raise ValueError(f"it is larger than {MAX_BYTES:,} bytes")
            return cls._parse(data)
        except (OSError, ValueError, IndexError, struct.error) as error:
            raise UserError(f"{path} is not a SentencePiece model: {error}; is the download complete?") from error

    @classmethod
    def _parse(cls, data: bytes) -> "SentencePieceModel":
        pieces: list[Piece] = []
        options: dict[str, Any] = {}
        for number, value in _fields(data):
            if number == 1:
                fields = dict(_fields(value))
                text = bytes(fields[1]).decode()
                pieces.append(Piece(text, fields.get(2, 0.0), fields.get(3, NORMAL)))
            elif number == 2:  # how it was trained
                fields = dict(_fields(value))
                options |= {"kind": fields.get(3, UNIGRAM), "byte_fallback": bool(fields.get(35, 0))}
            elif number == 3:  # how text is normalised
                fields = dict(_fields(value))
                options |= {"charsmap": bytes(fields.get(2, b"")), "add_dummy_prefix": bool(fields.get(3, 1))}
                options["remove_extra_whitespaces"] = bool(fields.get(4, 1))
        if not pieces:
            raise ValueError("it has no pieces")
        if options.get("kind", UNIGRAM) not in (UNIGRAM, BPE):
            raise ValueError(f"its type is {options['kind']}, only 1 (Unigram) and 2 (BPE) are supported")
        return cls(pieces, **options)

    def tokenizer(self) -> hf.Tokenizer:
        """Returns an equivalent tokenizer with the same ids; pieces that text never contains are made unreachable."""
        backend = hf.Tokenizer(self._unigram() if self.kind == UNIGRAM else self._bpe())
        steps: list[Any] = [normalizers.Precompiled(self.charsmap)] if self.charsmap else []
        if self.remove_extra_whitespaces:
            steps += [
                normalizers.Replace(hf.Regex("^ +| +$"), ""),
                normalizers.Replace(hf.Regex(" {2,}"), " "),
            ]
        # Not Metaspace's own prefix, which is left out before a ▁ in the text.
        steps += [normalizers.Prepend("▁")] if self.add_dummy_prefix else []
        backend.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", "▁")])
        backend.pre_tokenizer = pre_tokenizers.Metaspace("▁", prepend_scheme="never", split=self.kind == UNIGRAM)
        added = [piece.text for piece in self.pieces if piece.type == USER_DEFINED]
        backend.add_tokens([hf.AddedToken(text, normalized=False, special=False) for text in added])
        return backend

    def _reachable(self) -> list[str]:
        hidden = (CONTROL, UNUSED, UNKNOWN)
        return [f"{_HIDDEN}{i}" if piece.type in hidden else piece.text for i, piece in enumerate(self.pieces)]

    def _unknown(self) -> int:
        return next((i for i, piece in enumerate(self.pieces) if piece.type == UNKNOWN), 0)

    def _unigram(self) -> models.Model:
        texts = self._reachable()
        vocabulary = [(text, piece.score) for text, piece in zip(texts, self.pieces, strict=True)]
        return models.Unigram(vocabulary, self._unknown(), self.byte_fallback)

    def _bpe(self) -> models.Model:
        """Byte-pair encoding: of all pairs of pieces that form a piece, the one with the best score is merged first."""
        texts = self._reachable()
        id_of = {text: i for i, text in enumerate(texts)}
        merges = []
        for i, (text, piece) in enumerate(zip(texts, self.pieces, strict=True)):
            if piece.type != NORMAL:
                continue
            splits = [(text[:n], text[n:]) for n in range(1, len(text))]
            pairs = [(left, right) for left, right in splits if left in id_of and right in id_of]
            pairs.sort(key=lambda pair: (id_of[pair[0]], id_of[pair[1]]))
            merges += [(-piece.score, i, n, pair) for n, pair in enumerate(pairs)]
        merges.sort()
        unknown = texts[self._unknown()]
        return models.BPE(
            id_of, [pair for *_, pair in merges], unk_token=unknown, fuse_unk=True, byte_fallback=self.byte_fallback
        )


def _fields(data: bytes | memoryview) -> Iterator[tuple[int, Any]]:
    """Yields the number and the value of each field of a protocol buffer message."""
    view, position = memoryview(data), 0
    while position < len(view):
        key, position = _varint(view, position)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, position = _varint(view, position)
            yield number, value
            continue
        size = {1: 8, 5: 4}.get(wire)
        if size is None:
            if wire != 2:
                raise ValueError(f"field {number} has the unknown wire type {wire}")
            size, position = _varint(view, position)
        if position + size > len(view):
            raise ValueError("it is truncated")
        content = view[position : position + size]
        position += size
        yield number, struct.unpack("<f", content)[0] if wire == 5 else content


def _varint(view: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = view[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, position
        shift += 7
        if shift > 63:
            raise ValueError("it has a number of more than 64 bits")
