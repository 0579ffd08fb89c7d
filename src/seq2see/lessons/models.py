"""What the lessons that look into a model have in common: which model, and one sentence through it."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from seq2see.directory import Model, load
from seq2see.errors import UserError, nearest
from seq2see.look.intervene import Intervention, intervene
from seq2see.look.trace import Trace, trace
from seq2see.model.layout import Packed


def bundled(model: Model | None) -> Model:
    """The model that somebody brought, or the one that comes with seq2see."""
    return model or _bundled()


@cache
def _bundled() -> Model:
    return load()


@dataclass(frozen=True)
class Reading:
    """One open pass over a sentence and, of a translator, over its translation."""

    words: tuple[str, ...]  # readable tokens that the first stack read, <end> last where an encoder reads it
    reads: tuple[str, ...]  # that the decoder read: <start> …
    writes: tuple[str, ...]  # what it was to say at each place: … <end>
    written: tuple[int, ...]  # the same as ids
    trace: Trace
    stack: str  # "encoder", or "decoder" of a language model
    attention: str  # its self-attention: "self" or "masked"


@torch.no_grad()
def read(model: Model, sentence: str, target: str | None = None, changes: Sequence[Intervention] = ()) -> Reading:
    """Where no target is given, the model's own translation is."""
    source, words = model.tokenizers
    has_encoder, has_decoder = model.config.model.has_encoder, model.config.model.has_decoder
    pieces = source.pieces(sentence)
    if not pieces:
        raise UserError("a sentence without words: give at least one")
    names = tuple(piece.text.strip() for piece in pieces)
    ids = [piece.id for piece in pieces]
    out = []
    if has_encoder and has_decoder:
        with intervene(model.transformer, *changes):
            out = words.pieces(model.translate([sentence])[0] if target is None else target)
    with intervene(model.transformer, *changes), trace(model.transformer) as t:
        if not has_encoder:
            made = (*ids, words.end)
            model.transformer(Packed.of([[words.start, *ids]]))
            return Reading(("<start>", *names), ("<start>", *names), (*names, "<end>"), made, t, "decoder", "masked")
        packed = Packed.of([[*ids, source.end]])
        if not has_decoder:
            model.transformer(packed)
            return Reading((*names, "<end>"), (), (), (), t, "encoder", "self")
        model.transformer(packed, Packed.of([[words.start, *(piece.id for piece in out)]]))
    said = tuple(piece.text.strip() for piece in out)
    written = (*(piece.id for piece in out), words.end)
    return Reading((*names, "<end>"), ("<start>", *said), (*said, "<end>"), written, t, "encoder", "self")


def place_of(word: str, words: Sequence[str]) -> int:
    """Where a word stands; its last place if it comes twice."""
    if word not in words:
        raise UserError(f'"{word}" is not in "{" ".join(words)}": {nearest(word, words)}')
    return len(words) - 1 - list(words)[::-1].index(word)


def layers(model: Model, stack: str) -> int:
    config = model.config.model
    return config.encoder_layers if stack == "encoder" else config.decoder_layers


def moved(before: Tensor, after: Tensor) -> tuple[float, ...]:
    """How far each row is from where it was, in parts of its length."""
    before, after = before.flatten(1), after.flatten(1)
    return tuple(((after - before).norm(dim=-1) / before.norm(dim=-1).clamp_min(1e-12)).tolist())
