"""Where the heads look: how sharply each does, and where the layers together look.

Attention weights tell from where a head takes, not what it takes nor what becomes of it. `ablations` is the check: what the
model would have said without that head.
"""

from typing import Literal

import torch
from torch import Tensor

from seq2see.errors import UsageError
from seq2see.inspect.explain import Explanation, again
from seq2see.inspect.interventions import without

Stack = Literal["encoder", "decoder", "both"]


def attentions(e: Explanation) -> list[str]:
    """The names of all attentions, in the order of the computation: `encoder.0.self`, `decoder.0.masked` …"""
    return [name.removesuffix(".weights") for name in e.trace.names("*.weights")]


def weights(e: Explanation, attention: str) -> Tensor:
    """softmax(Q Kᵀ / √d) of every head, [heads, queries, keys]."""
    return e.trace[f"{attention}.weights", 0].float().cpu()


def entropies(e: Explanation) -> dict[str, Tensor]:
    """How widely each head looks: −Σ w ln w over the keys, in nats, mean over the rows, [heads] of each attention.

    0 where every query looks at one key only, ln n where it looks at n keys alike; a first row of a masked attention sees one
    key and adds 0.
    """
    return {name: torch.special.entr(weights(e, name)).sum(-1).mean(-1) for name in attentions(e)}


def rollout(e: Explanation, stack: Stack) -> Tensor:
    """Attention followed down through the layers to the tokens that entered (Abnar and Zuidema, 2020); rows add to 1.

    With A the mean over the heads, half of each token comes through the residual path: R ← ½ R + ½ A R from R = I, layer by
    layer, [tokens, tokens]. `both` is the decoder over both of its inputs, [target tokens, source tokens + target tokens]:
    its cross-attention brings in the encoder's, R ← ½ R + ½ C [R_encoder, 0]. Values, norms and feed-forward are left out.
    """
    e.transformer("rollout")
    layouts = e.trace.layouts
    if stack not in ("encoder", "decoder", "both") or (stack != "decoder" and "encoder" not in layouts):
        known = "encoder, decoder or both" if "encoder" in layouts else "decoder, for this model has no encoder"
        raise UsageError(f'no rollout of "{stack}": take {known}')
    if stack != "both":
        reached = torch.eye(int(layouts[stack].lengths[0]))
        for name in attentions(e):
            if name.startswith(stack) and not name.endswith(".cross"):
                reached = _half(reached, weights(e, name).mean(0) @ reached)
        return reached
    memory = rollout(e, "encoder")  # [U, U]
    rows = int(layouts["decoder"].lengths[0])
    reached = torch.cat([torch.zeros(rows, len(memory)), torch.eye(rows)], dim=1)  # [T, U + T]
    brought = torch.cat([memory, torch.zeros(len(memory), rows)], dim=1)  # [U, U + T]
    for name in attentions(e):
        if name.startswith("decoder"):
            reached = _half(reached, weights(e, name).mean(0) @ (brought if name.endswith(".cross") else reached))
    return reached


def _half(stays: Tensor, comes: Tensor) -> Tensor:
    return 0.5 * stays + 0.5 * comes


def ablations(e: Explanation, attention: str) -> Tensor:
    """What each head is worth to each token: ln P(token) as it is − ln P(token) with the head switched off, [heads, rows].

    The output is held fixed, so that the rows can be compared. A head whose loss another makes good shows as worthless.
    """
    heads = weights(e, attention).shape[0]
    less = [again(e, *e.interventions, without(attention, head)).chosen for head in range(heads)]
    return e.chosen - torch.stack(less)
