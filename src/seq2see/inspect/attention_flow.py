"""What each head attends to: its entropy, its effect on the output, and attention rolled out over all layers.

Attention weights show where a head reads from, not what it reads or what later layers do with it. `head_ablation` is the
check: how the probabilities change without that head.
"""

from copy import copy
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from seq2see.errors import UsageError, did_you_mean
from seq2see.inspect.explain import Explanation, rerun, takes_explanation
from seq2see.inspect.interventions import ablate_head

RolloutStack = Literal["encoder", "decoder", "both"]


@takes_explanation
def attention_names(e: Explanation) -> list[str]:
    """Returns the names of all attentions, in order of computation: `encoder.0.self`, `decoder.0.masked` …"""
    return [name.removesuffix(".weights") for name in e.trace.names("*.weights")]


@takes_explanation
def attention_weights(e: Explanation, attention: str) -> Tensor:
    """Returns softmax(Q Kᵀ / √d) of every head, [heads, queries, keys]."""
    known = attention_names(e)
    if attention not in known:
        raise UsageError(f'no attention "{attention}": {did_you_mean(attention, known)}')
    return e.trace[f"{attention}.weights", 0].float().cpu()


@takes_explanation
def attention_entropy(e: Explanation) -> dict[str, Tensor]:
    """Returns the entropy of each head, −Σ w ln w over the keys in nats, mean over the rows: [heads] per attention.

    0 if every query attends to a single key, ln n if it attends to n keys equally. The first row of masked attention sees
    only one key and contributes 0.
    """
    return {name: torch.special.entr(attention_weights(e, name)).sum(-1).mean(-1) for name in attention_names(e)}


@takes_explanation
def attention_rollout(e: Explanation, stack: RolloutStack) -> Tensor:
    """Rolls attention out over the layers, down to the input tokens (Abnar and Zuidema, 2020); rows sum to 1.

    With A the mean over the heads, half of each token comes through the residual connection: R ← ½ R + ½ A R, starting from
    R = I, [tokens, tokens]. `both` covers both inputs of the decoder, [target tokens, source tokens + target tokens]: its
    cross-attention adds the encoder's rollout, R ← ½ R + ½ C [R_encoder, 0]. Values, norms and feed-forward are ignored.
    """
    e.require_transformer("attention rollout")
    layouts = e.trace.layouts
    missing = [name for name in ("encoder", "decoder") if name not in layouts]
    if stack not in ("encoder", "decoder", "both") or (missing and stack in (*missing, "both")):
        known = f"{next(iter(layouts))}: this model has no {missing[0]}" if missing else "encoder, decoder or both"
        raise UsageError(f'cannot roll out "{stack}": choose {known}')
    own = "encoder" if stack == "encoder" else "decoder"
    rows = int(layouts[own].lengths[0])
    rollout, source = torch.eye(rows), None
    if stack == "both":
        encoder = attention_rollout(e, "encoder")  # [U, U]
        rollout, source = F.pad(rollout, (len(encoder), 0)), F.pad(encoder, (0, rows))  # [T, U + T], [U, U + T]
    for name in attention_names(e):
        attended = source if name.endswith(".cross") else rollout
        if name.startswith(own) and attended is not None:
            rollout = 0.5 * rollout + 0.5 * attention_weights(e, name).mean(0) @ attended
    return rollout


@takes_explanation
def head_ablation(e: Explanation, attention: str) -> Tensor:
    """Returns the drop in each target token's log-probability when a head is ablated, [heads, rows].

    The output is held fixed, so that rows are comparable. A head that others can replace shows a drop near 0.
    """
    e.require_output("head ablation")
    e = replace(e, model=replace(e.model, network=copy(e.model.network)))  # under no interventions but its own
    heads = attention_weights(e, attention).shape[0]
    ablated = [rerun(e, *e.interventions, ablate_head(attention, head)).target_logprobs for head in range(heads)]
    return e.target_logprobs - torch.stack(ablated)
