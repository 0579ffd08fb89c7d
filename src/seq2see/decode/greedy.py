"""The simplest decoding: one token at a time, always the likeliest, until the end token.

Nothing is cached, so it is for short sentences and for validation; the whole prefix goes through the decoder each time,
which is exactly what training computes.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from seq2see.model.layout import Packed
from seq2see.model.transformer import Transformer

LONGER = 1.5  # a translation is given so many times the tokens of its source, and some more
MORE = 10


@torch.no_grad()
def translate(
    model: Transformer, sources: Sequence[Sequence[int]], start: int, end: int, tokens: int = 4000
) -> list[list[int]]:
    """The translation of each source, without `<end>`, in the order given."""
    device = model.embedding.weight.device
    outputs: list[list[int]] = [[] for _ in sources]
    for group in _groups(sources, tokens):
        source = Packed.of([sources[i] for i in group], device)
        memory = model.encode(source)
        room = {i: int(len(sources[i]) * LONGER) + MORE for i in group}
        alive = list(group)
        while alive:
            prefixes = Packed.of([[start, *outputs[i]] for i in alive], device)
            rows = [group.index(i) for i in alive]
            kept = torch.cat([memory[source.layout.slice(row)] for row in rows])
            seen = Packed.of([sources[i] for i in alive], device).layout
            vectors = model.decode(prefixes, kept, seen)
            last = vectors[prefixes.layout.starts[1:].long() - 1]  # [S, width]: the last token of each
            best: Tensor = model.logits(last, prefixes.layout).argmax(-1)
            for i, token in zip(alive, best.tolist(), strict=True):
                if token != end:
                    outputs[i].append(token)
            done = {i for i, token in zip(alive, best.tolist(), strict=True) if token == end}
            alive = [i for i in alive if i not in done and len(outputs[i]) < room[i]]
    return outputs


def _groups(sources: Sequence[Sequence[int]], tokens: int) -> Iterator[list[int]]:
    """Sentences of like length, so many at a time as a budget of tokens allows."""
    group: list[int] = []
    for i in sorted(range(len(sources)), key=lambda i: len(sources[i])):
        if group and (len(group) + 1) * len(sources[i]) > tokens:
            yield group
            group = []
        group.append(i)
    if group:
        yield group
