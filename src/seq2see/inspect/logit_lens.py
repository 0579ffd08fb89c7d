"""The logit lens (nostalgebraist, 2020): what each layer would predict if the model stopped there.

The vector of a token after each block is decoded like the last one: through the final norm, if the model has one
(pre-norm), and the unembedding. Early layers were not trained for this; the lens shows how close each layer is to the final
prediction, in the last layer's representation. Also here: the model's most likely alternatives at the last layer, and the
distribution that sampling draws from.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from seq2see.decode.sampling import draw_uniforms, filter_logits, sample_tokens
from seq2see.decode.search import Search
from seq2see.errors import UsageError
from seq2see.inspect.explain import Explanation, takes_explanation
from seq2see.inspect.trace import block_outputs
from seq2see.model.taps import NO_TAPS


@dataclass(frozen=True)
class LensReading:
    """The prediction of one layer at one row."""

    top: tuple[tuple[str, float], ...]  # the most likely tokens with their probabilities
    probability: float  # of the target token
    rank: int  # of the target token among all tokens, from 1


@dataclass(frozen=True)
class LogitLens:
    layers: tuple[str, ...]  # tap names: the decoder input, then the output of each block
    readings: tuple[tuple[LensReading, ...], ...]  # [layer][row]


@dataclass(frozen=True)
class Alternative:
    """A candidate token of a row."""

    token: str
    id: int
    logit: float
    probability: float


@torch.no_grad()
@takes_explanation
def logit_lens(e: Explanation, top: int = 5) -> LogitLens:
    """Computes softmax(norm(x) · Eᵀ) for the vectors x that predict the output, before and after every block."""
    e.require_output("the logit lens")
    e.require_transformer("the logit lens")
    config = e.model.config.model
    first = f"{e.output_stack}.{'norm.output' if config.embedding_norm else 'input'}"
    layers = (first, *block_outputs(config, e.output_stack))
    return LogitLens(layers, tuple(tuple(_read_layer(e, layer, top)) for layer in layers))


def _read_layer(e: Explanation, layer: str, top: int) -> Iterator[LensReading]:
    logprobs = read_out(e, e.trace[layer, 0][: len(e.target_ids)]).log_softmax(-1)  # [rows, vocabulary]
    _require_count(top)
    target = logprobs.gather(1, torch.tensor(e.target_ids)[:, None])
    ranks = (logprobs > target).sum(-1) + 1
    best, ids = logprobs.topk(min(top, logprobs.shape[1]))
    for row, (probability,) in enumerate(target.exp().tolist()):
        tokens = zip(map(e.token_label, ids[row].tolist()), best[row].exp().tolist(), strict=True)
        yield LensReading(tuple(tokens), probability, int(ranks[row]))


@takes_explanation
def alternatives(e: Explanation, row: int, top: int = 10) -> tuple[Alternative, ...]:
    """Returns the most likely tokens of a row, best first, with their logits and probabilities."""
    row = e.resolve_row(row)
    _require_count(top)
    ids = e.logprobs[row].topk(min(top, e.logprobs.shape[1])).indices.tolist()
    return _candidates(e, e.trace["logits", 0][row].float().cpu(), e.logprobs[row].exp(), ids)


def _require_count(top: int) -> None:
    if top < 1:
        raise UsageError(f"top = {top} must be at least 1")


def _candidates(e: Explanation, logits: Tensor, probabilities: Tensor, ids: list[int]) -> tuple[Alternative, ...]:
    rows = zip(ids, logits[ids].tolist(), probabilities[ids].tolist(), strict=True)
    return tuple(Alternative(e.token_label(id), id, logit, probability) for id, logit, probability in rows)


@dataclass(frozen=True)
class NextToken:
    """What sampling sees at a row."""

    candidates: tuple[Alternative, ...] = field(
        metadata={
            "description": "Most likely first, and the token of the row. A token that sampling excludes has a probability of 0."
        }
    )
    sampled: str | None = field(
        metadata={"description": "The token that the seed selects; null for a token of the prompt."}
    )


@takes_explanation
def next_token(e: Explanation, row: int, search: Search, top: int = 8) -> NextToken:
    """Returns the distribution of a row after temperature and filters, and what the seed of `search` draws from it."""
    row = e.resolve_row(row)
    logits = e.trace["logits", 0][row].float().cpu()
    allowed = logits.clone()
    allowed[list(e.model.tokenizers[1].banned)] = -torch.inf
    if search.temperature:
        filtered = filter_logits(allowed[None], search)[0]
    else:
        filtered = torch.full_like(allowed, -torch.inf)
        filtered[allowed.argmax()] = 0
    ids = allowed.topk(min(top, len(allowed))).indices.tolist()
    if e.target_ids[row] not in ids:
        ids[-1] = e.target_ids[row]
    step, sampled = row - e.output_start, None
    if step >= 0:
        uniforms = draw_uniforms([search.seed], step + 1)[:, step:]
        sampled = e.token_label(int(sample_tokens(filtered[None], uniforms)))
    return NextToken(_candidates(e, logits, filtered.softmax(-1), ids), sampled)


@takes_explanation
def most_likely_tokens(e: Explanation, count: int) -> list[int]:
    """Returns the tokens that are most likely in any row, and those that the rows predict: the part of a large vocabulary
    that can be shown.
    """
    best = e.logprobs.amax(0).topk(min(count, e.logprobs.shape[1])).indices.tolist()
    return sorted({*best, *e.target_ids})


@takes_explanation
def read_out(e: Explanation, x: Tensor) -> Tensor:
    """Decodes vectors from any layer as if they were its last: logits, [rows, vocabulary]."""
    model = e.require_transformer("the logit lens")
    stack = model.decoder or model.encoder
    assert stack is not None
    if stack.final_norm is not None:
        x = stack.final_norm(x, NO_TAPS)
    return model.logits(x, e.trace.layouts[e.output_stack]).float().cpu()
