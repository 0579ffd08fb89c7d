"""Endpoints for the analyses of a trace, and of vectors in the space of the embeddings: the library's own, over HTTP."""

from typing import Annotated, Any

from fastapi import Query
from pydantic import BeforeValidator, Field
from torch import Tensor

import seq2see
from seq2see.config.search import Search
from seq2see.inspect.alignment import LayerHead
from seq2see.inspect.attention_flow import RolloutStack, attention_names
from seq2see.inspect.embedding_space import Stack
from seq2see.inspect.logit_attribution import LogitAttribution
from seq2see.inspect.logit_lens import Alternative, NextToken
from seq2see.inspect.logit_lens import alternatives as most_likely
from seq2see.inspect.logit_lens import next_token as distribution
from seq2see.inspect.similarity import Measure
from seq2see.server.explore import requests, responses
from seq2see.server.explore.api import Call, Head, Index, Name, TraceId, WorkerRouter, require_text_model
from seq2see.server.explore.placement import NearestEmbeddings, Space, nearest_by_layer
from seq2see.server.explore.responses import ResponseModel
from seq2see.server.explore.tensors import TensorBytes
from seq2see.server.http.errors import ApiError, suggest

Row = Annotated[
    int, Query(ge=-1024, le=1024, description="Row of the decoder, from 0; negative rows count from the end.")
]
Top = Annotated[int, Query(ge=1, le=100, description="Number of tokens to return, most likely first.")]
TokenId = Annotated[int | None, Query(ge=0, le=1 << 31, description="A token id.")]
Layer = Annotated[int, Query(ge=-1024, le=1024, description="Negative layers count from the last.")]


def _plain(values: Any) -> Any:
    return values.tolist() if isinstance(values, Tensor) else values


Vector = Annotated[list[float], BeforeValidator(_plain)]
Matrix = Annotated[list[list[float]], BeforeValidator(_plain)]
Matrices = Annotated[list[list[list[float]]], BeforeValidator(_plain)]


class AlignmentLink(ResponseModel):
    source: int = Field(description="Index of a source word.")
    target: int = Field(description="Index of a target word.")


class Alignment(ResponseModel):
    source_words: list[str]
    target_words: list[str]
    weights: Matrix = Field(description="[target words, source words]")
    links: list[AlignmentLink]


class TokenProbability(ResponseModel):
    token: str
    probability: float


def _token_probabilities(pairs: Any) -> list[TokenProbability]:
    return [TokenProbability(token=token, probability=probability) for token, probability in pairs]


class LensReading(ResponseModel):
    top: Annotated[list[TokenProbability], BeforeValidator(_token_probabilities)]
    probability: float = Field(description="Probability of the token that the model chose in the end.")
    rank: int = Field(description="Its rank, from 1.")


class LogitLens(ResponseModel):
    layers: list[str]
    readings: list[list[LensReading]] = Field(description="[layer][row]")


class Alternatives(ResponseModel):
    row: int
    alternatives: list[Alternative] = Field(description="Most likely first.")


class ContextualEmbeddings(ResponseModel):
    word: str
    sentences: list[str] = Field(description="The sentence of each occurrence.")
    layers: list[str]
    vectors: Matrices = Field(description="[layers, occurrences, width]")
    static_embedding: Vector = Field(description="The vector without context, [width].")
    cosines: Matrices = Field(description="[layers, occurrences, occurrences]")
    cosines_to_static: Matrix = Field(description="[layers, occurrences]")


router = WorkerRouter(tags=["analyses"])


@router.endpoint("GET", "/api/traces/{id}/alignment")
def alignment(call: Call, id: TraceId, layer: Layer = -1, head: Head = None) -> Alignment:
    """Aligns source and target words by the cross-attention of a layer."""
    with call.explanation(id) as e:
        found = seq2see.word_alignment(e, (LayerHead(layer, head),))
    links = [AlignmentLink(source=source, target=target) for source, target in found.links]
    return Alignment.model_validate({**vars(found), "links": links})


@router.endpoint("GET", "/api/traces/{id}/attention-entropy")
def attention_entropy(call: Call, id: TraceId) -> responses.AttentionEntropy:
    """Returns the mean entropy of the attention weights of each head."""
    with call.explanation(id) as e:
        return responses.entropy(e)


@router.endpoint("GET", "/api/traces/{id}/logit-lens")
def logit_lens(call: Call, id: TraceId, top: Top = 5) -> LogitLens:
    """Returns the prediction of each layer: its vectors through the final norm and the unembedding."""
    with call.explanation(id) as e:
        return LogitLens.model_validate(seq2see.logit_lens(e, top))


@router.endpoint("GET", "/api/traces/{id}/logit-attribution")
def logit_attribution(
    call: Call, id: TraceId, row: Row, token: TokenId = None, against: TokenId = None
) -> LogitAttribution:
    """Returns what each head and feed-forward layer adds to a token's logit, or to its difference from another's."""
    with call.explanation(id) as e:
        return seq2see.logit_attribution(e, row, token, against)


@router.endpoint("GET", "/api/traces/{id}/alternatives")
def alternatives(call: Call, id: TraceId, row: Row, top: Top = 10) -> Alternatives:
    """Returns the most likely tokens of a row."""
    with call.explanation(id) as e:
        return Alternatives(row=e.resolve_row(row), alternatives=list(most_likely(e, row, top)))


@router.endpoint("GET", "/api/traces/{id}/next-token")
def next_token(
    call: Call,
    id: TraceId,
    row: Row,
    temperature: Annotated[requests.Temperature, Query()] = 1.0,
    top_k: Annotated[requests.TopK, Query()] = 0,
    top_p: Annotated[requests.TopP, Query()] = 1.0,
    seed: Annotated[requests.Seed, Query()] = 0,
    top: Top = 8,
) -> NextToken:
    """Returns the most likely tokens of a row with the probabilities that sampling would give them."""
    with call.explanation(id) as e:
        return distribution(e, row, Search(temperature=temperature, top_k=top_k, top_p=top_p, seed=seed), top)


@router.endpoint("GET", "/api/traces/{id}/top-tokens")
def top_tokens(call: Call, id: TraceId, count: Annotated[int, Query(ge=1, le=500)] = 100) -> responses.TopTokens:
    """Returns the logits and probabilities of the most likely tokens of all rows, for a large vocabulary."""
    with call.explanation(id) as e:
        return responses.top_tokens(e, count)


@router.endpoint("GET", "/api/traces/{id}/attention-rollout/{stack}")
def attention_rollout(call: Call, id: TraceId, stack: RolloutStack, index: Index = "") -> TensorBytes:
    """Returns the attention rollout through all layers, [tokens, tokens]; for `both`, [target, source + target]."""
    with call.explanation(id) as e:
        return call.tensor(seq2see.attention_rollout(e, stack), index)


@router.endpoint("GET", "/api/traces/{id}/head-ablation/{attention}")
def head_ablation(call: Call, id: TraceId, attention: Name, index: Index = "") -> TensorBytes:
    """Returns ln P of each token with each head minus ln P without it, [heads, rows]."""
    with call.explanation(id) as e:
        known = attention_names(e)
        if attention not in known:
            hint = suggest(attention, known, f"/api/traces/{id}")
            raise ApiError(404, f'unknown attention layer "{attention}"', hint, "attention")
        return call.tensor(seq2see.head_ablation(e, attention), index)


@router.endpoint("GET", "/api/traces/{id}/token-similarity/{name}")
def token_similarity(
    call: Call, id: TraceId, name: Name, measure: Measure = "cosine", index: Index = ""
) -> TensorBytes:
    """Returns the similarity between the tokens' vectors in a tensor such as `encoder.vectors`, [tokens, tokens]."""
    with call.explanation(id) as e:
        return call.tensor(seq2see.token_similarity(e, name, measure), index)


@router.endpoint("POST", "/api/contextual-embeddings")
def contextual_embeddings(call: Call, body: requests.ContextualEmbeddingsRequest) -> ContextualEmbeddings:
    """Returns the vectors of one word in several sentences, layer by layer, and their cosines."""
    name, model = call.load(body)
    require_text_model(name, model)
    for number, sentence in enumerate(body.sentences):
        call.require_short(model.tokenizers[0], sentence, f"sentences.{number}")
    found = seq2see.contextual_embeddings(model, body.word, body.sentences)
    return ContextualEmbeddings.model_validate(found)


@router.endpoint("POST", "/api/space")
def space(call: Call, body: requests.SpaceRequest) -> Space:
    """Places embeddings, the tokens of traces at every layer, and words and their sums, in two or three dimensions."""
    if body.method == "tsne":
        call.deadline.seconds = call.server.limits.training_timeout
    name, model = call.load(body)
    texts = {}
    for id in body.traces:
        info, texts[id] = call.server.traces[id].info, call.server.traces[id].explanation
        if (info.model, info.step) != (name, body.step):
            message = f'trace "{id}" is of "{info.model}" at step {info.step}, not of "{name}" at step {body.step}'
            raise ApiError(422, message, "trace the text with the model of this request", "traces")
    return call.server.placement.place(name, model, body, texts, call.deadline)


@router.endpoint("GET", "/api/traces/{id}/nearest-embeddings")
def nearest_embeddings(call: Call, id: TraceId, stack: Stack, position: Row, count: Top = 5) -> NearestEmbeddings:
    """Returns the embeddings nearest to a token's vector at each layer of a stack."""
    with call.explanation(id) as e:
        return nearest_by_layer(e, stack, position, count)
