"""A Transformer's forward pass in NumPy, from the raw weights: the reference for traces and their analyses.

It shares no code with the model. One sentence pair, layer norm, ReLU, sinusoidal positions. Besides the values it carries
each component of the decoder's vectors through every norm with its scale frozen, which is what logit attribution does.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from seq2see.config import ModelConfig

Array = NDArray[np.float64]


@dataclass
class NumpyTransformer:
    config: ModelConfig
    w: Mapping[str, Array]
    ablated: tuple[str, int] | None = None  # attention and head
    weights: dict[str, Array] = field(default_factory=dict)  # per attention, [heads, queries, keys]
    layers: list[Array] = field(default_factory=list)  # decoder vectors before and after each block
    components: dict[str, Array] = field(default_factory=dict)  # of the decoder vectors, [T, width] each
    memory: Array = field(default_factory=lambda: np.zeros(0))

    def run(self, source: list[int], target: list[int]) -> Array:
        """Returns the logits, [T, vocabulary]."""
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
        for position in range(len(ids)):
            for i in range(0, width, 2):
                angle = position / 10000 ** (i / width)
                positions[position, i], positions[position, i + 1] = np.sin(angle), np.cos(angle)
        self.components = {
            "decoder.embedded": embedded,
            "decoder.positions": positions,
            "biases": np.zeros_like(embedded),
        }
        x = embedded + positions
        layers = [x]
        for n in range(self.config.encoder_layers if stack == "encoder" else self.config.decoder_layers):
            kind = "self" if stack == "encoder" else "masked"
            x = self._sublayer(f"{stack}.blocks.{n}.attention", f"{stack}.{n}.{kind}", x, None)
            if memory is not None:
                x = self._sublayer(f"{stack}.blocks.{n}.cross", f"{stack}.{n}.cross", x, memory)
            x = self._sublayer(f"{stack}.blocks.{n}.feed_forward", f"{stack}.{n}.feed_forward", x, None)
            layers.append(x)
        self.layers = layers
        return self._norm(f"{stack}.final_norm", x, by_component=True) if self.config.norm_first else x

    def _sublayer(self, name: str, component: str, x: Array, memory: Array | None) -> Array:
        normed = self._norm(f"{name}_norm.norm", x) if self.config.norm_first else x
        if component.endswith("feed_forward"):
            inner = np.maximum(normed @ self.w[f"{name}.up.weight"].T + self.w[f"{name}.up.bias"], 0)
            output = inner @ self.w[f"{name}.down.weight"].T + self.w[f"{name}.down.bias"]
            self.components[component] = output
        else:
            output = self._attention(name, component, normed, memory)
        x = x + output
        return x if self.config.norm_first else self._norm(f"{name}_norm.norm", x, by_component=True)

    def _attention(self, name: str, component: str, x: Array, memory: Array | None) -> Array:
        heads, width = self.config.heads, self.config.width
        d = width // heads
        if memory is None:
            qkv = x @ self.w[f"{name}.queries_keys_values.weight"].T + self.w[f"{name}.queries_keys_values.bias"]
            q, k, v = np.split(qkv, 3, axis=1)
        else:
            q = x @ self.w[f"{name}.queries.weight"].T + self.w[f"{name}.queries.bias"]
            k, v = np.split(
                memory @ self.w[f"{name}.keys_values.weight"].T + self.w[f"{name}.keys_values.bias"], 2, axis=1
            )
        total = np.tile(self.w[f"{name}.project.bias"], (len(x), 1))
        self.components["biases"] = self.components["biases"] + total
        tables = []
        for head in range(heads):
            columns = slice(head * d, (head + 1) * d)
            scores = q[:, columns] @ k[:, columns].T / np.sqrt(d)
            if component.endswith("masked"):
                scores = np.where(np.tril(np.ones_like(scores)) > 0, scores, -np.inf)
            e = np.exp(scores - scores.max(1, keepdims=True))
            tables.append(e / e.sum(1, keepdims=True))
            output = tables[-1] @ v[:, columns] * ((component, head) != self.ablated)
            self.components[f"{component}:{head}"] = output @ self.w[f"{name}.project.weight"][:, columns].T
            total = total + self.components[f"{component}:{head}"]
        self.weights[component] = np.stack(tables)
        return total

    def _norm(self, name: str, x: Array, by_component: bool = False) -> Array:
        gain, shift = self.w[f"{name}.weight"], self.w[f"{name}.bias"]
        scale = np.sqrt(((x - x.mean(1, keepdims=True)) ** 2).mean(1, keepdims=True) + self.config.norm_epsilon)
        if by_component:  # norm each component separately, with the same scale
            self.components = {n: (p - p.mean(1, keepdims=True)) / scale * gain for n, p in self.components.items()}
            self.components["biases"] = self.components["biases"] + shift
        return (x - x.mean(1, keepdims=True)) / scale * gain + shift


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(e / e.sum(-1, keepdims=True))
