"""Explanations: a model's output and every number that led to it.

    e = model.explain("How are you?", beam=4)
    e.trace["decoder.1.cross.weights", 0]           # [heads, rows, source tokens]
    attention_rollout(e, "encoder"), logit_lens(e), logit_attribution(e, row=2)

The model first decodes as usual, fast and with its cache. Then one traced forward pass over the source and the finished
output records all steps at once: row t of the decoder sees the tokens up to t and predicts the next one, exactly as it did
during decoding. With a given target nothing is decoded, and the rows show how likely each of its tokens is, and why. The
analyses live in their own files and take an explanation.
"""

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from seq2see.config import ModelConfig
from seq2see.data.layout import Packed
from seq2see.data.token_spans import TokenSpan
from seq2see.data.tokenizer import Tokenizer
from seq2see.decode.engine import generate_tokens, translate_tokens
from seq2see.decode.search import Hypothesis, Search
from seq2see.decode.session import SpecialTokens
from seq2see.errors import UsageError, UserError
from seq2see.inspect.interventions import Intervention, intervene
from seq2see.inspect.trace import Trace, trace
from seq2see.model.transformer import Transformer
from seq2see.storage.assessment import Assessment
from seq2see.storage.pipeline import Pipeline

T = TypeVar("T")

DEFAULT_NEW_TOKENS = 20  # of a language model, unless the search sets max_new_tokens


@dataclass(frozen=True, eq=False)
class Explanation:
    """One output with its trace.

    Rows are those of the decoder: row t sees decoder_input_tokens[: t + 1] and predicts target_tokens[t].
    """

    model: Pipeline  # the model that ran; the interventions below no longer act on it
    source: str  # the given text, or the path of a picture or sound; for a language model, the prompt
    output: str  # the translation or continuation
    source_tokens: tuple[
        str, ...
    ]  # readable, ending in <end>; places in a picture or sound; empty for a language model
    decoder_input_tokens: tuple[str, ...]  # <start> y1 … yn; for a language model, <start> prompt y1 … yn
    target_tokens: tuple[str, ...]  # decoder_input_tokens shifted by one: y1 … yn <end>
    source_ids: tuple[int, ...]  # of patches or frames, their numbers
    decoder_input_ids: tuple[int, ...]
    target_ids: tuple[int, ...]
    output_start: int  # the row that predicts the first output token: 0, or the prompt length of a language model
    source_start: int  # number of special tokens before the source, and before the text in the decoder's input
    prompt_length: int
    source_spans: tuple[TokenSpan, ...]  # character spans of the source tokens, without special tokens
    output_spans: tuple[TokenSpan, ...]  # spans of the output; for a language model, of prompt and output together
    hypothesis: Hypothesis | None  # None if the target was given
    interventions: tuple[Intervention, ...]
    trace: Trace  # of one forward pass over source and output: trace["decoder.1.cross.weights", 0] …
    source_rows: NDArray[Any] | None = None  # what the encoder read of a picture or sound, [U, F]

    @cached_property
    def logprobs(self) -> Tensor:
        """ln P(token | tokens up to the row), [rows, vocabulary]; of an encoder, ln P(token | all tokens)."""
        if not self.model.config.model.predicts_tokens:
            raise UserError("this encoder has no head for masked tokens, and so no logits")
        return self.trace["logits", 0].float().cpu().log_softmax(-1)

    @cached_property
    def target_logprobs(self) -> Tensor:
        """ln P of each row's target token, [rows]; an encoder has no rows."""
        if not self.target_ids:
            return torch.zeros(0)
        return self.logprobs.gather(1, torch.tensor(self.target_ids)[:, None])[:, 0]

    @cached_property
    def assessment(self) -> Assessment:
        """The words of the source that the model does not know, and its confidence in the output."""
        logprobs = self.target_logprobs[self.output_start :]
        return self.model.assess(self.source, float(logprobs.mean()) if len(logprobs) else 0.0)

    def resolve_row(self, row: int) -> int:
        """Returns a row index, counting from the end if negative."""
        rows = len(self.decoder_input_tokens)
        if not -rows <= row < rows:
            raise UsageError(f"row {row} is out of range: the output has {rows} rows, numbered from 0")
        return row % rows

    def require_transformer(self, analysis: str) -> Transformer:
        """Returns the network, for an analysis that is defined only for Transformers."""
        network = self.model.network
        if not isinstance(network, Transformer):
            raise UserError(
                f'{analysis} is only defined for Transformers, but this model is of kind "{network.config.kind}"'
            )
        return network

    def require_output(self, analysis: str) -> None:
        """For an analysis of the output, which an encoder does not have."""
        if not self.model.config.model.has_decoder:
            raise UserError(f"{analysis} needs an output, but this model is an encoder")

    def token_label(self, id: int) -> str:
        """Returns a token of the output vocabulary in readable form."""
        return token_labels(self.model.tokenizers[1], [id])[0]

    def to_dict(self) -> dict[str, Any]:
        """Returns all analyses as plain values."""
        from seq2see.inspect.export import to_dict

        return to_dict(self)

    def _repr_html_(self) -> str:
        from seq2see.inspect.notebook import explanation_html

        return explanation_html(self)


@torch.no_grad()
def explain(
    model: Pipeline, text: str, *, target: str | None = None, interventions: Sequence[Intervention] = (),
    search: Search | None = None,
) -> Explanation:  # fmt: skip
    """Decodes a text, or takes the given target, and traces it; under interventions, if any."""
    if not model.config.model.has_decoder:
        with intervene(model.network, *interventions):
            return _explain_encoder(model, text, tuple(interventions))
    search = replace(search or Search(), window="stop")  # one pass cannot cover an output longer than the window
    with intervene(model.network, *interventions):
        if model.config.model.shape == "decoder":
            return _explain_language_model(model, text, target, tuple(interventions), search)
        return _explain_translation(model, text, target, tuple(interventions), search)


def _explain_encoder(model: Pipeline, text: str, interventions: tuple[Intervention, ...]) -> Explanation:
    """Traces an encoder, which has no output and so no rows."""
    if model.config.model.source != "tokens":
        raise UserError(
            f"explain needs a decoder, and this model is an encoder of {model.config.model.source}: use seq2see.trace on its "
            "network, as in docs/media.md"
        )
    tokenizer = model.tokenizers[0]
    spans = tokenizer.token_spans(text)
    ids, framing = tokenizer.frame_source(span.id for span in spans), tokenizer.framing
    limit = model.config.model.max_positions
    if len(ids) > limit:
        raise UserError(f"{len(ids):,} tokens to explain, but the model has {limit:,} positions: shorten the text")
    with trace(model.network) as t:
        model.network(Packed.from_sequences([ids], model.network.embedding.weight.device))
    labels = (
        *token_labels(tokenizer, framing.before),
        *map(span_label, spans),
        *token_labels(tokenizer, framing.after),
    )
    return Explanation(
        model=model, source=text, output="", source_tokens=labels, decoder_input_tokens=(), target_tokens=(),
        source_ids=tuple(ids), decoder_input_ids=(), target_ids=(), output_start=0, source_start=len(framing.before),
        prompt_length=0, source_spans=tuple(spans), output_spans=(), hypothesis=None, interventions=interventions, trace=t,
    )  # fmt: skip


def _explain_translation(
    model: Pipeline, text: str, target: str | None, interventions: tuple[Intervention, ...], search: Search
) -> Explanation:
    model = model.with_detected_language(text)
    source_tokenizer, tokenizer = model.tokenizers
    source = model.encode_source(text)
    rows = source if isinstance(source, np.ndarray) else None
    source_spans = source_tokenizer.token_spans(text) if rows is None else []
    hypothesis = None
    if target is None:
        special_tokens = SpecialTokens.from_tokenizer(tokenizer)
        hypothesis = translate_tokens(model.network, [source], special_tokens, search)[0][0]
        spans = tokenizer.token_spans_from_ids(list(hypothesis.tokens))
        target = tokenizer.decode(hypothesis.tokens)
    else:
        spans = tokenizer.token_spans(target)
    prompt = tokenizer.framing.prompt
    inputs, targets = _shift(_ids(tokenizer, prompt, (span.id for span in spans), hypothesis))
    with trace(model.network) as t:
        device = model.network.embedding.weight.device
        model.network(Packed.from_sequences([source], device), Packed.from_sequences([inputs], device))
    before = source_tokenizer.framing.before if rows is None else ()
    decoder_input_tokens, target_tokens = _shift(_labels(tokenizer, prompt, spans, hypothesis))
    return Explanation(
        model=model, source=text, output=target,
        source_tokens=(
            *token_labels(source_tokenizer, before), *map(span_label, source_spans),
            *token_labels(source_tokenizer, source_tokenizer.framing.after),
        ) if rows is None else place_labels(model.config.model, len(rows)),
        decoder_input_tokens=decoder_input_tokens, target_tokens=target_tokens,
        source_ids=tuple(source if rows is None else range(len(rows))),
        decoder_input_ids=inputs, target_ids=targets, output_start=len(prompt) - 1,
        source_start=len(before), prompt_length=len(prompt), source_spans=tuple(source_spans), output_spans=tuple(spans),
        hypothesis=hypothesis, interventions=interventions, trace=t, source_rows=rows,
    )  # fmt: skip


def place_labels(config: ModelConfig, count: int) -> tuple[str, ...]:
    """Returns where each patch or pair of frames is: row and column of the picture, or the time in seconds."""
    if config.source == "pictures":
        return tuple(f"row {i % config.patch_rows}, column {i // config.patch_rows}" for i in range(count))
    return tuple(f"{i / 50:.2f} s" for i in range(count))


def _explain_language_model(
    model: Pipeline, prompt: str, target: str | None, interventions: tuple[Intervention, ...], search: Search
) -> Explanation:
    tokenizer = model.tokenizers[1]
    prompt_ids, hypothesis = tokenizer.encode(prompt), None
    if target is None:
        search = replace(search, max_new_tokens=search.max_new_tokens or DEFAULT_NEW_TOKENS)
        special_tokens = SpecialTokens.from_tokenizer(tokenizer)
        hypothesis = generate_tokens(model.network, [prompt_ids], special_tokens, search)[0][0]
        ids = [*prompt_ids, *hypothesis.tokens]
        target = tokenizer.decode(hypothesis.tokens, continues=True)
    else:
        ids = [*prompt_ids, *tokenizer.encode(target)]
    spans = tokenizer.token_spans_from_ids(ids)
    first = tokenizer.frame_prompt(prompt_ids)[: -len(prompt_ids) or None]
    inputs, targets = _shift(_ids(tokenizer, first, ids, hypothesis))
    window = model.config.model.max_positions
    if len(inputs) > window:
        raise UserError(
            f"{len(inputs):,} tokens to explain, but the model's context window is {window:,}: shorten the text"
        )
    with trace(model.network) as t:
        model.network(Packed.from_sequences([inputs], model.network.embedding.weight.device))
    decoder_input_tokens, target_tokens = _shift(_labels(tokenizer, first, spans, hypothesis))
    return Explanation(
        model=model, source=prompt, output=target,
        source_tokens=(),
        decoder_input_tokens=decoder_input_tokens, target_tokens=target_tokens,
        source_ids=(), decoder_input_ids=inputs, target_ids=targets,
        output_start=max(len(first) + len(prompt_ids) - 1, 0), source_start=0, prompt_length=len(first),
        source_spans=(), output_spans=tuple(spans),
        hypothesis=hypothesis, interventions=interventions, trace=t,
    )  # fmt: skip


def _ids(tokenizer: Tokenizer, prompt: Sequence[int], ids: Iterable[int], hypothesis: Hypothesis | None) -> list[int]:
    """Returns all tokens that the decoder reads or predicts; no <end> if the search stopped at its limit."""
    return [*prompt, *ids, *[tokenizer.end] * _has_end(hypothesis)]


def _labels(
    tokenizer: Tokenizer, prompt: Sequence[int], spans: Sequence[TokenSpan], hypothesis: Hypothesis | None
) -> list[str]:
    end = token_labels(tokenizer, [tokenizer.end] * _has_end(hypothesis))
    return [*token_labels(tokenizer, prompt), *map(span_label, spans), *end]


def _has_end(hypothesis: Hypothesis | None) -> bool:
    return hypothesis is None or hypothesis.finished


def _shift(tokens: Sequence[T]) -> tuple[tuple[T, ...], tuple[T, ...]]:
    """Returns the decoder's inputs and what it predicts at each."""
    return tuple(tokens[:-1]), tuple(tokens[1:])


@torch.no_grad()
def rerun(e: Explanation, *interventions: Intervention) -> Explanation:
    """Runs the same tokens through the model again under these interventions, without decoding."""
    network = e.model.network
    device = network.embedding.weight.device
    source = e.source_ids if e.source_rows is None else e.source_rows
    inputs = [Packed.from_sequences([ids], device) for ids in (source, e.decoder_input_ids) if len(ids)]
    with intervene(network, *interventions), trace(network) as t:
        network(*inputs)
    return replace(e, hypothesis=None, interventions=interventions, trace=t)


def beam_at_step(
    model: Pipeline, text: str, step: int, *, interventions: Sequence[Intervention] = (), search: Search
) -> list[Hypothesis]:
    """Returns the beam after `step` tokens, best first, with the scores at that step.

    The search is repeated with max_new_tokens=step and returns its whole beam: unfinished hypotheses, scored at their
    current length, ranked together with finished ones (`finished` is True). A search that ends earlier returns its last beam.
    """
    if step < 1:
        raise UsageError(f"step {step} is out of range: steps are numbered from 1")
    search = replace(search, nbest=search.beam, max_new_tokens=step, window="stop")
    tokenizer = model.tokenizers[1]
    special_tokens = SpecialTokens.from_tokenizer(tokenizer)
    network = model.network
    with intervene(network, *interventions):
        if model.config.model.shape == "decoder":
            return generate_tokens(network, [tokenizer.encode(text)], special_tokens, search)[0]
        return translate_tokens(network, [model.encode_source(text)], special_tokens, search)[0]


def span_label(span: TokenSpan) -> str:
    """Returns a token as a table label: without surrounding spaces, unless it is only spaces.

    A lone combining mark is put on a dotted circle.
    """
    return _label(span.text)


def _label(text: str) -> str:
    text = escape_control(text.strip(" ") or text.replace(" ", "␣") or "∅")
    return f"◌{text}" if unicodedata.category(text[0])[0] == "M" else text


def token_labels(tokenizer: Tokenizer, ids: Sequence[int]) -> list[str]:
    """Returns tokens in readable form, each on its own."""
    return [_label(tokenizer.token_text(id)) for id in ids]


_WHITESPACE = {"\n": "⏎", "\r": "␍", "\t": "⇥"}
_JOINERS = "\u200c\u200d"


def escape_control(text: str) -> str:
    """Replaces control characters by visible names, so that a terminal does not interpret them."""
    return "".join(_WHITESPACE.get(c) or (c if c.isprintable() or c in _JOINERS else f"⟨U+{ord(c):04X}⟩") for c in text)
