"""Classification: one forward pass of an encoder, and the most likely tokens for each source."""

from collections.abc import Iterator, Sequence

import torch

from seq2see.data.framing import Framing
from seq2see.data.layout import Packed, Tokens
from seq2see.decode.search import Hypothesis, Search
from seq2see.errors import UsageError
from seq2see.model.network import Network

MAX_ROWS = 16_384  # source tokens per pass


@torch.inference_mode()
def classify(
    model: Network, sources: Sequence[Tokens], special_tokens: Framing, search: Search
) -> list[list[Hypothesis]]:
    """Returns the `nbest` classes of each source, best first."""
    if search.temperature:
        raise UsageError("a classifier does not sample: use temperature = 0")
    found: list[list[Hypothesis]] = []
    for chunk in _chunks(sources):
        logprobs = model(Packed.from_sequences(chunk, model.embedding.weight.device)).float().log_softmax(-1)  # [S, V]
        logprobs[:, [*special_tokens.banned, special_tokens.end]] = -torch.inf
        best = logprobs.topk(max(search.nbest, search.alternatives))
        for values, ids in zip(best.values.tolist(), best.indices.tolist(), strict=True):
            ranked = list(zip(ids, values, strict=True))
            alternatives = (tuple(ranked[: search.alternatives]),) * bool(search.alternatives)
            found.append([Hypothesis((id,), (p,), p, True, alternatives) for id, p in ranked[: search.nbest]])
    return found


def _chunks(sources: Sequence[Tokens]) -> Iterator[Sequence[Tokens]]:
    start = rows = 0
    for i, source in enumerate(sources):
        if i > start and rows + len(source) > MAX_ROWS:
            yield sources[start:i]
            start, rows = i, 0
        rows += len(source)
    if sources:
        yield sources[start:]
