"""The simplest decoding: one token at a time, always the likeliest, until the end token.

Nothing is cached, so it is for short sentences and for validation; the whole prefix goes through the decoder each time,
which is exactly what training computes.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate

import torch
from torch import Tensor

from seq2see.model.layout import Layout, Packed
from seq2see.model.transformer import Transformer

LONGER = 1.5  # a translation is given so many times the tokens of its source, and some more
MORE = 10


@torch.no_grad()
def translate(
    model: Transformer, sources: Sequence[Sequence[int]], start: int, end: int, tokens: int = 4000
) -> list[list[int]]:
    """The translation of each source, without `<end>`, in the order given."""
    outputs: list[list[int]] = [[] for _ in sources]
    for group in _groups(sources, tokens):
        source = Packed.of([sources[i] for i in group], model.embedding.weight.device)
        memory, layout = model.encode(source), source.layout
        alive = group
        while alive:
            prefixes = Packed.of([[start, *outputs[i]] for i in alive], memory.device)
            vectors = model.decode(prefixes, memory, layout)
            last = vectors[prefixes.layout.starts[1:].long() - 1]  # [S, width]: the last token of each
            best = model.logits(last, prefixes.layout).argmax(-1).tolist()
            going = []
            for place, (i, token) in enumerate(zip(alive, best, strict=True)):
                if token != end:
                    outputs[i].append(token)
                    if len(outputs[i]) < len(sources[i]) * LONGER + MORE:
                        going.append(place)
            if len(going) < len(alive):
                memory, layout = _only(memory, [len(sources[i]) for i in alive], going)
                alive = [alive[place] for place in going]
    return outputs


def _only(memory: Tensor, lengths: Sequence[int], places: Sequence[int]) -> tuple[Tensor, Layout]:
    """The vectors of some of the sequences. Lengths are known to the host, so that nobody waits for the device."""
    starts = [0, *accumulate(lengths)]
    rows = torch.tensor([row for place in places for row in range(starts[place], starts[place + 1])], dtype=torch.int64)
    return memory[rows.to(memory.device)], Layout.of([lengths[place] for place in places]).to(memory.device)


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
