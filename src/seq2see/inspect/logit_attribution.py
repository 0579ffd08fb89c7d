"""Direct logit attribution: the exact contribution of each head and feed-forward layer to a logit.

A logit is the dot product of the last vector with the token's unembedding, and the last vector is the sum of the embedding
and the outputs of all sub-layers. Only norms come in between, and a norm is linear once its scale is frozen: with
σ² = variance + ε of the row as the model computed it,

    norm(a + b + …) = (a − mean a) / σ · γ + (b − mean b) / σ · γ + … + β

The mean is subtracted from each term separately, σ is frozen, β counts as a bias; RMS norm has no mean and no β. Going
back from the logit, the unembedding vector u becomes γ u / σ minus its mean at each norm: once in a pre-norm model, after
every sub-layer in a post-norm one. The contribution of a sub-layer is the dot product of its output with u at that point,
and in both cases the contributions sum exactly to the logit.

These are direct effects: what a head does by changing the input of later layers is attributed to those layers.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from seq2see.decode.int8 import Int8Linear
from seq2see.errors import UsageError
from seq2see.inspect.explain import Explanation
from seq2see.model.layers import Attention, Block, LayerNorm, RMSNorm
from seq2see.model.network import Network

BIASES, INTERVENTIONS, ROUNDING = "biases", "interventions", "rounding"
TOLERANCE = 1e-4  # relative; a larger remainder comes from interventions, or from rounding in bf16 and int8


@dataclass(frozen=True)
class Contribution:
    """The contribution of one component of the decoder to a logit."""

    component: str  # decoder.embedded, decoder.positions, decoder.1.cross, decoder.1.feed_forward, biases
    head: int | None  # None unless the component is an attention
    logit: float

    @property
    def name(self) -> str:
        return self.component if self.head is None else f"{self.component}:{self.head}"


@dataclass(frozen=True)
class LogitAttribution:
    """A logit, or the difference of two, as a sum of contributions."""

    row: int
    token: str
    against: str | None  # the token whose logit is subtracted, if any
    logit: float
    contributions: tuple[Contribution, ...] = field(
        metadata={"description": "In order of computation; they sum to the logit."}
    )


@torch.no_grad()
def logit_attribution(
    e: Explanation, row: int, token: int | None = None, against: int | None = None
) -> LogitAttribution:
    """Splits a row's logit into contributions, for the target token or a given one; with `against`, a logit difference.

    What an intervention changes outside these components becomes a contribution of its own, as does rounding in bf16 and
    int8.
    """
    e.require_transformer("logit attribution")
    row = e.resolve_row(row)
    token = e.target_ids[row] if token is None else token
    logits = e.trace["logits", 0][row].double()
    config = e.model.config.model
    if config.logit_cap:  # the contributions add up before the limit is applied
        logits = config.logit_cap * torch.atanh(logits / config.logit_cap)
    u, biases = _unembedding(e, token)
    logit = float(logits[token])
    if against is not None:
        other, other_bias = _unembedding(e, against)
        u, biases, logit = u - other, biases - other_bias, logit - float(logits[against])
    contributions, biases = _walk_back(e, row, u, biases)
    contributions.append(Contribution(BIASES, None, biases))
    remainder = logit - sum(one.logit for one in contributions)
    if abs(remainder) > TOLERANCE * max(1.0, *(abs(one.logit) for one in contributions)):
        contributions.append(Contribution(ROUNDING if _rounds(e.model.network) else INTERVENTIONS, None, remainder))
    against_label = None if against is None else e.token_label(against)
    return LogitAttribution(row, e.token_label(token), against_label, logit, tuple(contributions))


def _walk_back(e: Explanation, row: int, u: Tensor, biases: float) -> tuple[list[Contribution], float]:
    """Walks from the logit back to the input. Returns the contributions in order of computation, and that of all biases."""
    stack = e.require_transformer("logit attribution").decoder
    assert stack is not None
    contributions: list[Contribution] = []
    if stack.final_norm is not None:
        u, biases = _before_norm(e, "decoder.final_norm", stack.final_norm, row, u, biases)
    for layer in reversed(range(len(stack.blocks))):
        block = stack.blocks[layer]
        assert isinstance(block, Block)
        for sublayer, module, residual in (
            ("feed_forward", block.feed_forward, block.feed_forward_norm),
            ("cross", block.cross, block.cross_norm),
            (block.name, block.attention, block.attention_norm),
        ):
            if module is None or residual is None:
                continue
            component = f"decoder.{layer}.{sublayer}"
            if not residual.norm_first:
                u, biases = _before_norm(e, f"{component}.norm", residual.norm, row, u, biases)
            v = u  # what a unit of the sub-layer's output adds
            if residual.output_norm is not None:
                v, biases = _before_norm(e, f"{component}.output_norm", residual.output_norm, row, u, biases)
            if isinstance(module, Attention):
                project = module.project
                heads = _vector(e, f"{component}.heads", row)  # [heads, head width]
                products = (v @ project.weight.double()).view_as(heads) * heads
                contributions += [
                    Contribution(component, head, float(products[head].sum())) for head in reversed(range(len(heads)))
                ]
                biases += float(v @ project.bias.double()) if project.bias is not None else 0.0
            else:
                contributions.append(Contribution(component, None, float(v @ _vector(e, f"{component}.output", row))))
    if stack.embedding_norm is not None:
        u, biases = _before_norm(e, "decoder.norm", stack.embedding_norm, row, u, biases)
    for name in ("positions", "segments", "embedded"):
        if f"decoder.{name}" in e.trace:
            contributions.append(Contribution(f"decoder.{name}", None, float(u @ _vector(e, f"decoder.{name}", row))))
    return contributions[::-1], biases


def _before_norm(
    e: Explanation, component: str, norm: LayerNorm | RMSNorm, row: int, u: Tensor, biases: float
) -> tuple[Tensor, float]:
    """Carries u back through a norm, and adds β to the biases."""
    assert norm.weight is not None and norm.eps is not None
    if isinstance(norm, RMSNorm):
        return u * norm.weight.double() / (_vector(e, f"{component}.mean_square", row) + norm.eps).sqrt(), biases
    if norm.bias is not None:
        biases += float(u @ norm.bias.double())
    u = u * norm.weight.double() / (_vector(e, f"{component}.variance", row) + norm.eps).sqrt()
    return u - u.mean(), biases


def _vector(e: Explanation, name: str, row: int) -> Tensor:
    return e.trace[name, 0][row].double()


def _unembedding(e: Explanation, token: int) -> tuple[Tensor, float]:
    """Returns a token's row of the output projection and its bias."""
    model = e.model.network
    table = model.embedding if model.unembedding is None else model.unembedding
    if not 0 <= token < len(table.weight):
        raise UsageError(f"token {token} is out of range: the vocabulary has {len(table.weight):,} tokens")
    bias = getattr(table, "bias", None) if model.unembedding_bias is None else model.unembedding_bias
    return table.weight[token].double() * model.config.logit_scale, 0.0 if bias is None else float(bias[token])


def _rounds(network: Network) -> bool:
    """Whether the network computes in bf16 or int8, so that contributions do not add up exactly."""
    is_int8 = any(isinstance(part, Int8Linear) for part in network.modules())
    return is_int8 or network.embedding.weight.dtype == torch.bfloat16
