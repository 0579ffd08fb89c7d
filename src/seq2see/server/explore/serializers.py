"""Builds response models from library objects, for the server and for the self-contained page."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch

from seq2see.config import Config
from seq2see.data.token_spans import grapheme_boundaries
from seq2see.data.tokenizer import Tokenizer
from seq2see.decode.search import Hypothesis
from seq2see.inspect.attention_flow import attention_entropy, attention_names, attention_weights
from seq2see.inspect.comparison import compare
from seq2see.inspect.explain import Explanation, rerun, token_labels
from seq2see.inspect.logit_lens import most_likely_tokens
from seq2see.model.summary import summarize
from seq2see.server.explore import responses
from seq2see.storage.bundled import About
from seq2see.storage.pipeline import Pipeline

KINDS: dict[str, Literal["translator", "language model", "encoder"]] = {
    "encoder-decoder": "translator", "decoder": "language model", "encoder": "encoder",
}  # fmt: skip


def model_info(
    name: str, config: Config, tokenizers: tuple[Tokenizer, Tokenizer], scores: Mapping[str, Any], snapshots: list[int],
    about: About | None = None,
) -> responses.ModelInfo:  # fmt: skip
    source, target = tokenizers
    tokenizer = responses.TokenizerInfo(
        kind=target.kind, source_vocab_size=len(source), target_vocab_size=len(target), shared_vocab=source is target
    )
    return responses.ModelInfo(
        name=name, kind=KINDS[config.model.shape], parameters=summarize(config.model, name).parameters,
        tokenizer=tokenizer, languages=_languages(tokenizers), snapshots=snapshots, config=config, scores=dict(scores),
        about=about,
    )  # fmt: skip


def _languages(tokenizers: tuple[Tokenizer, Tokenizer]) -> responses.Languages | None:
    first, second = tokenizers
    if not first.languages.codes:
        return None
    source, target = first.chosen_languages(second)
    return responses.Languages(codes=list(first.languages.codes), source=source, target=target)


def vocabulary(model: Pipeline) -> responses.Vocabulary:
    source, target = (token_labels(tokenizer, range(len(tokenizer))) for tokenizer in model.tokenizers)
    return responses.Vocabulary(source=source, target=target, banned=list(model.tokenizers[1].banned))


def top_tokens(e: Explanation, count: int) -> responses.TopTokens:
    ids = most_likely_tokens(e, count)
    return responses.TopTokens(
        ids=ids, tokens=[e.token_label(token) for token in ids], logits=e.trace["logits", 0][:, ids].tolist(),
        probabilities=e.logprobs[:, ids].exp().tolist(),
    )  # fmt: skip


def hypothesis(model: Pipeline, found: Hypothesis) -> responses.Hypothesis:
    tokenizer = model.tokenizers[1]
    ids = [*found.tokens, tokenizer.end] if found.finished else list(found.tokens)
    tokens = _scored_tokens(ids, token_labels(tokenizer, ids), found.logprobs)
    return responses.Hypothesis(text=model.text(found), score=found.score, finished=found.finished, tokens=tokens)


def trace(id: str, model: str, step: int | None, e: Explanation, before: Explanation | None = None) -> responses.Trace:
    """Describes a trace; with `before`, the explanation without interventions, also what they changed."""
    changes = compare(before, e) if before else ()
    teacher_forced = compare(before, rerun(before, *e.interventions)) if before else ()
    return responses.Trace(
        id=id, model=model, step=step, text=e.source, output=e.output,
        source_tokens=_source_tokens(e),
        decoder_input_tokens=_tokens(e.decoder_input_ids, e.decoder_input_tokens),
        target_tokens=_scored_tokens(e.target_ids, e.target_tokens, e.target_logprobs.tolist()),
        output_start=e.output_start, finished=None if e.hypothesis is None else e.hypothesis.finished, spans=_spans(e),
        changes=list(changes), teacher_forced_changes=list(teacher_forced),
        tensors=[_tensor_info(e, name) for name in e.trace.names()],
        **e.assessment.to_dict(),
    )  # fmt: skip


def entropy(e: Explanation) -> responses.AttentionEntropy:
    return responses.AttentionEntropy(
        entropies={name: heads.tolist() for name, heads in attention_entropy(e).items()}
    )  # fmt: skip


def training_report(step: int, e: Explanation, attention: str, head: int | None) -> responses.TrainingReport:
    """Describes an output and one attention: the named one, or the last; of one head, or the mean."""
    known = attention_names(e)
    name = attention if attention in known else known[-1] if known else None
    weights = attention_weights(e, name) if name else torch.zeros(1, 0, 0)  # [heads, queries, keys]
    chosen = head if head is not None and head < len(weights) else None
    of_encoder = name is not None and name.startswith("encoder")
    logprobs = e.target_logprobs[e.output_start :]
    return responses.TrainingReport(
        step=step, output=e.output, probability=float(logprobs.mean().exp()) if len(logprobs) else 1.0, attentions=known,
        heads=len(weights), attention=name, head=chosen,
        queries=list(e.source_tokens if of_encoder else e.decoder_input_tokens),
        written=[] if of_encoder else list(e.target_tokens),
        keys=list(e.source_tokens if of_encoder or (name or "").endswith("cross") else e.decoder_input_tokens),
        weights=(weights.mean(0) if chosen is None else weights[chosen]).tolist(),
    )  # fmt: skip


def _tokens(ids: Sequence[int], texts: Sequence[str]) -> list[responses.Token]:
    return [responses.Token(id=id, text=text) for id, text in zip(ids, texts, strict=True)]


def _source_tokens(e: Explanation) -> list[responses.SourceToken]:
    """Returns the tokens of the source, with unknown words as they stand in the text."""
    words = {
        i: e.source[span.start : span.end]
        for i, span in enumerate(e.encoder.spans, e.encoder.start)
        if span.id == e.model.tokenizers[0].unknown
    }
    rows = enumerate(zip(e.source_ids, e.source_tokens, strict=True))
    return [responses.SourceToken(id=id, text=words.get(i, text), known=i not in words) for i, (id, text) in rows]


def _scored_tokens(ids: Sequence[int], texts: Sequence[str], logprobs: Sequence[float]) -> list[responses.ScoredToken]:
    rows = zip(ids, texts, logprobs, strict=True)
    return [responses.ScoredToken(id=id, text=text, logprob=logprob) for id, text, logprob in rows]


def _spans(e: Explanation) -> list[responses.Span]:
    """Splits the output at token boundaries that are also grapheme boundaries."""
    text, tokens = e.decoder.text, e.decoder.spans
    boundaries = grapheme_boundaries(text)
    start = len(text) - len(e.output)  # skips the prompt of a language model
    rows: list[int] = []
    spans = []
    for i, token in enumerate(tokens):
        if token.end <= start:
            continue
        rows.append(max(i + e.decoder.start - 1, 0))
        following = tokens[i + 1 : i + 2]
        if token.end in boundaries and all(after.start >= token.end for after in following):
            spans.append(responses.Span(text=text[start : token.end], row=rows[0]))
            start, rows = token.end, []
    return spans


def _tensor_info(e: Explanation, name: str) -> responses.TensorInfo:
    quantity = e.trace.quantity(name)
    axes = quantity.axes[1:] if quantity.axes[0] == "sentence" else quantity.axes
    shape = list(e.trace[name, 0].shape)
    return responses.TensorInfo(name=name, shape=shape, axes=list(axes), formula=quantity.formula)
