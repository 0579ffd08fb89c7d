"""The compiled engine: which library is loaded, for which processor, and the types of its functions."""

import ctypes
import os
import warnings
from ctypes import POINTER, c_char, c_float, c_int, c_int32, c_int64, c_void_p
from dataclasses import dataclass
from functools import cache
from typing import Any

from seq2see.engine.build import PROCESSORS, BuildError, build, machine, this_system
from seq2see.errors import Notice, UserError

VARIABLE = "SEQ2SEE_ENGINE"
INTS, FLOATS = POINTER(c_int32), POINTER(c_float)
ERRORS = {-1: "out of memory", -2: "bad argument", -3: "wrong shape", -4: "a tensor is missing"}


_WHOLE_NUMBERS = """
    vocab_size source_vocab_size width heads key_value_heads head_width feed_forward encoder_layers decoder_layers
    activation gated rms norm_first output_norm query_key_norm embedding_norm window
    encoder_positions decoder_positions encoder_rotary decoder_rotary encoder_relative decoder_relative shared_source int8
"""
_NUMBERS = "epsilon embedding_factor score_factor score_cap logit_factor logit_cap"


class Config(ctypes.Structure):
    """`Config` of engine.c."""

    _fields_ = [(name, c_int32) for name in _WHOLE_NUMBERS.split()] + [(name, c_float) for name in _NUMBERS.split()]


class SearchRules(ctypes.Structure):
    """`Search` of engine.c."""

    _fields_ = [
        *((name, c_int32) for name in ("beam", "end", "stop_early", "score_at_limit", "by_caller")),
        *((name, c_int32) for name in ("divisor_count", "banned_count", "banned_first_count")),
        *((name, c_void_p) for name in ("divisors", "banned", "banned_first")),
    ]


_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "create_model": (c_void_p, [POINTER(Config)]),
    "close_model": (None, [c_void_p]),
    "tensor_count": (c_int, [c_void_p]),
    "expected_tensor": (c_int, [c_void_p, c_int, c_char * 80, c_int32 * 2]),
    "set_tensor": (c_int, [c_void_p, c_int, c_void_p, c_int, c_int]),
    "complete_model": (c_int, [c_void_p]),
    "open_session": (c_void_p, [c_void_p, POINTER(SearchRules), c_int]),
    "close_session": (None, [c_void_p]),
    "join": (c_int, [c_void_p, c_int, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p]),
    "run": (c_int, [c_void_p, c_int]),
    "advance": (c_int, [c_void_p, c_void_p, c_void_p]),
    "logits": (c_void_p, [c_void_p, INTS]),
    "is_done": (c_int, [c_void_p, c_int]),
    "hypothesis": (c_int, [c_void_p, c_int, c_int, c_void_p, c_void_p, FLOATS]),
    "leave": (c_int, [c_void_p, c_int]),
    "fingerprint": (c_int64, [c_int, c_void_p, c_void_p]),
    "encode": (c_int, [c_void_p, c_int, c_void_p, c_void_p, c_void_p]),
}


@dataclass(frozen=True)
class Library:
    """The functions of engine.c as compiled for one processor."""

    processor: str
    functions: dict[str, Any]

    def __call__(self, name: str, *arguments: Any) -> Any:
        return self.functions[name](*arguments)

    def check(self, name: str, *arguments: Any) -> int:
        """Calls a function that returns an error as a negative number."""
        result: int = self.functions[name](*arguments)
        if result == -1:
            raise MemoryError
        if result < 0:
            raise ValueError(f"engine: {name}: {ERRORS[result]}")
        return result


@cache
def _shared_library() -> ctypes.CDLL:
    return ctypes.CDLL(str(build()))


@cache
def processors() -> tuple[str, ...]:
    """The processors that this one can run the code of, slowest first."""
    found = _shared_library().seq2see_processors()
    return tuple(name for i, name in enumerate(PROCESSORS[machine()]) if found >> i & 1)


@cache
def open_library(processor: str) -> Library:
    library = _shared_library()
    functions = {}
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(library, f"{name}_{processor}")
        function.restype, function.argtypes = result, arguments
        functions[name] = function
    return Library(processor, functions)


def default_library() -> Library | None:
    """The library for this processor, or the one that SEQ2SEE_ENGINE names; None if it says "off" or none can be loaded."""
    return _default_library(os.environ.get(VARIABLE, ""))


@cache
def _default_library(chosen: str) -> Library | None:
    if chosen == "off":
        return None
    try:
        available = processors()
    except (BuildError, OSError) as error:
        warnings.warn(
            f"no engine for {this_system()}, so decoding runs on torch, which is slower: {error}", Notice, stacklevel=2
        )
        return None
    if chosen and chosen not in available:
        raise UserError(f"{VARIABLE}={chosen}: this processor runs {', '.join(available)}, or off for torch")
    return open_library(chosen or available[-1])
