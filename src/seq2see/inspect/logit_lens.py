"""The lens: what each layer would predict if the model stopped there, and what else it might have said at the end.

The vector of a token after each block is read out as the last one is: through the final norm, where the model has one
(pre-norm), and against every token's vector. Early layers were not trained to be read so; what shows is how far along the
way to its answer the model is, in the last layer's language (nostalgebraist's logit lens, 2020).
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from seq2see.inspect.explain import Explanation
from seq2see.model.taps import NO_TAPS


@dataclass(frozen=True)
class Reading:
    """One position, read out at one layer."""

    top: tuple[tuple[str, float], ...]  # the likeliest tokens with their probabilities
    probability: float  # of the token that was chosen in the end
    rank: int  # its rank among all tokens, from 1


@dataclass(frozen=True)
class Lens:
    places: tuple[str, ...]  # what was read out: the decoder's input, then the vectors after each block
    readings: tuple[tuple[Reading, ...], ...]  # [place][row]


@dataclass(frozen=True)
class Alternative:
    """A token that a row might have written."""

    token: str
    id: int
    logit: float
    probability: float


@torch.no_grad()
def lens(e: Explanation, top: int = 5) -> Lens:
    """softmax(norm(x) · Eᵀ) of the decoder's vectors x before and after every block."""
    e.transformer("the lens")
    places = _places(e)
    chosen = torch.tensor(e.write_ids)[:, None]
    layers = []
    for place in places:
        logprobs = read_out(e, e.trace[place, 0]).log_softmax(-1)  # [rows, vocabulary]
        own = logprobs.gather(1, chosen)
        ranks = (logprobs > own).sum(-1) + 1
        best, ids = logprobs.topk(min(top, logprobs.shape[1]))
        layers.append(
            tuple(
                Reading(tuple(zip(map(e.token, row_ids), row, strict=True)), probability, rank)
                for row_ids, row, probability, rank in zip(
                    ids.tolist(), best.exp().tolist(), own[:, 0].exp().tolist(), ranks.tolist(), strict=True
                )
            )
        )
    return Lens(places, tuple(layers))


def alternatives(e: Explanation, row: int, top: int = 10) -> tuple[Alternative, ...]:
    """The likeliest tokens of a row, best first, with their logits and probabilities."""
    row = e.row(row)
    best, ids = e.logprobs[row].topk(min(top, e.logprobs.shape[1]))
    logits = e.trace["logits", 0][row].float().cpu()[ids]
    return tuple(
        Alternative(e.token(id), id, logit, probability)
        for id, logit, probability in zip(ids.tolist(), logits.tolist(), best.exp().tolist(), strict=True)
    )


def read_out(e: Explanation, x: Tensor) -> Tensor:
    """The logits of vectors from anywhere in the decoder, as if they were its last: [rows, vocabulary]."""
    model = e.transformer("the lens")
    assert model.decoder is not None
    if model.decoder.final_norm is not None:
        x = model.decoder.final_norm(x, NO_TAPS)
    return model.logits(x, e.trace.layouts["decoder"]).float().cpu()


def _places(e: Explanation) -> tuple[str, ...]:
    config = e.model.config.model
    first = "decoder.norm.output" if config.embedding_norm else "decoder.input"
    last = "sum" if config.norm_first else "norm.output"
    return (first, *(f"decoder.{layer}.feed_forward.{last}" for layer in range(config.decoder_layers)))
