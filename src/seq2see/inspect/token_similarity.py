"""How near vectors are: of the tokens of one sentence at any place, and of one word in several sentences."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from seq2see.errors import UsageError, UserError, nearest
from seq2see.inspect.explain import Explanation
from seq2see.inspect.trace import trace
from seq2see.layout import Packed
from seq2see.pipeline import Pipeline
from seq2see.similarity import Measure
from seq2see.similarity import similarities as table
from seq2see.text.token_spans import Piece
from seq2see.text.word_spans import marks_apart


def similarities(e: Explanation, place: str, measure: Measure = "cosine") -> Tensor:
    """Every token's vector against every other's, [tokens, tokens], at any place of the trace that has one vector a token.

    dot: a · b.  cosine: a · b / (|a| |b|), from −1 to 1.  scaled: a · b / √width, as attention scores are scaled.
    Heads that a token has side by side, as in `encoder.0.self.queries`, count as one long vector.
    """
    axes = e.trace.quantity(place).axes if place in e.trace else ()
    if len(axes) < 2 or "token" not in axes[0]:
        known = [name for name in e.trace.names() if e.trace.quantity(name).axes == ("token", "width")]
        raise UsageError(f'"{place}" has no vector of each token: {nearest(place, known)}')
    vectors = e.trace[place, 0].float().cpu().flatten(1)
    return table(vectors, vectors, measure)


@dataclass(frozen=True, eq=False)
class Senses:
    """One word in several sentences, n times in all. A word of several tokens has their mean vector."""

    word: str
    sentences: tuple[str, ...]  # of each occurrence
    places: tuple[str, ...]  # the embedding, with its position, and what leaves each block and the stack
    vectors: Tensor  # [places, n, width]
    static: Tensor  # [width]: E[word] without any sentence, scaled as the model scales it
    cosines: Tensor  # [places, n, n]: of the occurrences with each other
    to_static: Tensor  # [places, n]: of each with the static vector


@torch.no_grad()
def senses(model: Pipeline, word: str, sentences: Sequence[str]) -> Senses:
    """A word's vectors layer by layer, as the encoder, or a decoder alone, makes them out of its neighbours.

    Occurrences are whole words, great letters or small. Where two senses part, their cosine falls from 1 in the embedding
    (which does not know the sentence) to less in the layers above.
    """
    stack = "encoder" if model.config.model.has_encoder else "decoder"
    tokenizer = model.tokenizers[0]
    pieces = [tokenizer.pieces(sentence) for sentence in sentences]
    found = [
        (number, span)
        for number, sentence in enumerate(sentences)
        for span in marks_apart(sentence)
        if sentence[slice(*span)].casefold() == word.casefold()
    ]
    if not found:
        raise UserError(f'"{word}" is no word of the {len(sentences)} sentences given')
    lead = [] if stack == "encoder" else [tokenizer.start]
    tail = [tokenizer.end] if stack == "encoder" else []
    packed = Packed.of([[*lead, *(p.id for p in own), *tail] for own in pieces], model.network.embedding.weight.device)
    with trace(model.network) as t:
        if stack == "encoder":  # without a decoder there is nothing to write
            model.network.encode(packed, model.network.taps())
        else:
            model.network(packed)
    places = _places(model, stack)
    rows = [[len(lead) + i for i in _covering(pieces[number], span)] for number, span in found]
    vectors = torch.stack(
        [
            torch.stack(
                [t[place, number][own].float().cpu().mean(0) for (number, _), own in zip(found, rows, strict=True)]
            )
            for place in places
        ]
    )  # [places, n, width]
    static = vectors[0, 0]
    near = torch.stack([table(x, x, "cosine") for x in vectors])
    return Senses(
        word, tuple(sentences[number] for number, _ in found), places, vectors, static, near,
        F.cosine_similarity(vectors, static.expand_as(vectors), dim=-1),
    )  # fmt: skip


def _places(model: Pipeline, stack: str) -> tuple[str, ...]:
    config = model.config.model
    if config.kind != "transformer":
        return (f"{stack}.embedded", *(f"{stack}.{n}.states" for n in range(config.encoder_layers)))
    layers = config.encoder_layers if stack == "encoder" else config.decoder_layers
    last = "sum" if config.norm_first else "norm.output"
    ends = [f"{stack}.vectors"] if config.norm_first else []
    return (f"{stack}.embedded", f"{stack}.input", *(f"{stack}.{n}.feed_forward.{last}" for n in range(layers)), *ends)


def _covering(pieces: Sequence[Piece], span: tuple[int, int]) -> list[int]:
    return [i for i, piece in enumerate(pieces) if piece.start < span[1] and span[0] < piece.end]
