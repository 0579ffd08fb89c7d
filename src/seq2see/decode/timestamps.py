"""Whisper's rules for tokens that are times: which tokens may come next (Radford et al., 2022; as in their code).

An output is a list of segments, each a time, text and a time; times do not decrease. Where times together are more likely
than any other token, a time comes next.

Shapes: S sequences, N tokens generated so far, V vocabulary.
"""

import torch
from torch import Tensor

MAX_INITIAL_TIMESTAMP = 50  # steps of 20 ms: the first segment starts within a second


def limit_timestamps(logits: Tensor, tokens: Tensor, count: Tensor, first: int, end: int) -> Tensor:
    """Returns the logits with −∞ for tokens that may not come next, [S, V].

    `count` of the `tokens` are generated, [S] and [S, N]. Ids from `first` on are times, and `end` ends an output.
    """
    ids, step = torch.arange(logits.shape[1], device=logits.device), count[:, None]
    is_time, is_text = ids >= first, ids < end
    last, previous = (tokens.gather(1, (step - back).clamp(min=0)) for back in (1, 2))  # [S, 1]
    after_time = (step >= 1) & (last >= first)
    after_text = (step >= 2) & (previous < first)  # before the last token
    generated = torch.arange(tokens.shape[1], device=logits.device) < step
    latest = torch.where(generated & (tokens >= first), tokens, first - 1).amax(1, keepdim=True)
    # A segment may start when the one before it ends, but must last some time.
    earliest = latest + ~(after_time & after_text)
    forbidden = after_time & torch.where(after_text, is_text, is_time)
    forbidden |= is_time & (ids < earliest)
    forbidden |= (step == 0) & ~(is_time & (ids <= first + MAX_INITIAL_TIMESTAMP))
    forbidden |= ids == first - 1  # <|notimestamps|>
    allowed = logits.float().masked_fill(forbidden, -torch.inf)
    times = allowed[:, first:].logsumexp(1, keepdim=True)
    return allowed.masked_fill((times > allowed[:, :first].amax(1, keepdim=True)) & ~is_time, -torch.inf)
