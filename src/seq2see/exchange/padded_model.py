"""Our Transformer on padded, batch-first tensors, with caches as inputs and outputs: the form that can be exported as a graph.

The shapes of packed batches depend on their content, which a graph cannot express. The weights are those of the network; a test
holds the two equal.

Shapes: B sequences, L new tokens each, P cached ones, U source tokens, H heads, G heads of keys and values, d a head's width.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seq2see.model.layers import Attention, Block, CrossAttention, SelfAttention
from seq2see.model.positions import Rotation, rotary_cos_sin, rotary_frequencies, rotate
from seq2see.model.taps import NO_TAPS
from seq2see.model.transformer import Stack, Transformer

Cache = tuple[Tensor, Tensor]  # keys and values, [B, G, P, d] each
HIDDEN = -1e9  # the score of a key that must not be seen; finite, as a padded query may see none


class PaddedStack(nn.Module):
    """The encoder or the decoder."""

    def __init__(self, network: Transformer, stack: Stack) -> None:
        super().__init__()
        self.config, self.stack = network.config, stack
        is_encoder = stack is network.encoder
        self.embedding = (network.source_embedding if is_encoder else None) or network.embedding

    def embed(self, ids: Tensor, positions: Tensor) -> Tensor:
        """Returns the input of the first block for ids and positions [B, L]."""
        config, stack = self.config, self.stack
        x = self.embedding(ids)
        if config.scale_embeddings:
            x = x * math.sqrt(config.width)
        if stack.segments is not None:
            x = x + stack.segments.weight[0]
        if stack.positions is not None:
            x = x + stack.positions(positions)
        elif stack.sinusoids is not None:
            x = x + F.embedding(positions, stack.sinusoids)
        return x if stack.embedding_norm is None else stack.embedding_norm(x, NO_TAPS)

    def run(
        self, ids: Tensor, positions: Tensor, visible: Tensor, local: Tensor, caches: list[Cache] | None = None,
        cross: list[Cache] | None = None, source_visible: Tensor | None = None,
    ) -> tuple[Tensor, list[Cache]]:  # fmt: skip
        """Returns the vectors and the extended caches; `visible` and `local` are the masks of global and local layers."""
        x = self.embed(ids, positions)
        rotations = [self._rotation(positions, local=kind) for kind in (False, True)]
        bias = self._bias(visible)
        extended = []
        for i, block in enumerate(self.stack.blocks):
            assert isinstance(block, Block)
            past = None if caches is None else caches[i]
            mask = local if block.local else visible
            y, cache = _self_attention(
                block.attention, _normed(block.attention_norm, x), rotations[block.local], mask, past, bias
            )
            x = _add(block.attention_norm, x, y)
            extended.append(cache)
            if block.cross is not None and cross is not None and source_visible is not None:
                x = _add(
                    block.cross_norm,
                    x,
                    _cross_attention(block.cross, _normed(block.cross_norm, x), cross[i], source_visible),
                )
            x = _add(block.feed_forward_norm, x, block.feed_forward(_normed(block.feed_forward_norm, x), NO_TAPS))
        if self.stack.final_norm is not None:
            x = self.stack.final_norm(x, NO_TAPS)
        return x, extended

    def _rotation(self, positions: Tensor, local: bool) -> Rotation | None:
        if self.config.positions != "rotary":
            return None
        frequencies = rotary_frequencies(self.config, local)
        cosines, sines = rotary_cos_sin(positions.flatten(), frequencies, self.config.rotary_magnitude)  # [B·L, 1, d]
        shape = (*positions.shape, 1, -1)
        return cosines.reshape(shape), sines.reshape(shape)

    def _bias(self, visible: Tensor) -> Tensor | None:
        """Returns T5's bias, [1, H, L, P + L], for the latest L of P + L positions."""
        if self.stack.relative_bias is None:
            return None
        new, total = visible.shape[-2], visible.shape[-1]
        keys = torch.arange(total)
        return self.stack.relative_bias(keys[total - new :], keys)[None]


def _normed(around: nn.Module | None, x: Tensor) -> Tensor:
    assert around is not None
    return around.norm(x, NO_TAPS) if around.norm_first else x  # type: ignore[operator]


def _add(around: nn.Module | None, x: Tensor, y: Tensor) -> Tensor:
    """The residual connection of `AddAndNorm`, whose sub-layer has been computed."""
    assert around is not None
    if around.output_norm is not None:
        y = around.output_norm(y, NO_TAPS)  # type: ignore[operator]
    return x + y if around.norm_first else around.norm(x + y, NO_TAPS)  # type: ignore[operator]


def _heads(x: Tensor, width: int) -> Tensor:
    return x.unflatten(-1, (-1, width))  # [B, L, heads, d]


def _self_attention(
    attention: SelfAttention,
    x: Tensor,
    rotation: Rotation | None,
    visible: Tensor,
    past: Cache | None,
    bias: Tensor | None,
) -> tuple[Tensor, Cache]:
    linear = attention.queries_keys_values
    q, k, v = _heads(F.linear(x, linear.weight, linear.bias), linear.head_width).split(linear.heads, dim=2)
    if attention.query_norm is not None and attention.key_norm is not None:
        q, k = attention.query_norm(q, NO_TAPS), attention.key_norm(k, NO_TAPS)
    if rotation is not None:
        q, k = rotate(q, rotation), rotate(k, rotation)
    k, v = k.transpose(1, 2), v.transpose(1, 2)  # [B, G, L, d]
    if past is not None:
        k, v = torch.cat([past[0], k], dim=2), torch.cat([past[1], v], dim=2)
    return _attend(attention, q, (k, v), visible, bias), (k, v)


def cross_cache(attention: CrossAttention, memory: Tensor) -> Cache:
    """Returns the keys and values of the source, [B, G, U, d]."""
    linear = attention.keys_values
    k, v = _heads(F.linear(memory, linear.weight, linear.bias), linear.head_width).split(linear.heads, dim=2)
    return k.transpose(1, 2), v.transpose(1, 2)


def _cross_attention(attention: CrossAttention, x: Tensor, cache: Cache, visible: Tensor) -> Tensor:
    linear = attention.queries
    q = _heads(F.linear(x, linear.weight, linear.bias), linear.head_width)
    return _attend(attention, q, cache, visible, None)


def _attend(attention: Attention, q: Tensor, cache: Cache, visible: Tensor, bias: Tensor | None) -> Tensor:
    """Attends to everything cached; `visible` is [B or 1, 1, L or 1, P + L]."""
    scoring, (k, v) = attention.scoring, cache
    groups = k.shape[1]
    q = q.transpose(1, 2).unflatten(1, (groups, -1))  # [B, G, H / G, L, d]
    scores = q @ k[:, :, None].transpose(-1, -2) * scoring.factor(q.shape[-1])
    if scoring.cap:
        scores = scoring.cap * torch.tanh(scores / scoring.cap)
    if bias is not None:
        scores = scores + bias.unflatten(1, (groups, -1))
    scores = scores.masked_fill(~visible[:, :, None], HIDDEN)
    heads = (scores.softmax(-1) @ v[:, :, None]).flatten(1, 2)  # [B, H, L, d]
    return attention.project(heads.transpose(1, 2).flatten(2))


def _causal(new: int, total: int, window: int) -> tuple[Tensor, Tensor]:
    """Returns what the latest `new` of `total` positions see in global and in local layers, [1, 1, new, total] each."""
    keys = torch.arange(total)
    queries = keys[total - new :][:, None]
    visible = keys <= queries
    local = visible & (keys > queries - window) if window else visible
    return visible[None, None], local[None, None]


class Encoder(nn.Module):
    """ids and mask, [B, U] each, to vectors; with a head for masked tokens, to logits."""

    def __init__(self, network: Transformer) -> None:
        super().__init__()
        assert network.encoder is not None
        self.padded, self.network = PaddedStack(network, network.encoder), network

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        visible = attention_mask.bool()[:, None, None, :].expand(-1, 1, input_ids.shape[1], -1)
        positions = torch.arange(input_ids.shape[1])[None].expand_as(input_ids)
        vectors, _ = self.padded.run(input_ids, positions, visible, visible)
        if self.network.masked_head is None:
            return vectors
        return self.network.project(self.network.masked_head(vectors, NO_TAPS))


class TranslationDecoder(nn.Module):
    """The first pass: ids [B, L], source mask and vectors to logits and all caches, each a key and a value of every layer."""

    def __init__(self, network: Transformer) -> None:
        super().__init__()
        assert network.decoder is not None
        self.padded, self.network = PaddedStack(network, network.decoder), network

    def forward(
        self, input_ids: Tensor, encoder_hidden_states: Tensor, encoder_attention_mask: Tensor
    ) -> tuple[Tensor, ...]:
        blocks = self.padded.stack.blocks
        cross = [cross_cache(block.cross, encoder_hidden_states) for block in blocks]  # type: ignore[arg-type]
        logits, caches = _decode(self.padded, self.network, input_ids, None, cross, encoder_attention_mask)
        return logits, *(x for own, source in zip(caches, cross, strict=True) for x in (*own, *source))


class TranslationStep(TranslationDecoder):
    """A later pass: new ids, source mask and the caches of every layer to logits and the extended caches."""

    def forward(  # type: ignore[override]
        self, input_ids: Tensor, encoder_attention_mask: Tensor, past: list[Tensor]
    ) -> tuple[Tensor, ...]:
        own = [(past[i], past[i + 1]) for i in range(0, len(past), 4)]
        cross = [(past[i + 2], past[i + 3]) for i in range(0, len(past), 4)]
        logits, caches = _decode(self.padded, self.network, input_ids, own, cross, encoder_attention_mask)
        return logits, *(x for cache in caches for x in cache)


def _decode(
    padded: PaddedStack, network: Transformer, ids: Tensor, own: list[Cache] | None, cross: list[Cache], mask: Tensor
) -> tuple[Tensor, list[Cache]]:
    past = 0 if own is None else own[0][0].shape[2]
    visible, local = _causal(ids.shape[1], past + ids.shape[1], padded.config.attention_window)
    positions = (torch.arange(ids.shape[1]) + past)[None].expand_as(ids)
    source_visible = mask.bool()[:, None, None, :].expand(-1, 1, ids.shape[1], -1)
    vectors, caches = padded.run(ids, positions, visible, local, own, cross, source_visible)
    return network.project(vectors), caches


class LanguageModel(nn.Module):
    """The first pass: ids and mask, [B, L] each, to logits and caches. Prompts are padded on the left."""

    def __init__(self, network: Transformer) -> None:
        super().__init__()
        assert network.decoder is not None
        self.padded, self.network = PaddedStack(network, network.decoder), network

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, ...]:
        return self._run(input_ids, attention_mask, None)

    def _run(self, ids: Tensor, mask: Tensor, past: list[Cache] | None) -> tuple[Tensor, ...]:
        visible, local = _causal(ids.shape[1], mask.shape[1], self.padded.config.attention_window)
        keys = mask.bool()[:, None, None, :]
        positions = (mask.cumsum(1) - 1).clamp(min=0)[:, mask.shape[1] - ids.shape[1] :]
        vectors, caches = self.padded.run(ids, positions, visible & keys, local & keys, past)
        return self.network.project(vectors), *(x for cache in caches for x in cache)


class LanguageModelStep(LanguageModel):
    """A later pass: new ids, the mask of all tokens so far, [B, P + L], and the caches."""

    def forward(self, input_ids: Tensor, attention_mask: Tensor, past: list[Tensor]) -> tuple[Tensor, ...]:  # type: ignore[override]
        return self._run(input_ids, attention_mask, [(past[i], past[i + 1]) for i in range(0, len(past), 2)])
