"""Our Transformer on padded, batch-first tensors, with caches as inputs and outputs: the form that can be exported as a graph.

The shapes of packed batches depend on their content, which a graph cannot express. The layers are the network's own: they map
row by row, and only the stores of keys and values know that the sequences are padded. A test holds the two forms equal.

Shapes: B sequences, L new tokens each, P cached ones, U source tokens, H heads, G heads of keys and values, d a head's width.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from seq2see.data.layout import Layout, Packed
from seq2see.model.attention import PackedKeys, Scoring
from seq2see.model.layers import Memory
from seq2see.model.taps import NO_TAPS, Taps
from seq2see.model.transformer import Stack, Transformer

Cache = tuple[Tensor, Tensor]  # keys and values, [B, G, P, d] each
HIDDEN = -1e9  # the score of a key that must not be seen; finite, as a padded query may see none


@dataclass
class PaddedKeys:
    """The keys of one attention, which is its store as well."""

    takes_bias: ClassVar[bool] = True

    visible: Tensor  # [B or 1, 1, L or 1, P + L]
    cache: Cache | None = None
    bias: Tensor | None = None  # [1, H, P + L, P + L]

    def append(self, new: PackedKeys) -> "PaddedKeys":
        k, v = new.k.transpose(1, 2), new.v.transpose(1, 2)  # [B, G, L, d]
        if self.cache is not None:
            k, v = torch.cat([self.cache[0], k], dim=2), torch.cat([self.cache[1], v], dim=2)
        self.cache, self.bias = (k, v), new.bias
        return self

    def stored(self) -> "PaddedKeys":
        return self

    def attend(self, q: Tensor, queries: Layout, scoring: Scoring, dropout: float, taps: Taps) -> Tensor:
        """Attends to everything cached: [B, L, H, d] to the same shape."""
        assert self.cache is not None
        (k, v), length = self.cache, q.shape[1]
        groups = k.shape[1]
        q = q.transpose(1, 2).unflatten(1, (groups, -1))  # [B, G, H / G, L, d]
        scores = q @ k[:, :, None].transpose(-1, -2) * scoring.factor(q.shape[-1])
        if scoring.cap:
            scores = scoring.cap * torch.tanh(scores / scoring.cap)
        if self.bias is not None:
            latest = self.bias[:, :, self.bias.shape[2] - length :]
            scores = scores + latest.unflatten(1, (groups, -1))
        scores = scores.masked_fill(~self.visible[:, :, None], HIDDEN)
        return (scores.softmax(-1) @ v[:, :, None]).flatten(1, 2).transpose(1, 2)


class PaddedStack(nn.Module):
    """The encoder or the decoder."""

    def __init__(self, network: Transformer, stack: Stack | None) -> None:
        super().__init__()
        assert stack is not None
        self.network, self.stack, self.window = network, stack, network.config.attention_window
        # Chosen here: within a traced graph, no module is another one.
        own = network.source_embedding if stack is network.encoder else None
        self.embedding = own or network.embedding

    def run(
        self,
        ids: Tensor,
        positions: Tensor,
        own: Sequence[PaddedKeys],
        cross: Sequence[PaddedKeys] = (),
        memory: Tensor | None = None,
    ) -> Tensor:
        """Returns the vectors for ids and positions [B, L], and extends the caches of every layer."""
        # Of a layout, a stack reads the positions and, if they are relative, the number of keys.
        count = own[0].visible.shape[-1] if self.stack.relative_bias is not None else 0
        layout = Layout(starts=positions, positions=positions, padded_index=positions, mask=positions, max_length=count)
        embedded = self.network.embed(self.embedding, Packed(ids, layout), NO_TAPS)
        stores = list(zip(own, cross or own, strict=True))
        return self.stack(embedded, layout, NO_TAPS, None if memory is None else Memory(memory, layout), stores)

    def keys(self, visible: Tensor, local: Tensor, past: Sequence[Cache]) -> list[PaddedKeys]:
        """Returns the keys of every layer; `visible` and `local` are the masks of global and local layers."""
        caches: Sequence[Cache | None] = past or [None] * len(self.stack.blocks)
        blocks = zip(self.stack.blocks, caches, strict=True)
        return [PaddedKeys(local if block.local else visible, cache) for block, cache in blocks]


def _visible(mask: Tensor, length: int) -> Tensor:
    return mask.bool()[:, None, None, :].expand(-1, 1, length, -1)


def _causal(new: int, total: int, window: int) -> tuple[Tensor, Tensor]:
    """Returns what the latest `new` of `total` positions see in global and in local layers, [1, 1, new, total] each."""
    keys = torch.arange(total)
    queries = keys[total - new :][:, None]
    visible = keys <= queries
    local = visible & (keys > queries - window) if window else visible
    return visible[None, None], local[None, None]


def _flat(caches: Sequence[PaddedKeys]) -> list[Tensor]:
    return [x for keys in caches for x in keys.cache or ()]


class Encoder(PaddedStack):
    """ids and mask, [B, U] each, to vectors; with a head for masked tokens, to logits."""

    def __init__(self, network: Transformer) -> None:
        super().__init__(network, network.encoder)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        visible = _visible(attention_mask, input_ids.shape[1])
        positions = torch.arange(input_ids.shape[1])[None].expand_as(input_ids)
        vectors = self.run(input_ids, positions, self.keys(visible, visible, ()))
        if self.network.masked_head is None:
            return vectors
        return self.network.project(self.network.masked_head(vectors, NO_TAPS))


class TranslationDecoder(PaddedStack):
    """The first pass: ids [B, L], source mask and vectors to logits and all caches, each a key and a value of every layer."""

    def __init__(self, network: Transformer) -> None:
        super().__init__(network, network.decoder)

    def forward(
        self, input_ids: Tensor, encoder_hidden_states: Tensor, encoder_attention_mask: Tensor
    ) -> tuple[Tensor, ...]:
        logits, own, cross = self.decode(input_ids, encoder_attention_mask, (), (), encoder_hidden_states)
        return logits, *_flat([keys for layer in zip(own, cross, strict=True) for keys in layer])

    def decode(
        self, ids: Tensor, mask: Tensor, past: Sequence[Cache], source: Sequence[Cache], memory: Tensor | None = None
    ) -> tuple[Tensor, list[PaddedKeys], list[PaddedKeys]]:
        cached = past[0][0].shape[2] if past else 0
        own = self.keys(*_causal(ids.shape[1], cached + ids.shape[1], self.window), past)
        visible = _visible(mask, ids.shape[1])
        cross = self.keys(visible, visible, source)
        positions = (torch.arange(ids.shape[1]) + cached)[None].expand_as(ids)
        return self.network.project(self.run(ids, positions, own, cross, memory)), own, cross


class TranslationStep(TranslationDecoder):
    """A later pass: new ids, source mask and the caches of every layer to logits and the extended caches."""

    def forward(  # type: ignore[override]
        self, input_ids: Tensor, encoder_attention_mask: Tensor, past: list[Tensor]
    ) -> tuple[Tensor, ...]:
        own, source = (list(zip(past[i::4], past[i + 1 :: 4], strict=True)) for i in (0, 2))
        logits, keys, _ = self.decode(input_ids, encoder_attention_mask, own, source)
        return logits, *_flat(keys)


class LanguageModel(PaddedStack):
    """New ids, [B, L], the mask of all tokens so far, [B, P + L], and in later passes the caches, to logits and caches.

    Prompts are padded on the left.
    """

    def __init__(self, network: Transformer) -> None:
        super().__init__(network, network.decoder)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, past: Sequence[Tensor] = ()) -> tuple[Tensor, ...]:
        new, total = input_ids.shape[1], attention_mask.shape[1]
        visible, local = (mask & attention_mask.bool()[:, None, None] for mask in _causal(new, total, self.window))
        keys = self.keys(visible, local, list(zip(past[::2], past[1::2], strict=True)))
        positions = (attention_mask.cumsum(1) - 1).clamp(min=0)[:, total - new :]
        return self.network.project(self.run(input_ids, positions, keys)), *_flat(keys)
