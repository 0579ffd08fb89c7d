"""A Transformer's forward pass in NumPy, from the raw weights: what the readings of a trace are tested against.

It shares no code with the model. One sentence pair, layer norm, ReLU, sinusoids. Beside the values it carries each part of
the decoder's vectors through every norm, held at its scale, which is what contributions are.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from seq2see.config import ModelConfig

Array = NDArray[np.float64]


@dataclass
class ByHand:
    config: ModelConfig
    w: Mapping[str, Array]
    off: tuple[str, int] | None = None  # a head that adds nothing
    weights: dict[str, Array] = field(default_factory=dict)  # of each attention, [heads, queries, keys]
    layers: list[Array] = field(default_factory=list)  # the decoder's vectors before and after each block
    parts: dict[str, Array] = field(default_factory=dict)  # of the decoder's vectors, [T, width] each
    memory: Array = field(default_factory=lambda: np.zeros(0))

    def run(self, source: list[int], target: list[int]) -> Array:
        """The logits, [T, vocabulary]."""
        self.memory = self._stack("encoder", source, None)
        return self._stack("decoder", target, self.memory) @ self.w["embedding.weight"].T

    def read_out(self, x: Array) -> Array:
        if self.config.norm_first:
            x = self._norm("decoder.final_norm", x)
        return x @ self.w["embedding.weight"].T

    def _stack(self, stack: str, ids: list[int], memory: Array | None) -> Array:
        width = self.config.width
        embedded = self.w["embedding.weight"][ids] * np.sqrt(width)
        positions = np.zeros((len(ids), width))
        for place in range(len(ids)):
            for i in range(0, width, 2):
                angle = place / 10000 ** (i / width)
                positions[place, i], positions[place, i + 1] = np.sin(angle), np.cos(angle)
        self.parts = {"decoder.embedded": embedded, "decoder.positions": positions, "biases": np.zeros_like(embedded)}
        x = embedded + positions
        layers = [x]
        for n in range(self.config.encoder_layers if stack == "encoder" else self.config.decoder_layers):
            mine = "self" if stack == "encoder" else "masked"
            x = self._sublayer(f"{stack}.blocks.{n}.attention", f"{stack}.{n}.{mine}", x, None)
            if memory is not None:
                x = self._sublayer(f"{stack}.blocks.{n}.cross", f"{stack}.{n}.cross", x, memory)
            x = self._sublayer(f"{stack}.blocks.{n}.feed_forward", f"{stack}.{n}.feed_forward", x, None)
            layers.append(x)
        self.layers = layers
        return self._norm(f"{stack}.final_norm", x, keep=True) if self.config.norm_first else x

    def _sublayer(self, name: str, place: str, x: Array, memory: Array | None) -> Array:
        enters = self._norm(f"{name}_norm.norm", x) if self.config.norm_first else x
        if place.endswith("feed_forward"):
            inner = np.maximum(enters @ self.w[f"{name}.expand.weight"].T + self.w[f"{name}.expand.bias"], 0)
            added = inner @ self.w[f"{name}.contract.weight"].T + self.w[f"{name}.contract.bias"]
            self.parts[place] = added
        else:
            added = self._attention(name, place, enters, memory)
        x = x + added
        return x if self.config.norm_first else self._norm(f"{name}_norm.norm", x, keep=True)

    def _attention(self, name: str, place: str, x: Array, memory: Array | None) -> Array:
        heads, width = self.config.heads, self.config.width
        d = width // heads
        if memory is None:
            both = x @ self.w[f"{name}.queries_keys_values.weight"].T + self.w[f"{name}.queries_keys_values.bias"]
            q, k, v = np.split(both, 3, axis=1)
        else:
            q = x @ self.w[f"{name}.queries.weight"].T + self.w[f"{name}.queries.bias"]
            k, v = np.split(
                memory @ self.w[f"{name}.keys_values.weight"].T + self.w[f"{name}.keys_values.bias"], 2, axis=1
            )
        total = np.tile(self.w[f"{name}.project.bias"], (len(x), 1))
        self.parts["biases"] = self.parts["biases"] + total
        tables = []
        for head in range(heads):
            own = slice(head * d, (head + 1) * d)
            scores = q[:, own] @ k[:, own].T / np.sqrt(d)
            if place.endswith("masked"):
                scores = np.where(np.tril(np.ones_like(scores)) > 0, scores, -np.inf)
            e = np.exp(scores - scores.max(1, keepdims=True))
            tables.append(e / e.sum(1, keepdims=True))
            found = tables[-1] @ v[:, own] * ((place, head) != self.off)
            self.parts[f"{place}:{head}"] = found @ self.w[f"{name}.project.weight"][:, own].T
            total = total + self.parts[f"{place}:{head}"]
        self.weights[place] = np.stack(tables)
        return total

    def _norm(self, name: str, x: Array, keep: bool = False) -> Array:
        gain, shift = self.w[f"{name}.weight"], self.w[f"{name}.bias"]
        scale = np.sqrt(((x - x.mean(1, keepdims=True)) ** 2).mean(1, keepdims=True) + self.config.norm_epsilon)
        if keep:  # each part by itself goes the same way
            self.parts = {n: (p - p.mean(1, keepdims=True)) / scale * gain for n, p in self.parts.items()}
            self.parts["biases"] = self.parts["biases"] + shift
        return (x - x.mean(1, keepdims=True)) / scale * gain + shift


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(e / e.sum(-1, keepdims=True))
