"""Recurrent encoder-decoders: the model of 2014, and the model of 2015 with attention.

    2014   source, reversed ── LSTM ── last state ── LSTM ── logits                   (Sutskever, Vinyals and Le)
    2015   source ── bidirectional LSTM ── h₁ … hₙ ── attention ─┐                    (Bahdanau, Cho and Bengio)
                                    target, token by token ── LSTM ── logits

The state of an LSTM layer is the hidden state h and the cell state c. The decoder of 2014 receives the encoder's last states
and nothing else, whatever the sentence length; that of 2015 attends to every source token before each step, with the weights
softmax(vᵀ tanh(W s + U h)). Both are LSTMs here, and both share training, decoding and inspection with the Transformer.

Shapes: S sequences, T tokens of the target in the batch, U of the source, L and M tokens in the longest of each.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from seq2see.config import ModelConfig
from seq2see.data.batch import Batch
from seq2see.data.layout import Layout, Packed
from seq2see.model.init import initialize
from seq2see.model.layers import Memory
from seq2see.model.network import Network
from seq2see.model.taps import NO_TAPS, Taps


@dataclass(frozen=True)
class AttentionMemory:
    """The padded keys and values of the source tokens."""

    keys: Tensor  # [S, M, width]: U h
    values: Tensor  # [S, M, width]: h
    mask: Tensor  # [S, M] true where there is a token

    @property
    def layout(self) -> Layout:
        return Layout.from_lengths(self.mask.sum(1), self.mask.shape[1])

    @cached_property
    def padding_mask(self) -> Tensor:
        """[S, 1, 1, M] true where a key must not be attended to. An empty sequence, as in fixed-size batches, attends to
        everything, since a fully masked softmax would be NaN.
        """
        return (~self.mask & self.mask.any(1, keepdim=True))[:, None, None]


class StateStore(Protocol):
    """The decoder state between the steps of incremental decoding."""

    def store(self, state: Tensor, attention_memory: AttentionMemory | None) -> None:
        """Stores the state after the last token of each sequence."""

    def load(self) -> tuple[Tensor, AttentionMemory | None]: ...


@dataclass(frozen=True)
class AttentionStep:
    """The attention of every sequence at one step."""

    queries: Tensor  # [S, 1, width]
    energies: Tensor  # [S, 1, 1, M]
    weights: Tensor  # [S, 1, 1, M]
    heads: Tensor  # [S, 1, width]: the output of the single head


class AdditiveAttention(nn.Module):
    """softmax(vᵀ tanh(W s + U h)): returns the weighted mean of the source vectors h for each decoder state s."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.queries = nn.Linear(width, width)
        self.keys = nn.Linear(width, width, bias=False)
        self.score = nn.Linear(width, 1, bias=False)

    def forward(self, state: Tensor, memory: AttentionMemory, taps: Taps) -> AttentionStep:
        queries = taps("queries", self.queries(state)[:, None])  # [S, 1, width]
        energies = self.score(torch.tanh(queries + memory.keys)).mT[:, None]  # [S, 1, 1, M]
        energies = taps("energies", energies)
        weights = taps("weights", energies.masked_fill(memory.padding_mask, -torch.inf).softmax(-1))
        heads = taps("heads", weights[:, 0].to(memory.values.dtype) @ memory.values)
        return AttentionStep(queries, energies, weights, heads)


class RecurrentEncoder(nn.Module):
    """2014: reads the source from last token to first, so that the first source tokens are close to the first target tokens.
    2015: bidirectional, half of the width per direction.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.bidirectional = config.kind == "rnn-attention"
        size = config.width // 2 if self.bidirectional else config.width
        self.layers = nn.ModuleList(
            nn.LSTM(config.width, size, batch_first=True, bidirectional=self.bidirectional)
            for _ in range(config.encoder_layers)
        )
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, embedded: Tensor, layout: Layout, taps: Taps) -> Tensor:
        """2014: the last state of each sequence, [S, layers, 2, width]; 2015: one vector per token, [U, width]."""
        x = self.dropout(taps("embedded", embedded))
        if self.bidirectional:
            for i, lstm in enumerate(self.layers):
                hidden, _ = run_lstm(lstm, x, layout)
                x = self.dropout(taps.at(str(i))("states", hidden))
            return taps("vectors", x)
        ends = layout.starts[1:].long()[layout.padded_index // layout.max_length]  # [U]
        backwards = ends - 1 - layout.positions  # [U]
        last = _first_rows(layout)
        states = []
        for i, lstm in enumerate(self.layers):
            hidden, state = run_lstm(lstm, x[backwards], layout)
            hidden = taps.at(str(i))("states", hidden[backwards])
            states.append(torch.stack([hidden[last], state[:, 1]], dim=1))  # taps may have changed the hidden states
            x = self.dropout(hidden)
        return torch.stack(states, dim=1)


class RecurrentDecoder(nn.Module):
    """Continues from a state, [S, layers, 2, width]. In 2015 the first layer also receives the attention output."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.width, attends = config.width, config.kind == "rnn-attention"
        self.attention = AdditiveAttention(config.width) if attends else None
        self.cell = nn.LSTMCell(2 * config.width, config.width) if attends else None
        self.layers = nn.ModuleList(
            nn.LSTM(config.width, config.width, batch_first=True) for _ in range(config.decoder_layers - attends)
        )
        self.initial_state = nn.Linear(config.width // 2, config.decoder_layers * config.width) if attends else None
        self.combine = nn.Linear(3 * config.width, config.width) if attends else None
        self.dropout = nn.Dropout(config.dropout)

    def start(self, memory: Tensor, layout: Layout, taps: Taps) -> tuple[Tensor, AttentionMemory | None]:
        """Returns the state before the first token and the source tokens to attend to."""
        if self.attention is None or self.initial_state is None:
            return memory, None
        cross = taps.at("0").at("cross", keys=layout)
        keys, values = cross("keys", self.attention.keys(memory)[:, None]), cross("values", memory[:, None])
        attention_memory = AttentionMemory(layout.pad(keys[:, 0]), layout.pad(values[:, 0]), layout.mask)
        # At the first token, the backward direction has read the whole sentence.
        backward = memory[_first_rows(layout), self.width // 2 :]
        h = torch.tanh(self.initial_state(backward)).unflatten(-1, (-1, self.width))  # [S, layers, width]
        return torch.stack([h, torch.zeros_like(h)], dim=2), attention_memory

    def forward(
        self, embedded: Tensor, layout: Layout, state: Tensor, attention_memory: AttentionMemory | None, taps: Taps
    ) -> tuple[Tensor, Tensor]:
        """Returns the vectors, [T, width], and the state after each sequence's last token."""
        x = token = self.dropout(taps("embedded", embedded))
        final_states, context = [], None
        if attention_memory is not None:
            hidden, context, final_state = self._attending_layer(x, layout, state[:, 0], attention_memory, taps.at("0"))
            final_states.append(final_state)
            x = self.dropout(taps.at("0")("states", hidden))
        for i, lstm in enumerate(self.layers, start=len(final_states)):
            hidden, final_state = run_lstm(lstm, x, layout, state[:, i])
            final_states.append(final_state)
            x = self.dropout(taps.at(str(i))("states", hidden))
        if self.combine is not None and context is not None:
            x = self.dropout(torch.tanh(self.combine(torch.cat([x, context, token], dim=-1))))
        return taps("vectors", x), torch.stack(final_states, dim=1)

    def _attending_layer(
        self, x: Tensor, layout: Layout, state: Tensor, attention_memory: AttentionMemory, taps: Taps
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The first layer of 2015, one token at a time: the query of each step is the state before it."""
        assert self.attention is not None and self.cell is not None
        tokens = layout.pad(x)  # [S, L, width]
        h, c = state.unbind(1)
        steps, states = [], []
        # unbind, because the backward pass of tokens[:, t] allocates a full-size gradient at every step.
        for t, token in enumerate(tokens.unbind(1)):
            cross = NO_TAPS
            if taps.active:
                cross = taps.interventions_only().at("cross", _single_step(layout, t), attention_memory.layout)
            step = self.attention(h, attention_memory, cross)
            # Autocast does not cover LSTM cells, so all inputs must have the same dtype.
            h, c = self.cell(torch.cat([token, step.heads[:, 0].to(x.dtype)], dim=-1), (h, c))
            steps.append(step)
            states.append(torch.stack([h, c], dim=1))
        all_states, heads = torch.stack(states, dim=1), torch.stack([step.heads for step in steps], dim=1)  # [S, L, …]
        if taps.active:
            record = taps.at("cross", layout, attention_memory.layout).recorders_only()
            record("queries", layout.unpad(torch.stack([step.queries for step in steps], dim=1)))
            record("energies", torch.cat([step.energies for step in steps], dim=2))
            record("weights", torch.cat([step.weights for step in steps], dim=2))
            record("heads", layout.unpad(heads))
        last = (layout.lengths.long() - 1).clamp(min=0)
        final_state = all_states[torch.arange(len(last), device=last.device), last]  # [S, 2, width]
        hidden = layout.unpad(all_states[:, :, 0].contiguous())
        return hidden, layout.unpad(heads)[:, 0].to(x.dtype), final_state


class Recurrent(Network):
    encoder: RecurrentEncoder
    decoder: RecurrentDecoder

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config, RecurrentEncoder(config), RecurrentDecoder(config))
        initialize(self)

    def encode(self, source: Packed, taps: Taps = NO_TAPS) -> Tensor:
        """2014: a state, [S, layers, 2, width]; 2015: one vector per token, [U, width]."""
        taps = taps.at("encoder", rows=source.layout, keys=source.layout)
        return self.encoder(self.embed_source(source, taps), source.layout, taps)

    def decode(
        self, target: Packed, memory: Memory | None = None, taps: Taps = NO_TAPS, stores: StateStore | None = None
    ) -> Tensor:
        """Starts from the encoder's memory or else from the stored state."""
        taps = taps.at("decoder", rows=target.layout, keys=target.layout)
        embedded = self.embed(self.embedding, target, taps)
        if memory is not None:
            state, attention_memory = self.decoder.start(memory.vectors, memory.layout, taps)
        else:
            assert stores is not None
            state, attention_memory = stores.load()
        vectors, state = self.decoder(embedded, target.layout, state, attention_memory, taps)
        if stores is not None:
            stores.store(state, attention_memory)
        return vectors


def training_flops(model: ModelConfig, batch: Batch) -> float:
    """Returns the FLOPs of the forward and backward pass, counted as in train/estimates.py.

    Each of an LSTM's four gates reads the input and the state; additive attention (2015) sums pairs of vectors.
    """
    assert batch.source is not None
    square = model.width**2
    t, u = len(batch.targets), len(batch.source.tokens)
    weights = t * (model.decoder_layers * 8 * square + model.width * model.vocab_size)
    pairs = 0.0
    if model.kind == "rnn":
        weights += u * model.encoder_layers * 8 * square
    else:
        weights += u * (model.encoder_layers * 6 + 1) * square  # bidirectional at half the width; keys
        weights += t * (4 + 1 + 3) * square  # context input; queries; output
        pairs = float((batch.inputs.lengths * batch.source.lengths).sum())
    return 3 * (2 * weights + 6 * model.width * pairs) * batch.num_targets / max(t, 1)


def run_lstm(lstm: nn.Module, x: Tensor, layout: Layout, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Runs one layer over packed rows. Returns the hidden state at each token, [T, width], and the state after the last
    token of each sequence, [S, 2, width] (of one direction, if bidirectional).
    """
    initial = None
    if state is not None:
        h, c = state.to(x.dtype)[None].unbind(2)
        initial = h.contiguous(), c.contiguous()
    padded = layout.pad(x)  # [S, L, width]
    if layout.is_uniform:
        hidden, (h, c) = lstm(padded, initial)
    else:
        # pack_padded_sequence rejects empty sequences: each is read as one zero vector, whose output is dropped.
        lengths = layout.lengths.long().clamp(min=1).cpu()
        packed = pack_padded_sequence(padded, lengths, batch_first=True, enforce_sorted=False)
        hidden, (h, c) = lstm(packed, initial)
        hidden, _ = pad_packed_sequence(hidden, batch_first=True, total_length=layout.max_length)
    return layout.unpad(hidden), torch.stack([h[-1], c[-1]], dim=1)


def _first_rows(layout: Layout) -> Tensor:
    """The row of each sequence's first token, [S]; for an empty sequence, the row of some other token."""
    return layout.starts[:-1].long().clamp(max=len(layout.positions) - 1)


def _single_step(layout: Layout, t: int) -> Layout:
    """The layout of token t of every sequence, each as a sequence of length 1."""
    if layout.max_length == 1:
        return layout
    step = Layout.from_lengths([1] * len(layout)).to(layout.starts.device)
    positions = torch.where(layout.lengths > t, t, -1)  # −1: past the end, where no intervention acts
    return replace(step, positions=positions, sequence_ids=layout.resolved_sequence_ids)
