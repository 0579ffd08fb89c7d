"""Models and batches of the engine, from arrays: nothing here needs torch.

Shapes: S sentences, k hypotheses of each, V vocabulary, M tokens of the sources.
"""

import ctypes
import math
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from seq2see.config import ModelConfig
from seq2see.engine.library import Config, Library, SearchRules

Floats = NDArray[np.float32]
ACTIVATIONS = {"relu": 0, "gelu": 1, "gelu-tanh": 2, "geglu": 2, "silu": 3, "swiglu": 3}
POSITIONS = frozenset(
    (
        "learned",
        "none",
        "relative",
        "rotary",
        "sinusoidal",
        "sinusoidal-fairseq",
        "sinusoidal-halves",
        "sinusoidal-whisper",
    )
)
MAX_BEAM, MAX_INPUTS = 256, 100_000  # 127² · this fits 32 bits
STEPS_BETWEEN_CHECKS = 16  # for an interrupt, too, which Python handles between calls


def reasons_against(config: ModelConfig) -> list[str]:
    """Returns what the engine does not hold of a model; nothing if it can run it."""
    positions: set[str] = {config.positions} if config.has_decoder else set()
    positions |= {config.actual_encoder_positions} if config.has_encoder else set()
    checks = (
        (config.kind == "transformer", f'model.kind is "{config.kind}"'),
        (config.source == "tokens", f"it reads {config.source}"),
        (config.activation in ACTIVATIONS, f"its activation is {config.activation}"),
        (positions <= POSITIONS, f"its positions are {', '.join(sorted(positions - POSITIONS))}"),
        (max(config.width, config.feed_forward) <= MAX_INPUTS, f"its matrices have more than {MAX_INPUTS:,} columns"),
    )
    return [reason for holds, reason in checks if not holds]


@dataclass(frozen=True)
class Positions:
    """What a stack needs for its positions, as the reference computes it: rows by position, or biases by distance."""

    positions: Floats | None = None  # [positions, width], added to the embeddings
    rotation: Floats | None = None  # [positions, head width]: cosines, then sines
    local_rotation: Floats | None = None
    bias: Floats | None = None  # [heads, 2 · distance + 1]

    @property
    def length(self) -> int:
        """The longest sequence that the tables reach."""
        return min((len(table) for table in (self.positions, self.rotation) if table is not None), default=1 << 20)


@dataclass(frozen=True)
class Rules:
    """The search of a batch. Without divisors, the caller reads the logits and chooses the tokens."""

    beam: int = 1
    end: int = -1
    stop_early: bool = False
    score_at_limit: bool = False
    divisors: Floats | None = None  # of a score, by the number of generated tokens
    banned: tuple[int, ...] = ()
    banned_first: tuple[int, ...] = ()


class Found(NamedTuple):
    """A hypothesis with its `<end>`, and its score under the length penalty."""

    tokens: list[int]
    logprobs: list[float]
    score: float


class EngineModel:
    """Packed weights, which threads may share; each thread needs batches of its own."""

    def __init__(
        self,
        library: Library,
        config: ModelConfig,
        weight: Callable[[str], ArrayLike | None],
        encoder: Positions,
        decoder: Positions,
        int8: bool = False,
    ) -> None:
        """`weight` returns a tensor by its name in the torch model, or None if there is none."""
        self.library, self.config, self.encoder, self.decoder = library, config, encoder, decoder
        self.handle = library("create_model", _config(config, encoder, decoder, int8))
        if not self.handle:
            raise MemoryError
        weakref.finalize(self, library.functions["close_model"], self.handle)
        for index in range(library("tensor_count", self.handle)):
            name, shape, optional = self._expected(index)
            value = self._value(name, shape, weight)
            if value is not None:
                array = np.ascontiguousarray(value, np.float32)
                array = array.reshape(-1, array.shape[-1])
                library.check("set_tensor", self.handle, index, array.ctypes.data, *array.shape)
            elif not optional:
                raise KeyError(name)
        library.check("complete_model", self.handle)

    def _expected(self, index: int) -> tuple[str, tuple[int, int], bool]:
        name, shape = ctypes.create_string_buffer(80), (ctypes.c_int32 * 2)()
        optional = self.library.check("expected_tensor", self.handle, index, name, shape)
        return name.value.decode(), (shape[0], shape[1]), bool(optional)

    def _value(self, name: str, shape: tuple[int, int], weight: Callable[[str], Any]) -> ArrayLike | None:
        if name == "local":
            return [float(self.config.is_local(layer)) for layer in range(self.config.decoder_layers)]
        stack, _, part = name.partition(".")
        if part not in vars(Positions()):
            return weight(name)
        value = getattr(self.encoder if stack == "encoder" else self.decoder, part)
        return np.zeros(shape) if value is None else value  # local rotations of a stack without local layers

    def encode(self, sources: Sequence[Sequence[int]]) -> Floats:
        """Returns the encoder's vectors of these sources, one after another, [M, width]."""
        tokens, lengths = _packed(sources)
        vectors = np.empty((len(tokens), self.config.width), np.float32)
        batch = EngineBatch(self, Rules(), len(sources))
        self.library.check(
            "encode", batch.handle, len(sources), tokens.ctypes.data, lengths.ctypes.data, vectors.ctypes.data
        )
        return vectors


class EngineBatch:
    """Sentences that are decoded together, by one thread at a time; they join and leave between steps."""

    def __init__(self, model: EngineModel, rules: Rules, capacity: int) -> None:
        self.model, self.rules, self._library = model, rules, model.library
        self.limits: list[int] = []  # of each sentence: the generated tokens
        divisors = np.ascontiguousarray([] if rules.divisors is None else rules.divisors, np.float32)
        banned, first = _ints(rules.banned), _ints(rules.banned_first)
        search = SearchRules(
            rules.beam,
            rules.end,
            rules.stop_early,
            rules.score_at_limit,
            rules.divisors is None,
            len(divisors),
            len(banned),
            len(first),
            *(each.ctypes.data for each in (divisors, banned, first)),
        )
        self.handle = self._library("open_session", model.handle, search, capacity)
        if not self.handle:
            raise MemoryError
        weakref.finalize(self, self._library.functions["close_session"], self.handle)

    def join(self, sources: Sequence[Sequence[int]], prompts: Sequence[Sequence[int]], limits: Sequence[int]) -> None:
        """Adds sentences after the others and computes their first tokens, or logits. Sources are empty without an encoder."""
        arrays = *_packed(sources), *_packed(prompts), _ints(limits)
        self._library.check("join", self.handle, len(prompts), *(array.ctypes.data for array in arrays))
        self.limits += limits

    def run(self, steps: int = STEPS_BETWEEN_CHECKS) -> int:
        """Runs so many steps, or until a sentence is done; returns how many are."""
        return self._library.check("run", self.handle, steps)

    def advance(self, tokens: NDArray[np.int32], parents: NDArray[np.int32]) -> None:
        """Feeds the tokens that the caller chose, [S, k], and the hypotheses that they continue; computes the next logits."""
        if tokens.shape != (len(self.limits), self.rules.beam) or parents.shape != tokens.shape:
            raise ValueError(f"{tokens.shape} tokens for {len(self.limits)} sentences with beam {self.rules.beam}")
        self._library.check("advance", self.handle, tokens.ctypes.data, parents.ctypes.data)

    def logits(self, rows: int) -> Floats:
        """Returns the logits of the last pass, [rows, V]: of the sentences that joined, or of all hypotheses."""
        stride = ctypes.c_int32()
        address = self._library("logits", self.handle, stride)
        table = np.ctypeslib.as_array((ctypes.c_float * (rows * stride.value)).from_address(address))
        return table.reshape(rows, -1)[:, : self.model.config.vocab_size].copy()

    def is_done(self, row: int) -> bool:
        return bool(self._library.check("is_done", self.handle, row))

    def hypotheses(self, row: int, count: int = 1) -> list[Found]:
        """Returns the best finished hypotheses, best first, or with k = 1 the output so far; none if a logit is NaN."""
        tokens, logprobs = np.empty(self.limits[row], np.int32), np.empty(self.limits[row], np.float32)
        score, found = ctypes.c_float(), []
        for rank in range(count):
            n = self._library.check(
                "hypothesis", self.handle, row, rank, tokens.ctypes.data, logprobs.ctypes.data, score
            )
            if n:
                found.append(Found(tokens[:n].tolist(), logprobs[:n].tolist(), score.value))
        return found

    def leave(self, row: int) -> None:
        """Removes a sentence; the last one takes its row."""
        self._library.check("leave", self.handle, row)
        last = self.limits.pop()
        if row < len(self.limits):
            self.limits[row] = last


def _config(config: ModelConfig, encoder: Positions, decoder: Positions, int8: bool) -> Config:
    def rows(table: Floats | None) -> int:
        return 0 if table is None else len(table)

    def distance(table: Floats | None) -> int:
        return 0 if table is None else table.shape[1] // 2

    head_width = config.actual_head_width
    return Config(
        vocab_size=config.vocab_size,
        source_vocab_size=config.source_vocab_size or config.vocab_size,
        width=config.width,
        heads=config.heads,
        key_value_heads=config.actual_key_value_heads,
        head_width=head_width,
        feed_forward=config.feed_forward,
        encoder_layers=config.encoder_layers if config.has_encoder else 0,
        decoder_layers=config.decoder_layers if config.has_decoder else 0,
        activation=ACTIVATIONS[config.activation],
        gated=config.gated,
        rms=config.norm == "rms",
        norm_first=config.norm_first,
        output_norm=config.output_norm,
        query_key_norm=config.query_key_norm,
        embedding_norm=config.embedding_norm,
        window=config.attention_window,
        encoder_positions=rows(encoder.positions),
        decoder_positions=rows(decoder.positions),
        encoder_rotary=rows(encoder.rotation),
        decoder_rotary=rows(decoder.rotation),
        encoder_relative=distance(encoder.bias),
        decoder_relative=distance(decoder.bias),
        shared_source=config.shape != "encoder-decoder" or config.tie_embeddings == "all",
        int8=int8,
        epsilon=config.norm_epsilon,
        embedding_factor=math.sqrt(config.width) if config.scale_embeddings else 1.0,
        score_factor=config.attention_scale or head_width**-0.5,
        score_cap=config.attention_cap,
        logit_factor=config.logit_scale,
        logit_cap=config.logit_cap,
    )


def _ints(values: Sequence[int]) -> NDArray[np.int32]:
    return np.array(values, np.int32)


def _packed(sequences: Sequence[Sequence[int]]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Returns the tokens of all sequences, one after another, and their lengths."""
    return _ints([token for each in sequences for token in each]), _ints([len(each) for each in sequences])
