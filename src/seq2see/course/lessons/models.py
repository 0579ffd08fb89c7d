"""Helpers for lessons that inspect a model: choosing the model, running a sentence through it, comparing vectors."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from seq2see.api import Model, load
from seq2see.course.lessons.document import Table
from seq2see.data.word_spans import wordpunct_spans
from seq2see.decode.search import Search
from seq2see.errors import UserError
from seq2see.inspect.explain import Explanation, explain
from seq2see.inspect.interventions import Intervention
from seq2see.inspect.logit_lens import alternatives
from seq2see.model.layers import Block
from seq2see.model.transformer import Transformer
from seq2see.storage.bundled import GRAMMAR, LANGUAGE_MODEL, bundled_model, bundled_names
from seq2see.storage.pipeline import with_article

HIDDEN_STEPS = (".mean", ".variance", ".mean_square", "norm.input", ".scaled", ".concatenated")  # too detailed to list


def resolve_model(model: Model | None, default: str = GRAMMAR) -> Model:
    """Returns the given model, which must be a Transformer, or a bundled one."""
    if model is not None and model.config.model.kind != "transformer":
        raise UserError(
            f'the lessons inspect Transformers, but this model is of kind "{model.config.model.kind}": choose another'
        )
    return model or _bundled(default)


@cache
def _bundled(name: str) -> Model:
    return load(bundled_model(name))


def resolve_translator(model: Model | None) -> Model:
    chosen = resolve_model(model)
    if chosen.config.model.shape != "encoder-decoder":
        raise UserError(
            f"this lesson needs an encoder-decoder, but this model is {with_article(chosen.config.model.shape)}: "
            "choose another"
        )
    return chosen


def resolve_decoder(model: Model | None) -> Model:
    chosen = resolve_model(model)
    if not chosen.config.model.has_decoder:
        raise UserError("this lesson needs a model with a decoder, but this model is an encoder: choose another")
    return chosen


def find_language_model(model: Model) -> Model | None:
    """Returns the given model if it is a language model, else the bundled one, if there is one."""
    if model.config.model.shape == "decoder":
        return model
    return _bundled(LANGUAGE_MODEL) if LANGUAGE_MODEL in bundled_names() else None


def explain_next(model: Model, text: str) -> Explanation:
    """Explains a translation; of a language model, the text and the one token that it would add, in the last row."""
    if model.config.model.shape != "decoder":
        return explain_sentence(model, text)
    if not text.strip():
        raise UserError("the text is empty: give at least one word")
    return explain(model, text, search=Search(max_new_tokens=1))


def next_tokens(model: Model, text: str, count: int = 5) -> tuple[tuple[str, float], ...]:
    """Returns the most probable tokens after a text, by a language model."""
    e = explain_next(model, text)
    return tuple((each.token, each.probability) for each in alternatives(e, e.output_start, top=count))


def explain_sentence(
    model: Model, sentence: str, target: str | None = None, interventions: Sequence[Intervention] = ()
) -> Explanation:
    """Explains a sentence and its translation; a language model reads the sentence and generates nothing."""
    if not sentence.strip():
        raise UserError("the sentence is empty: give at least one word")
    if model.config.model.shape == "decoder" and target is None:
        target = ""
    return explain(model, sentence, target=target, interventions=interventions)


@dataclass(frozen=True)
class InputStack:
    """The stack that reads the input sentence: the encoder or, in a language model, the decoder."""

    name: str
    attention: str
    tokens: tuple[str, ...]  # including <end> or <start>
    layers: int

    @property
    def attention_names(self) -> tuple[str, ...]:
        """The trace names of its attentions, one per layer."""
        return tuple(f"{self.name}.{layer}.{self.attention}" for layer in range(self.layers))


def input_stack(e: Explanation) -> InputStack:
    config = e.model.config.model
    if config.has_encoder:
        return InputStack("encoder", "self", e.source_tokens, config.encoder_layers)
    return InputStack("decoder", "masked", e.decoder_input_tokens, config.decoder_layers)


@dataclass(frozen=True)
class Words:
    """The words of the input sentence, with the tokens of each; special tokens are words of their own."""

    labels: tuple[str, ...]
    tokens: tuple[tuple[int, ...], ...]

    def merge(self, weights: Tensor) -> Tensor:
        """Merges attention weights [..., n, n] by word: a word attends with the mean of its tokens, and receives their sum."""
        keys = torch.stack([weights[..., list(rows)].sum(-1) for rows in self.tokens], -1)  # [..., n, words]
        return torch.stack([keys[..., list(rows), :].mean(-2) for rows in self.tokens], -2)


def input_words(e: Explanation) -> Words:
    """Groups the tokens of the input stack by the words of the text."""
    stack, is_encoder = input_stack(e), e.model.config.model.has_encoder
    side = e.encoder if is_encoder else e.decoder
    spans, offset = side.spans, side.start
    word_spans = wordpunct_spans(e.source)
    groups: dict[int | str, list[int]] = {}  # by the word, or by a special token
    for token, label in enumerate(stack.tokens):
        span = spans[token - offset] if 0 <= token - offset < len(spans) else None
        # A token that is only a space belongs to the word after it.
        covered = [w for w, (_, b) in enumerate(word_spans) if span is not None and span.start < b]
        groups.setdefault(covered[0] if covered else f"{token} {label}", []).append(token)
    labels = [e.source[slice(*word_spans[key])] if isinstance(key, int) else key.partition(" ")[2] for key in groups]
    return Words(tuple(labels), tuple(map(tuple, groups.values())))


def block_steps(e: Explanation, block: str) -> Table:
    """Lists the steps of a block such as `encoder.0` in order of computation, with their shapes and formulas."""
    rows = []
    for name in e.trace.names(f"{block}.*"):
        if name.endswith(HIDDEN_STEPS) or (name.endswith(".masked") and ".masked." not in name):
            continue
        value = e.trace[name, 0]
        shape = " × ".join(f"{size:,}" for size in value.shape)
        rows.append((name.removeprefix(f"{block}."), shape, e.trace.quantity(name).formula))
    return Table(("step", "shape", "formula"), tuple(rows), f"The steps of {block}:")


def set_causal(model: Transformer, causal: bool) -> None:
    """Turns the mask of the decoder on or off."""
    assert model.decoder is not None
    for block in model.decoder.blocks:
        assert isinstance(block, Block)
        block.attention.causal = causal


def relative_change(before: Tensor, after: Tensor) -> tuple[float, ...]:
    """Computes ‖after − before‖ / ‖before‖ of each row."""
    before, after = before.flatten(1), after.flatten(1)
    return tuple(((after - before).norm(dim=-1) / before.norm(dim=-1).clamp_min(1e-12)).tolist())
