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
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, wraps
from inspect import signature
from operator import index
from os import PathLike
from typing import Any, ParamSpec, Self, SupportsIndex, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from seq2see.config import ModelConfig
from seq2see.config.extensions import load_extension
from seq2see.data.layout import Packed, Tokens
from seq2see.data.token_spans import TokenSpan
from seq2see.data.tokenizer import Tokenizer
from seq2see.decode.generate import generate_tokens, translate_tokens
from seq2see.decode.search import Hypothesis, Search
from seq2see.errors import Notice, UsageError, UserError
from seq2see.inspect.interventions import Intervention, active_interventions, intervene
from seq2see.inspect.trace import Trace, trace
from seq2see.model.network import Network
from seq2see.model.transformer import Transformer
from seq2see.storage.assessment import Assessment
from seq2see.storage.pipeline import Pipeline

P = ParamSpec("P")
R = TypeVar("R")

DEFAULT_NEW_TOKENS = 20  # of a language model, unless the search sets max_new_tokens


@dataclass(frozen=True)
class TokenSequence:
    """What one side of the model reads: the tokens of a text, with special tokens before and after them."""

    text: str = ""
    ids: tuple[int, ...] = ()  # of patches or frames, their numbers
    labels: tuple[str, ...] = ()  # readable; of patches or frames, their places
    spans: tuple[TokenSpan, ...] = ()  # the characters of each token; special tokens have none
    start: int = 0  # the number of special tokens before the text

    @classmethod
    def of(
        cls, tokenizer: Tokenizer, text: str, spans: Sequence[TokenSpan], before: Sequence[int], after: Sequence[int]
    ) -> Self:
        labels = (*token_labels(tokenizer, before), *map(span_label, spans), *token_labels(tokenizer, after))
        return cls(text, (*before, *(span.id for span in spans), *after), labels, tuple(spans), len(before))


@dataclass(frozen=True, eq=False)
class Explanation:
    """One output with its trace.

    Rows are those of the decoder: row t sees decoder_input_tokens[: t + 1] and predicts target_tokens[t]. A classifier has one
    row, which predicts the class from the vector of the first patch.
    """

    model: Pipeline  # the model that ran; the interventions below no longer act on it
    source: str  # the given text, or the path of a picture or sound; for a language model, the prompt
    output: str  # the translation, continuation or class
    encoder: TokenSequence  # empty for a language model
    decoder: TokenSequence  # <start> y1 … yn <end>, which is read up to yn and predicted from y1 on; with the prompt
    output_start: int  # the row that predicts the first output token: 0, or the prompt length of a language model
    hypothesis: Hypothesis | None  # None if the target was given
    interventions: tuple[Intervention, ...]
    trace: Trace  # of one forward pass over source and output: trace["decoder.1.cross.weights", 0] …
    source_rows: NDArray[Any] | None = None  # what the encoder read of a picture or sound, [U, F]

    @property
    def source_tokens(self) -> tuple[str, ...]:
        return self.encoder.labels

    @property
    def source_ids(self) -> tuple[int, ...]:
        return self.encoder.ids

    @property
    def decoder_input_tokens(self) -> tuple[str, ...]:
        return self.decoder.labels[:-1]

    @property
    def decoder_input_ids(self) -> tuple[int, ...]:
        return self.decoder.ids[:-1]

    @property
    def target_tokens(self) -> tuple[str, ...]:
        return self.decoder.labels[1:]

    @property
    def target_ids(self) -> tuple[int, ...]:
        return self.decoder.ids[1:]

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
        row = to_index("row", row)
        if not -rows <= row < rows:
            raise UsageError(f"row {row} is out of range: the output has {rows} rows, numbered from 0")
        return row % rows

    @property
    def output_stack(self) -> str:
        """The stack whose vectors predict the output."""
        return "decoder" if self.model.config.model.has_decoder else "encoder"

    def require_transformer(self, analysis: str) -> Transformer:
        """Returns the network, for an analysis that is defined only for Transformers."""
        network = self.model.network
        if not isinstance(network, Transformer):
            raise UserError(
                f'{analysis} is only defined for Transformers, but this model is of kind "{network.config.kind}"'
            )
        return network

    def require_output(self, analysis: str) -> None:
        """For an analysis of the output, which an encoder does not have unless it is a classifier."""
        if not self.target_ids:
            raise UserError(f"{analysis} needs an output, but this model is an encoder")

    def token_label(self, id: int) -> str:
        """Returns a token of the output vocabulary in readable form."""
        return token_labels(self.model.tokenizers[1], [id])[0]

    def to_dict(self) -> dict[str, Any]:
        """Returns all analyses as plain values."""
        from seq2see.inspect.as_json import to_dict

        return to_dict(self)

    def _repr_html_(self) -> str:
        html: str = load_extension("notebook", "explanation")(self)
        return html


def to_index(what: str, value: SupportsIndex) -> int:
    try:
        return index(value)
    except TypeError as error:
        raise UsageError(f"{what} {value!r} is not a number: tokens have ids, as in e.target_ids") from error


def takes_explanation(analysis: Callable[P, R]) -> Callable[P, R]:
    """Says so when an analysis gets something else than an explanation, such as a text or several explanations."""
    parameters = signature(analysis).parameters

    @wraps(analysis)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        for name, value in (*zip(parameters, args, strict=False), *kwargs.items()):
            if name in parameters and parameters[name].annotation is Explanation and not isinstance(value, Explanation):
                what = f"{analysis.__name__} takes one explanation as {name}, not a {type(value).__name__}"
                hint = "call it for each of them" if isinstance(value, list | tuple) else "e = model.explain(text)"
                raise UserError(f"{what}: {hint}")
        return analysis(*args, **kwargs)

    return checked


@torch.no_grad()
def explain(
    model: Pipeline,
    text: str,
    *,
    target: str | None = None,
    interventions: Sequence[Intervention] = (),
    search: Search | None = None,
) -> Explanation:
    """Decodes a text, or takes the given target, and traces it; under interventions, if any."""
    require_text("text", text, model)
    require_text("target", target or "", model)
    interventions = (interventions,) if isinstance(interventions, Intervention) else tuple(interventions)
    search, config = replace(search or Search(), window="stop"), model.config.model  # a pass covers one window
    if config.shape == "decoder":
        search = replace(search, max_new_tokens=search.max_new_tokens or DEFAULT_NEW_TOKENS)
    with intervene(model.network, *interventions):
        interventions = active_interventions(model.network)  # also those of an outer block
        model = model.with_detected_language(text)
        source, encoder = _read_source(model, text)
        rows = source if isinstance(source, np.ndarray) else None
        hypothesis, decoder, output, output_start = None, TokenSequence(), "", 0
        if config.has_decoder or config.classifier:
            hypothesis = _search(model, source, text, search)[0] if target is None else None
        if config.has_decoder:
            decoder, output, output_start = _read_output(model, text, target or "", hypothesis)
        elif config.classifier:
            decoder = _read_class(model, encoder, target or "", hypothesis)
            output = decoder.text
        t = _trace(model.network, source, decoder.ids[:-1])
    return Explanation(model, text, output, encoder, decoder, output_start, hypothesis, interventions, t, rows)


def require_text(name: str, text: object, model: Pipeline) -> None:
    if not isinstance(text, str) and (model.config.model.source == "tokens" or not isinstance(text, PathLike)):
        raise UserError(f"explain takes one {name}, a string, not a {type(text).__name__}: call it for each text")


def _read_source(model: Pipeline, text: str) -> tuple[Tokens, TokenSequence]:
    """Returns what the encoder reads, if the model has one."""
    config, tokenizer = model.config.model, model.tokenizers[0]
    if not config.has_encoder:
        return (), TokenSequence()
    source = model.encode_source(text)
    if isinstance(source, np.ndarray):
        return source, TokenSequence(text, tuple(range(len(source))), place_labels(config, len(source)))
    if not config.has_decoder and len(source) > config.max_positions:
        limit = f"the model has {config.max_positions:,} positions"
        raise UserError(f"{len(source):,} tokens to explain, but {limit}: shorten the text")
    framing = tokenizer.framing
    return source, TokenSequence.of(tokenizer, text, tokenizer.token_spans(text), framing.before, framing.after)


def _search(model: Pipeline, source: Tokens, prompt: str, search: Search) -> list[Hypothesis]:
    """Decodes as usual, from the source or, with a language model, from the prompt."""
    network, tokenizer = model.network, model.tokenizers[1]
    if model.config.model.shape == "decoder":
        return generate_tokens(network, [tokenizer.encode(prompt)], tokenizer.framing, search)[0]
    return translate_tokens(network, [source], tokenizer.framing, search)[0]


def _read_output(
    model: Pipeline, prompt: str, target: str, hypothesis: Hypothesis | None
) -> tuple[TokenSequence, str, int]:
    """Returns what the decoder reads and predicts, the output alone, and the row that predicts its first token."""
    tokenizer, continues = model.tokenizers[1], model.config.model.shape == "decoder"
    prompt_ids = tokenizer.encode(prompt) if continues else []
    before = tokenizer.frame_prompt(prompt_ids)[: -len(prompt_ids) or None]
    if hypothesis is not None:
        target = tokenizer.decode(hypothesis.tokens, continues)
    ids = [*prompt_ids, *(tokenizer.encode(target) if hypothesis is None else hypothesis.tokens)]
    if hypothesis is None and tokenizer.unknown in ids[len(prompt_ids) :]:
        warnings.warn("the vocabulary lacks words of the target: they count as <unknown>", Notice, stacklevel=4)
    given = hypothesis is None and not continues
    spans = tokenizer.token_spans(target) if given else tokenizer.token_spans_from_ids(ids)
    end = [tokenizer.end] if hypothesis is None or hypothesis.finished else []  # none if it stopped at its limit
    decoder = TokenSequence.of(tokenizer, tokenizer.decode(ids) if continues else target, spans, before, end)
    rows, window = len(decoder.ids) - 1, model.config.model.max_positions
    if continues and rows > window:
        raise UserError(f"{rows:,} tokens to explain, but the model's context window is {window:,}: shorten the text")
    return decoder, target, max(len(before) + len(prompt_ids) - 1, 0)


def _read_class(model: Pipeline, encoder: TokenSequence, target: str, hypothesis: Hypothesis | None) -> TokenSequence:
    """Returns what a classifier predicts, one token, after what it predicts that from: the first patch or frame."""
    tokenizer = model.tokenizers[1]
    ids = tokenizer.encode(target) if hypothesis is None else hypothesis.tokens
    if len(ids) != 1 or tokenizer.unknown in ids:
        raise UserError(f'"{target}" is not a class of this model, which are single tokens of its vocabulary')
    labels = encoder.labels[0], *token_labels(tokenizer, ids)
    return TokenSequence(tokenizer.decode(ids), (encoder.ids[0], *ids), labels, start=1)


def _trace(network: Network, source: Tokens, decoder_input: Sequence[int]) -> Trace:
    inputs = [tokens for tokens in (source, decoder_input if network.config.has_decoder else ()) if len(tokens)]
    with trace(network) as t:
        network(*(Packed.from_sequences([tokens], network.embedding.weight.device) for tokens in inputs))
    return t


def place_labels(config: ModelConfig, count: int) -> tuple[str, ...]:
    """Returns where each patch or pair of frames is: row and column of the picture, or the time in seconds."""
    if config.source == "pictures":
        return tuple(f"row {i % config.patch_rows}, column {i // config.patch_rows}" for i in range(count))
    return tuple(f"{i / 50:.2f} s" for i in range(count))


@torch.no_grad()
@takes_explanation
def rerun(e: Explanation, *interventions: Intervention) -> Explanation:
    """Runs the same tokens through the model again without decoding, under these interventions and those of an outer block,
    but not those of the explanation.
    """
    with intervene(e.model.network, *interventions):
        interventions = active_interventions(e.model.network)
        t = _trace(e.model.network, e.source_ids if e.source_rows is None else e.source_rows, e.decoder_input_ids)
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
    with intervene(model.network, *interventions):
        source = model.encode_source(text) if model.config.model.has_encoder else ()
        return _search(model, source, text, search)


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
