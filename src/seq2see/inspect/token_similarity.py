"""Similarity of vectors: of the tokens of one sentence at any tap, and of one word in several sentences."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from seq2see.data.layout import Packed
from seq2see.data.word_spans import wordpunct_spans
from seq2see.errors import UsageError, UserError, did_you_mean
from seq2see.inspect.embedding_space import Stack, layer_names
from seq2see.inspect.explain import Explanation, takes_explanation
from seq2see.inspect.similarity import Measure, similarities
from seq2see.inspect.trace import trace
from seq2see.storage.pipeline import Pipeline


@takes_explanation
def token_similarity(e: Explanation, name: str, measure: Measure = "cosine") -> Tensor:
    """Compares every token's vector with every other's, [tokens, tokens], at any tap with one vector per token.

    dot: a · b.  cosine: a · b / (|a| |b|), from −1 to 1.  scaled: a · b / √width, like attention scores.
    The heads of a token, as in `encoder.0.self.queries`, are concatenated to one vector.
    """
    axes = e.trace.quantity(name).axes if name in e.trace else ()
    if len(axes) < 2 or "token" not in axes[0] or axes[1] == "1":
        known = [other for other in e.trace.names() if e.trace.quantity(other).axes == ("token", "width")]
        raise UsageError(f'"{name}" does not have one vector per token: {did_you_mean(name, known)}')
    vectors = e.trace[name, 0].float().cpu().flatten(1)
    return similarities(vectors, vectors, measure)


@dataclass(frozen=True, eq=False)
class ContextualEmbeddings:
    """The n occurrences of a word in several sentences. A word of several tokens has their mean vector."""

    word: str
    sentences: tuple[str, ...]  # one per occurrence
    layers: tuple[str, ...]  # tap names: embedding, input with positions, output of each block and of the stack
    vectors: Tensor  # [layers, n, width]
    static_embedding: Tensor  # [width]: E[word], scaled as in the model
    cosines: Tensor  # [layers, n, n]: between occurrences
    cosines_to_static: Tensor  # [layers, n]: of each occurrence with the static embedding


@torch.no_grad()
def contextual_embeddings(model: Pipeline, word: str, sentences: str | Sequence[str]) -> ContextualEmbeddings:
    """Returns a word's vectors in each layer of the encoder, or of a decoder-only model.

    Occurrences are whole words, case-insensitive. For two senses of a word, the cosine falls from 1 in the embedding, which
    does not depend on the sentence, to lower values in the layers above.
    """
    sentences = [sentences] if isinstance(sentences, str) else sentences
    stack: Stack = "encoder" if model.config.model.has_encoder else "decoder"
    if model.config.model.source != "tokens":
        raise UserError(f"words are in texts, but this model reads {model.config.model.source}: use token_paths")
    tokenizer, framing = model.tokenizers[0], model.tokenizers[0].framing
    before, after = (framing.before, framing.after) if stack == "encoder" else (framing.prompt, ())
    spans = [tokenizer.token_spans(sentence) for sentence in sentences]
    found = [  # the sentence of each occurrence, and its rows
        (i, [row for row, token in enumerate(spans[i], len(before)) if token.start < end and start < token.end])
        for i, sentence in enumerate(sentences)
        for start, end in wordpunct_spans(sentence)
        if sentence[start:end].casefold() == word.casefold()
    ]
    if not found:
        raise UserError(f'the word "{word}" does not occur in the {len(sentences)} given sentences')
    read = {spans[i][row - len(before)].id for i, rows in found for row in rows}
    if tokenizer.unknown in read:
        raise UserError(
            f'"{word}" is not in the vocabulary of the model: its vector would be that of every unknown word'
        )
    ids = [[*before, *(span.id for span in sentence), *after] for sentence in spans]
    packed = Packed.from_sequences(ids, model.network.embedding.weight.device)
    with trace(model.network) as t:
        if stack == "encoder":  # the decoder is not needed
            model.network.encode(packed, model.network.taps())
        else:
            model.network(packed)
    layers = layer_names(model, stack)
    by_layer = [torch.stack([t[layer, i][rows].float().cpu().mean(0) for i, rows in found]) for layer in layers]
    vectors = torch.stack(by_layer)  # [layers, n, width]
    static = vectors[0, 0]
    cosines = torch.stack([similarities(x, x) for x in vectors])
    to_static = F.cosine_similarity(vectors, static.expand_as(vectors), dim=-1)
    occurrences = tuple(sentences[i] for i, _ in found)
    return ContextualEmbeddings(word, occurrences, layers, vectors, static, cosines, to_static)
