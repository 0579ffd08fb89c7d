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
from math import isfinite

import torch
from torch import Tensor

from seq2see.decode.int8 import Int8Linear
from seq2see.errors import UsageError, UserError
from seq2see.inspect.explain import Explanation, takes_explanation, to_index
from seq2see.model.layers import AddAndNorm, Attention, Block, FeedForward, LayerNorm, RMSNorm
from seq2see.model.network import Network

BIASES, INTERVENTIONS, ROUNDING = "biases", "interventions", "rounding"
TOLERANCE = 1e-4  # relative; a larger remainder comes from interventions, or from rounding in bf16 and int8


@dataclass(frozen=True)
class Contribution:
    """The contribution of one component of the decoder, or of a classifier, to a logit."""

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
    logit: float  # before the limit of a model that has one (logit_cap)
    contributions: tuple[Contribution, ...] = field(
        metadata={"description": "In order of computation; they sum to the logit."}
    )


@torch.no_grad()
@takes_explanation
def logit_attribution(
    e: Explanation, row: int, token: int | None = None, against: int | None = None
) -> LogitAttribution:
    """Splits a row's logit into contributions, for the target token or a given one; with `against`, a logit difference.

    What an intervention changes outside these components becomes a contribution of its own, as does rounding in bf16 and
    int8.
    """
    e.require_output("logit attribution")
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
    if config.logit_cap and not isfinite(logit):
        raise UserError(
            f"the logit is at the model's limit of ±{config.logit_cap:g}, and was larger by an unknown amount"
        )
    walk = _Walk(e, row, u, biases)
    walk.run()
    contributions = [*reversed(walk.contributions), Contribution(BIASES, None, walk.biases)]
    remainder = logit - sum(one.logit for one in contributions)
    if abs(remainder) > TOLERANCE * max(1.0, *(abs(one.logit) for one in contributions)):
        rounds = _rounds(e.model.network) or not e.interventions
        contributions.append(Contribution(ROUNDING if rounds else INTERVENTIONS, None, remainder))
    against_label = None if against is None else e.token_label(against)
    return LogitAttribution(row, e.token_label(token), against_label, logit, tuple(contributions))


class _Walk:
    """The way from a logit back to the input, at one row."""

    def __init__(self, e: Explanation, row: int, u: Tensor, biases: float) -> None:
        self.e, self.row = e, row
        self.u, self.biases = u, biases  # what a unit of the residual stream adds to the logit; what all biases add
        self.contributions: list[Contribution] = []  # the last computed first

    def vector(self, name: str) -> Tensor:
        return self.e.trace[name, 0][self.row].double()

    def run(self) -> None:
        network, name = self.e.require_transformer("logit attribution"), self.e.output_stack
        stack = network.decoder or network.encoder
        assert stack is not None
        if stack.final_norm is not None:
            self.u = self.before_norm(f"{name}.final_norm", stack.final_norm, self.u)
        for layer, block in reversed(list(enumerate(stack.blocks))):
            assert isinstance(block, Block)
            self.pass_sublayer(f"{name}.{layer}.feed_forward", block.feed_forward, block.feed_forward_norm)
            if block.cross is not None and block.cross_norm is not None:
                self.pass_sublayer(f"{name}.{layer}.cross", block.cross, block.cross_norm)
            self.pass_sublayer(f"{name}.{layer}.{block.name}", block.attention, block.attention_norm)
        if stack.embedding_norm is not None:
            self.u = self.before_norm(f"{name}.norm", stack.embedding_norm, self.u)
        for component in (f"{name}.positions", f"{name}.segments", f"{name}.embedded"):
            if component in self.e.trace:
                self.contributions.append(Contribution(component, None, float(self.u @ self.vector(component))))

    def pass_sublayer(self, component: str, module: Attention | FeedForward, around: AddAndNorm) -> None:
        if not around.norm_first:
            self.u = self.before_norm(f"{component}.norm", around.norm, self.u)
        v = self.u  # what a unit of the sub-layer's output adds
        if around.output_norm is not None:
            v = self.before_norm(f"{component}.output_norm", around.output_norm, v)
        if isinstance(module, FeedForward):
            self.contributions.append(Contribution(component, None, float(v @ self.vector(f"{component}.output"))))
            return
        heads = self.vector(f"{component}.heads")  # [heads, head width]
        by_head = ((v @ module.project.weight.double()).view_as(heads) * heads).sum(1).tolist()
        self.contributions += [Contribution(component, head, by_head[head]) for head in reversed(range(len(heads)))]
        self.biases += float(v @ module.project.bias.double()) if module.project.bias is not None else 0.0

    def before_norm(self, component: str, norm: LayerNorm | RMSNorm, u: Tensor) -> Tensor:
        """Carries u back through a norm, and adds β to the biases."""
        assert norm.weight is not None and norm.eps is not None
        if isinstance(norm, RMSNorm):
            return u * norm.weight.double() / (self.vector(f"{component}.mean_square") + norm.eps).sqrt()
        if norm.bias is not None:
            self.biases += float(u @ norm.bias.double())
        u = u * norm.weight.double() / (self.vector(f"{component}.variance") + norm.eps).sqrt()
        return u - u.mean()


def _unembedding(e: Explanation, token: int) -> tuple[Tensor, float]:
    """Returns a token's row of the output projection and its bias."""
    model = e.model.network
    table = model.embedding if model.unembedding is None else model.unembedding
    token = to_index("token", token)
    if not 0 <= token < len(table.weight):
        raise UsageError(f"token {token} is out of range: the vocabulary has {len(table.weight):,} tokens")
    bias = getattr(table, "bias", None) if model.unembedding_bias is None else model.unembedding_bias
    return table.weight[token].double() * model.config.logit_scale, 0.0 if bias is None else float(bias[token])


def _rounds(network: Network) -> bool:
    """Whether the network computes in bf16 or int8, so that contributions do not add up exactly."""
    is_int8 = any(isinstance(part, Int8Linear) for part in network.modules())
    return is_int8 or network.embedding.weight.dtype == torch.bfloat16
