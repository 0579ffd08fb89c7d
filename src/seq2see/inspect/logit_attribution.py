"""Whose doing a logit is: what each head and each feed-forward layer adds to it, to the last digit.

A logit is a product of the last vector with the token's own, and the last vector is a sum of what the embedding and all
sub-layers wrote. Only norms stand between, and a norm is linear once its scale is held: with σ² = variance + ε of the row as
the model computed it,

    norm(a + b + …) = (a − mean a) / σ · γ + (b − mean b) / σ · γ + … + β

The mean is subtracted from each part by itself, σ is frozen, β counts among the biases; RMS norm has no mean and no β. Going
back from the logit, the token's vector u becomes γ u / σ, less its mean, at each norm on the way: once in a pre-norm
model, after every sub-layer in a post-norm one. What a sub-layer adds to the logit is the product of its output with
the u of its place, and the parts add up to the logit exactly, in both.

It is the direct effect only: what a head does by changing what later layers do counts as theirs.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from seq2see.errors import UsageError, UserError
from seq2see.inspect.explain import Explanation
from seq2see.model.layers import Attention, Block, LayerNorm, RMSNorm

BIASES, REACHED_IN = "biases", "interventions"
ROUNDING = 1e-4


@dataclass(frozen=True)
class Part:
    """What one part of the decoder adds to a logit."""

    place: str  # decoder.embedded, decoder.positions, decoder.1.cross, decoder.1.feed_forward, biases
    head: int | None  # of an attention
    logit: float

    @property
    def name(self) -> str:
        return self.place if self.head is None else f"{self.place}:{self.head}"


@dataclass(frozen=True)
class Contributions:
    row: int
    token: str
    against: str | None  # where the logit is the difference to another token's
    logit: float
    parts: tuple[Part, ...]  # in the order of the computation; they add up to the logit


@torch.no_grad()
def contributions(e: Explanation, row: int, token: int | None = None, against: int | None = None) -> Contributions:
    """The parts of a row's logit: of the token that was chosen, or of any; or how far it is ahead of another.

    Under an intervention, what it put in or took out where no part stands for it is a part of its own.
    """
    e.transformer("a logit by its parts")
    row = e.row(row)
    token = e.write_ids[row] if token is None else token
    logits = e.trace["logits", 0][row].double()
    table, bias = _unembedding(e)
    for id in (token, against):
        if id is not None and not 0 <= id < len(table):
            raise UsageError(f"token {id} of a vocabulary of {len(table):,}")
    u, fixed, logit = table[token], float(bias[token]), float(logits[token])
    if against is not None:
        u, fixed, logit = u - table[against], fixed - float(bias[against]), logit - float(logits[against])
    parts, fixed = _walk(e, row, u, fixed)
    parts.append(Part(BIASES, None, fixed))
    missing = logit - sum(part.logit for part in parts)
    if abs(missing) > ROUNDING * max(1.0, *(abs(part.logit) for part in parts)):
        parts.append(Part(REACHED_IN, None, missing))
    return Contributions(row, e.token(token), None if against is None else e.token(against), logit, tuple(parts))


def _walk(e: Explanation, row: int, u: Tensor, fixed: float) -> tuple[list[Part], float]:
    """Back from the logit to the input: the parts in the order of the computation, and what all biases add."""
    stack = e.transformer("a logit by its parts").decoder
    assert stack is not None
    parts: list[Part] = []
    if stack.final_norm is not None:
        u, fixed = _before_norm(e, "decoder.final_norm", stack.final_norm, row, u, fixed)
    for layer in reversed(range(len(stack.blocks))):
        block = stack.blocks[layer]
        assert isinstance(block, Block)
        for sublayer, module, around in (
            ("feed_forward", block.feed_forward, block.feed_forward_norm),
            ("cross", block.cross, block.cross_norm),
            (block.name, block.attention, block.attention_norm),
        ):
            if module is None or around is None:
                continue
            place = f"decoder.{layer}.{sublayer}"
            if not around.first:
                u, fixed = _before_norm(e, f"{place}.norm", around.norm, row, u, fixed)
            if isinstance(module, Attention):
                project = _linear(module.project)
                heads = _vector(e, f"{place}.heads", row)  # [heads, head width]
                shares = (u @ project.weight.double()).view_as(heads) * heads
                parts += [Part(place, head, float(shares[head].sum())) for head in reversed(range(len(shares)))]
                fixed += float(u @ project.bias.double()) if project.bias is not None else 0.0
            else:
                parts.append(Part(place, None, float(u @ _vector(e, f"{place}.output", row))))
    if stack.embedding_norm is not None:
        u, fixed = _before_norm(e, "decoder.norm", stack.embedding_norm, row, u, fixed)
    for name in ("positions", "segments", "embedded"):
        if f"decoder.{name}" in e.trace:
            parts.append(Part(f"decoder.{name}", None, float(u @ _vector(e, f"decoder.{name}", row))))
    return parts[::-1], fixed


def _before_norm(
    e: Explanation, place: str, norm: LayerNorm | RMSNorm, row: int, u: Tensor, fixed: float
) -> tuple[Tensor, float]:
    """The u of what enters a norm, from the u of what leaves it; and the biases with β."""
    assert norm.weight is not None and norm.eps is not None
    if isinstance(norm, RMSNorm):
        return u * norm.weight.double() / (_vector(e, f"{place}.mean_square", row) + norm.eps).sqrt(), fixed
    if norm.bias is not None:
        fixed += float(u @ norm.bias.double())
    u = u * norm.weight.double() / (_vector(e, f"{place}.variance", row) + norm.eps).sqrt()
    return u - u.mean(), fixed


def _vector(e: Explanation, name: str, row: int) -> Tensor:
    return e.trace[name, 0][row].double()


def _unembedding(e: Explanation) -> tuple[Tensor, Tensor]:
    model = e.model.network
    table = model.embedding.weight if model.unembedding is None else _linear(model.unembedding).weight
    bias = model.unembedding_bias
    return table.double(), torch.zeros(len(table)) if bias is None else bias.double()


def _linear(module: nn.Module) -> nn.Linear:
    if not isinstance(module, nn.Linear):
        raise UserError("contributions need the weights as they were trained: load the model without int8")
    return module
