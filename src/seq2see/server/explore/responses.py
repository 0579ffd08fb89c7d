"""Response bodies of the HTTP API, and how they are built from what the library returns.

With `requests`, the single source of the API's schema: the OpenAPI document and the page's TypeScript types come from here. The
page exported by `seq2see explain --out why.html` embeds the same responses.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from seq2see.config import Config
from seq2see.data.token_spans import grapheme_boundaries
from seq2see.data.tokenizer import Tokenizer
from seq2see.decode import search
from seq2see.errors import UserError
from seq2see.inspect.attention_flow import attention_entropy
from seq2see.inspect.comparison import TokenChange, compare
from seq2see.inspect.explain import Explanation, rerun, token_labels
from seq2see.inspect.logit_lens import most_likely_tokens
from seq2see.inspect.weights import WeightInfo
from seq2see.model.positions import PositionEffect, position_effect
from seq2see.model.summary import summarize
from seq2see.storage.bundled import About
from seq2see.storage.pipeline import Pipeline


class ResponseModel(BaseModel):
    # `model_validate` takes a dataclass of the library with the same fields. A response always contains all fields, also those
    # with a default in `Config`.
    model_config = ConfigDict(from_attributes=True, json_schema_serialization_defaults_required=True)


class ErrorResponse(ResponseModel):
    """The body of every error."""

    message: str = Field(examples=['unknown model "en-hj"'])
    location: str = Field(description="The part of the request that caused it.", examples=["model"])
    hint: str = Field(examples=['did you mean "en-hi"?'])


# Models


class TokenizerInfo(ResponseModel):
    kind: str = Field(description="bpe, character or word; of another library's model, its own kind.")
    source_vocab_size: int
    target_vocab_size: int
    shared_vocab: bool = Field(description="Whether source and target use the same vocabulary.")


class Languages(ResponseModel):
    """The languages of a translator of many languages."""

    codes: list[str] = Field(examples=[["eng_Latn", "fra_Latn"]])
    source: str | None = Field(description="What a request uses by default; null if the model detects the language.")
    target: str | None = Field(description="The same for the target; null if a request must choose.")


class PositionEffects(ResponseModel):
    """What the position scheme of each stack does: a vector added to the embeddings, a rotation of queries and keys, or a bias
    added to their scores.
    """

    encoder: PositionEffect
    decoder: PositionEffect


class ModelInfo(ResponseModel):
    name: str
    kind: Literal["translator", "language model", "encoder"]
    parameters: int
    tokenizer: TokenizerInfo
    languages: Languages | None = Field(description="Null if there is no choice.")
    snapshots: list[int] = Field(description="Training steps with a snapshot of the weights.")
    config: Config = Field(description="The model's config.toml.")
    position_effects: PositionEffects
    scores: dict[str, Any] = Field(description="The model's scores.json, with metric signatures.")
    about: About | None = Field(description="The about.json of a bundled model.")


class ModelList(ResponseModel):
    models: list[ModelInfo]


class WeightList(ResponseModel):
    """Matrices have one row per output, as in torch: `x · W` of the formulas is `x · rowsᵀ`."""

    model: str
    step: int | None
    weights: list[WeightInfo]


class Vocabulary(ResponseModel):
    """The text of every token, indexed by token id."""

    source: list[str] = Field(description="Source vocabulary of a translator.")
    target: list[str]
    banned: list[int] = Field(description="Target ids that are never generated.")


class TrainingPoint(ResponseModel):
    step: int
    loss: float = Field(description="Cross-entropy per token, in nats.")


class ValidationPoint(TrainingPoint):
    bleu: float | None = Field(description="Translators only.")


class History(ResponseModel):
    """The training log, downsampled evenly if it is long; empty if there is none."""

    model: str
    steps: list[TrainingPoint]
    validations: list[ValidationPoint]


# Generation


class Token(ResponseModel):
    id: int
    text: str


class SourceToken(Token):
    known: bool = Field(
        description="False for a word that is not in the vocabulary: `text` is the word, `id` that of `<unknown>`."
    )


class ScoredToken(Token):
    logprob: float | None = Field(description="Log-probability given all preceding tokens; null if it is −∞.")


class Hypothesis(ResponseModel):
    text: str
    score: float = Field(description="The score by which hypotheses are ranked.")
    finished: bool = Field(description="Whether it ended with `<end>` rather than at the length limit.")
    tokens: list[ScoredToken] = Field(description="Includes `<end>` if it was generated.")


class Assessed(ResponseModel):
    """How far an output can be trusted."""

    unknown: list[str] | None = Field(
        description="Words of the source that training never saw; null if the model has no list of words."
    )
    confidence: float | None = Field(
        description="Mean log-probability per token; of a text, that the lowest of its sentences. Null if it is −∞."
    )
    low_confidence: bool | None = Field(
        description="Whether the confidence is below the model's threshold; null if the model has none."
    )


class TranslatedSentence(Assessed):
    source: str
    hypotheses: list[Hypothesis] = Field(description="Best first.")


class Translation(Assessed):
    """The text is translated sentence by sentence, as on the command line."""

    model: str
    step: int | None
    translation: str = Field(description="The best translations of the sentences, with the text between them.")
    sentences: list[TranslatedSentence]
    notes: list[str] = Field(description="For example, unknown words, or that a sentence was too long and was divided.")


class Media(ResponseModel):
    """A stored picture or sound."""

    id: str = Field(description="The text of a trace request.")


# Traces


class TensorInfo(ResponseModel):
    name: str = Field(examples=["decoder.1.cross.weights"])
    shape: list[int] = Field(examples=[[8, 6, 5]])
    axes: list[str] = Field(examples=[["head", "query", "key"]])
    formula: str = Field(examples=["softmax over the keys: each row sums to 1"])


class Span(ResponseModel):
    """A part of the output written by one token, or by several that share a grapheme."""

    text: str
    row: int = Field(description="The row that wrote its first token.")


class Trace(Assessed):
    """The contents of a trace. Tensors are at `/api/traces/{id}/tensors/{name}`.

    Row t of the decoder reads `decoder_input_tokens[: t + 1]` and predicts `target_tokens[t]`.
    """

    id: str
    model: str
    step: int | None
    text: str = Field(description="The given text; of a picture or sound, its id.")
    output: str
    source_tokens: list[SourceToken] = Field(description="Input of the encoder; empty for a language model.")
    decoder_input_tokens: list[Token]
    target_tokens: list[ScoredToken]
    output_start: int = Field(description="The first row of the output; after the prompt, for a language model.")
    finished: bool | None = Field(description="Whether it ended with `<end>`; null if the target was given.")
    spans: list[Span] = Field(description="The output, split at token boundaries that are grapheme boundaries.")
    changes: list[TokenChange] = Field(description="What the interventions changed; empty without any.")
    teacher_forced_changes: list[TokenChange] = Field(description="The same for the original output, teacher-forced.")
    tensors: list[TensorInfo]


# Analyses


class AttentionEntropy(ResponseModel):
    entropies: dict[str, list[float]] = Field(description="Per attention layer, one per head: −Σ w ln w, in nats.")


class TopTokens(ResponseModel):
    """The most likely tokens of all rows, which is all that a page can show of a large vocabulary."""

    ids: list[int]
    tokens: list[str]
    logits: list[list[float]] = Field(description="For each row, the logit of each of these tokens.")
    probabilities: list[list[float]]


# From the library

KINDS: dict[str, Literal["translator", "language model", "encoder"]] = {
    "encoder-decoder": "translator",
    "decoder": "language model",
    "encoder": "encoder",
}


def model_info(
    name: str,
    config: Config,
    tokenizers: tuple[Tokenizer, Tokenizer],
    scores: Mapping[str, Any],
    snapshots: list[int],
    about: About | None = None,
) -> ModelInfo:
    source, target = tokenizers
    schemes = (config.model.actual_encoder_positions, config.model.positions)
    encoder, decoder = map(position_effect, schemes)
    tokenizer = TokenizerInfo(
        kind=target.kind, source_vocab_size=len(source), target_vocab_size=len(target), shared_vocab=source is target
    )
    return ModelInfo(
        name=name, kind=KINDS[config.model.shape], parameters=summarize(config.model, name).parameters,
        tokenizer=tokenizer, languages=_languages(tokenizers), snapshots=snapshots, config=config,
        position_effects=PositionEffects(encoder=encoder, decoder=decoder), scores=dict(scores), about=about,
    )  # fmt: skip


def _languages(tokenizers: tuple[Tokenizer, Tokenizer]) -> Languages | None:
    first, second = tokenizers
    if not first.languages.codes:
        return None
    source, target = first.chosen_languages(second)
    return Languages(codes=list(first.languages.codes), source=source, target=target)


def vocabulary(model: Pipeline) -> Vocabulary:
    source, target = (token_labels(tokenizer, range(len(tokenizer))) for tokenizer in model.tokenizers)
    return Vocabulary(source=source, target=target, banned=list(model.tokenizers[1].banned))


def top_tokens(e: Explanation, count: int) -> TopTokens:
    ids = most_likely_tokens(e, count)
    return TopTokens(
        ids=ids,
        tokens=[e.token_label(token) for token in ids],
        logits=e.trace["logits", 0][:, ids].tolist(),
        probabilities=e.logprobs[:, ids].exp().tolist(),
    )


def hypothesis(model: Pipeline, found: search.Hypothesis) -> Hypothesis:
    tokenizer = model.tokenizers[1]
    ids = [*found.tokens, tokenizer.end] if found.finished else list(found.tokens)
    tokens = _scored_tokens(ids, token_labels(tokenizer, ids), found.logprobs)
    return Hypothesis(text=model.text(found), score=found.score, finished=found.finished, tokens=tokens)


def trace(id: str, model: str, step: int | None, e: Explanation, before: Explanation | None = None) -> Trace:
    """Describes a trace; with `before`, the explanation without interventions, also what they changed."""
    if e.source_rows is not None and not e.model.config.model.has_decoder:
        source = e.model.config.model.source
        raise UserError(
            f"the page shows how {source} become text in a decoder, and {model} is an encoder: use seq2see explain"
        )
    changes = compare(before, e) if before else ()
    teacher_forced = compare(before, rerun(before, *e.interventions)) if before else ()
    return Trace(
        id=id, model=model, step=step, text=e.source, output=e.output,
        source_tokens=_source_tokens(e),
        decoder_input_tokens=_tokens(e.decoder_input_ids, e.decoder_input_tokens),
        target_tokens=_scored_tokens(e.target_ids, e.target_tokens, e.target_logprobs.tolist()),
        output_start=e.output_start, finished=None if e.hypothesis is None else e.hypothesis.finished, spans=_spans(e),
        changes=list(changes), teacher_forced_changes=list(teacher_forced),
        tensors=[_tensor_info(e, name) for name in e.trace.names()],
        **e.assessment.to_dict(),
    )  # fmt: skip


def entropy(e: Explanation) -> AttentionEntropy:
    return AttentionEntropy(entropies={name: heads.tolist() for name, heads in attention_entropy(e).items()})


def _tokens(ids: Sequence[int], texts: Sequence[str]) -> list[Token]:
    return [Token(id=id, text=text) for id, text in zip(ids, texts, strict=True)]


def _source_tokens(e: Explanation) -> list[SourceToken]:
    """Returns the tokens of the source, with unknown words as they stand in the text."""
    words = {
        i: e.source[span.start : span.end]
        for i, span in enumerate(e.encoder.spans, e.encoder.start)
        if span.id == e.model.tokenizers[0].unknown
    }
    rows = enumerate(zip(e.source_ids, e.source_tokens, strict=True))
    return [SourceToken(id=id, text=words.get(i, text), known=i not in words) for i, (id, text) in rows]


def _scored_tokens(ids: Sequence[int], texts: Sequence[str], logprobs: Sequence[float]) -> list[ScoredToken]:
    rows = zip(ids, texts, logprobs, strict=True)
    return [ScoredToken(id=id, text=text, logprob=logprob) for id, text, logprob in rows]


def _spans(e: Explanation) -> list[Span]:
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
            spans.append(Span(text=text[start : token.end], row=rows[0]))
            start, rows = token.end, []
    return spans


def _tensor_info(e: Explanation, name: str) -> TensorInfo:
    quantity = e.trace.quantity(name)
    axes = quantity.axes[1:] if quantity.axes[0] == "sentence" else quantity.axes
    shape = list(e.trace[name, 0].shape)
    return TensorInfo(name=name, shape=shape, axes=list(axes), formula=quantity.formula)
