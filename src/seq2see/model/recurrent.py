"""What came before the Transformer: the recurrent encoder-decoder of 2014, and the one with attention of 2015.

    2014   source, read from its end ── LSTM ── last state ── LSTM ── logits          (Sutskever, Vinyals and Le)
    2015   source ── LSTM both ways ── h₁ … hₙ ── attention ─┐                        (Bahdanau, Cho and Bengio)
                                    target, a word a step ── LSTM ── logits

A state is what a layer has made of all that it has read: h, which it shows, and c, which it keeps to itself. The decoder of
2014 gets the encoder's last states and nothing else, however long the sentence; that of 2015 may look back at every word
before each step, weighing them by vᵀ tanh(W s + U h). Both are LSTMs here, and both are trained, decoded and looked into as
the Transformer is.

Shapes: S sequences, T tokens of the target in the batch, U of the source, L and M tokens in the longest of each.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from seq2see.config import ModelConfig
from seq2see.layout import Layout, Packed
from seq2see.model.init import initialise
from seq2see.model.network import Network
from seq2see.model.taps import NO_TAPS, Taps


@dataclass(frozen=True)
class Source:
    """The words that an attention may look at, padded."""

    keys: Tensor  # [S, M, width]: U h
    values: Tensor  # [S, M, width]: h
    real: Tensor  # [S, M] true where there is a word

    @property
    def layout(self) -> Layout:
        return Layout.of(self.real.sum(1), self.real.shape[1])

    @cached_property
    def hidden(self) -> Tensor:
        """[S, 1, 1, M] true where there is nothing to look at. A sequence without any word, as batches of fixed size may
        have, looks everywhere: no number would be no gradient.
        """
        return (~self.real & self.real.any(1, keepdim=True))[:, None, None]


class Past(Protocol):
    """What a decoder needs of the tokens before, in the keeping of who writes one token at a time."""

    def keep(self, state: Tensor, source: Source | None) -> None:
        """The state after the last token of each sequence."""

    def recall(self) -> tuple[Tensor, Source | None]: ...


@dataclass(frozen=True)
class Look:
    """One step's attention of every sequence."""

    queries: Tensor  # [S, 1, width]
    energies: Tensor  # [S, 1, 1, M]
    weights: Tensor  # [S, 1, 1, M]
    heads: Tensor  # [S, 1, width]: what was found, by the only head


class AdditiveAttention(nn.Module):
    """softmax(vᵀ tanh(W s + U h)): a state asks the words, and gets the mean of their h, weighed."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.queries = nn.Linear(width, width)
        self.keys = nn.Linear(width, width, bias=False)
        self.fit = nn.Linear(width, 1, bias=False)

    def forward(self, state: Tensor, source: Source, taps: Taps) -> Look:
        queries = taps("queries", self.queries(state)[:, None])  # [S, 1, width]
        energies = self.fit(torch.tanh(queries + source.keys)).mT[:, None]  # [S, 1, 1, M]
        energies = taps("energies", energies)
        weights = taps("weights", energies.masked_fill(source.hidden, -torch.inf).softmax(-1))
        heads = taps("heads", weights[:, 0].to(source.values.dtype) @ source.values)
        return Look(queries, energies, weights, heads)


class RecurrentEncoder(nn.Module):
    """2014: one way, from the last word to the first, so that the output's first words are near the source's.
    2015: both ways, half of the width each.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.both = config.kind == "rnn-attention"
        size = config.width // 2 if self.both else config.width
        self.layers = nn.ModuleList(
            nn.LSTM(config.width, size, batch_first=True, bidirectional=self.both) for _ in range(config.encoder_layers)
        )
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, embedded: Tensor, layout: Layout, taps: Taps) -> Tensor:
        """2014: the last state of each sequence, [S, layers, 2, width]; 2015: a vector of each word, [U, width]."""
        x = self.dropout(taps("embedded", embedded))
        if self.both:
            for number, lstm in enumerate(self.layers):
                states, _ = read(lstm, x, layout)
                x = self.dropout(taps.at(str(number))("states", states))
            return taps("vectors", x)
        backwards = layout.starts[1:].long()[layout.slots // layout.longest] - 1 - layout.positions  # [U]
        last = _first_rows(layout)
        kept = []
        for number, lstm in enumerate(self.layers):
            states, state = read(lstm, x[backwards], layout)
            states = taps.at(str(number))("states", states[backwards])
            kept.append(torch.stack([states[last], state[:, 1]], dim=1))  # what is shown may have been reached into
            x = self.dropout(states)
        return torch.stack(kept, dim=1)


class RecurrentDecoder(nn.Module):
    """Goes on from a state, [S, layers, 2, width]. In 2015 its first layer also gets what the attention found."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.width, looks = config.width, config.kind == "rnn-attention"
        self.attention = AdditiveAttention(config.width) if looks else None
        self.cell = nn.LSTMCell(2 * config.width, config.width) if looks else None
        self.layers = nn.ModuleList(
            nn.LSTM(config.width, config.width, batch_first=True) for _ in range(config.decoder_layers - looks)
        )
        self.begin = nn.Linear(config.width // 2, config.decoder_layers * config.width) if looks else None
        self.combine = nn.Linear(3 * config.width, config.width) if looks else None
        self.dropout = nn.Dropout(config.dropout)

    def start(self, memory: Tensor, layout: Layout, taps: Taps) -> tuple[Tensor, Source | None]:
        """The state before the first word, and what can be looked at."""
        if self.attention is None or self.begin is None:
            return memory, None
        here = taps.at("0").at("cross", keys=layout)
        keys, values = here("keys", self.attention.keys(memory)[:, None]), here("values", memory[:, None])
        source = Source(layout.pad(keys[:, 0]), layout.pad(values[:, 0]), layout.real)
        # The way back has read the whole sentence when it comes to the first word.
        whole = memory[_first_rows(layout), self.width // 2 :]
        h = torch.tanh(self.begin(whole)).unflatten(-1, (-1, self.width))  # [S, layers, width]
        return torch.stack([h, torch.zeros_like(h)], dim=2), source

    def forward(
        self, embedded: Tensor, layout: Layout, state: Tensor, source: Source | None, taps: Taps
    ) -> tuple[Tensor, Tensor]:
        """The vectors, [T, width], and the state after each sequence's last token."""
        x = word = self.dropout(taps("embedded", embedded))
        ends, found = [], None
        if source is not None:
            states, found, end = self._look_and_write(x, layout, state[:, 0], source, taps.at("0"))
            ends.append(end)
            x = self.dropout(taps.at("0")("states", states))
        for number, lstm in enumerate(self.layers, start=len(ends)):
            states, end = read(lstm, x, layout, state[:, number])
            ends.append(end)
            x = self.dropout(taps.at(str(number))("states", states))
        if self.combine is not None and found is not None:
            x = self.dropout(torch.tanh(self.combine(torch.cat([x, found, word], dim=-1))))
        return taps("vectors", x), torch.stack(ends, dim=1)

    def _look_and_write(
        self, x: Tensor, layout: Layout, state: Tensor, source: Source, taps: Taps
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The first layer of 2015, a token at a time: each step's question comes from the state before it."""
        assert self.attention is not None and self.cell is not None
        words = layout.pad(x)  # [S, L, width]
        h, c = state.unbind(1)
        looks, kept = [], []
        for t, word in enumerate(words.unbind(1)):  # each words[:, t] would have a gradient as large as all words
            here = taps.reaching().at("cross", _moment(layout, t), source.layout) if taps.listening else NO_TAPS
            look = self.attention(h, source, here)
            # Autocast leaves cells alone, so all that enters must be of one kind.
            h, c = self.cell(torch.cat([word, look.heads[:, 0].to(x.dtype)], dim=-1), (h, c))
            looks.append(look)
            kept.append(torch.stack([h, c], dim=1))
        states, heads = torch.stack(kept, dim=1), torch.stack([look.heads for look in looks], dim=1)  # [S, L, …]
        if taps.listening:
            told = taps.at("cross", layout, source.layout).recording()
            told("queries", layout.unpad(torch.stack([look.queries for look in looks], dim=1)))
            told("energies", torch.cat([look.energies for look in looks], dim=2))
            told("weights", torch.cat([look.weights for look in looks], dim=2))
            told("heads", layout.unpad(heads))
        last = (layout.lengths.long() - 1).clamp(min=0)
        end = states[torch.arange(len(last), device=last.device), last]  # [S, 2, width]
        return layout.unpad(states[:, :, 0].contiguous()), layout.unpad(heads)[:, 0].to(x.dtype), end


class Recurrent(Network):
    encoder: RecurrentEncoder
    decoder: RecurrentDecoder

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config, RecurrentEncoder(config), RecurrentDecoder(config))
        initialise(self)

    def encode(self, source: Packed, taps: Taps = NO_TAPS) -> Tensor:
        """All that the decoder gets. 2014: a state, [S, layers, 2, width]; 2015: a vector of each word, [U, width]."""
        taps = taps.at("encoder", rows=source.layout, keys=source.layout)
        embedded = self.embed(self.source_embedding or self.embedding, source, taps)
        return self.encoder(embedded, source.layout, taps)

    def decode(
        self, target: Packed, memory: Tensor | None = None, memory_layout: Layout | None = None, taps: Taps = NO_TAPS,
        pasts: Past | None = None,
    ) -> Tensor:  # fmt: skip
        """The decoder's vectors, [T, width]: from the encoder's memory or, without one, from where the past has come to."""
        taps = taps.at("decoder", rows=target.layout, keys=target.layout)
        embedded = self.embed(self.embedding, target, taps)
        if memory is not None and memory_layout is not None:
            state, source = self.decoder.start(memory, memory_layout, taps)
        else:
            assert pasts is not None
            state, source = pasts.recall()
        vectors, state = self.decoder(embedded, target.layout, state, source, taps)
        if pasts is not None:
            pasts.keep(state, source)
        return vectors


def read(lstm: nn.Module, x: Tensor, layout: Layout, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """One layer over packed rows: what it shows at each token, [T, width], and the state after the last of each sequence,
    [S, 2, width] (of a layer that goes both ways, that of one direction).
    """
    before = None
    if state is not None:
        h, c = state.to(x.dtype)[None].unbind(2)
        before = h.contiguous(), c.contiguous()
    padded = layout.pad(x)  # [S, L, width]
    if layout.is_even:
        shown, (h, c) = lstm(padded, before)
    else:
        # An empty sequence is read as one zero, which nobody looks at.
        lengths = layout.lengths.long().clamp(min=1).cpu()
        packed = pack_padded_sequence(padded, lengths, batch_first=True, enforce_sorted=False)
        shown, (h, c) = lstm(packed, before)
        shown, _ = pad_packed_sequence(shown, batch_first=True, total_length=layout.longest)
    return layout.unpad(shown), torch.stack([h[-1], c[-1]], dim=1)


def _first_rows(layout: Layout) -> Tensor:
    """The row of each sequence's first token, [S]; of an empty one, some other's."""
    return layout.starts[:-1].long().clamp(max=len(layout.positions) - 1)


def _moment(layout: Layout, t: int) -> Layout:
    """Token t of every sequence, as if each were a sequence by itself."""
    if layout.longest == 1:
        return layout
    one = Layout.of([1] * len(layout)).to(layout.starts.device)
    return replace(one, positions=one.positions + t, numbers=layout.sentences)
