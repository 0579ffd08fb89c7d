"""The options of a search for the next tokens: greedy decoding, sampling or a beam. Nothing here imports torch."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypedDict

from seq2see.config.toml import check_limits, option
from seq2see.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor

EarlyStopping = bool | Literal["never"]
PenaltyForm = Literal["length", "gnmt"]
WindowEnd = Literal["slide", "stop"]

_SAMPLING = {"panel": "Sampling"}  # in the help of the command line
_SHARE = {"min": 0, "max": 1, **_SAMPLING}
MAXIMA = {"max_new_tokens": 1_000_000, "samples": 10_000}  # tensors of these sizes are allocated in advance


@dataclass(frozen=True, kw_only=True)
class Search:
    """Search options. The default is greedy decoding."""

    beam: int = option(1, "Beam size.", min=1)  # 1: greedy decoding or sampling
    nbest: int = option(1, "Number of hypotheses returned, best first.", min=1)
    length_penalty: float = option(
        1.0, "α: a score is the sum of log-probabilities divided by length^α; 1: their mean, 0: their sum."
    )
    penalty: PenaltyForm = option("length", "Divisor length^α, as in Hugging Face; gnmt: ((5 + length) / 6)^α.")
    early_stopping: EarlyStopping = option(
        False, "When the search of a sentence with k finished hypotheses ends: see `BeamSearch`."
    )
    # 0: 1.5 times the source length plus 10, or 200 without a source
    max_new_tokens: int = option(0, "Maximum number of new tokens.", min=0)
    temperature: float = option(0.0, "Sampling temperature; 0 for greedy decoding.", min=0, **_SAMPLING)
    top_k: int = option(0, "Sample among the k most likely tokens; 0 for all.", min=0, **_SAMPLING)
    top_p: float = option(1.0, "Sample among the fewest tokens with this total probability.", **_SHARE)
    min_p: float = option(0.0, "Sample among tokens with at least this fraction of the highest probability.", **_SHARE)
    seed: int = option(0, "Seed of the first sequence; sequence i has seed + i.")
    samples: int = option(1, "Number of continuations.", min=1)
    alternatives: int = option(0, "Number of most likely tokens to report at each step.", min=0)
    window: WindowEnd = option("slide", "At the end of a language model's context window: slide or stop.")

    def __post_init__(self) -> None:
        check_limits(self, error=UsageError)
        sampled, only_one = self.temperature > 0, f"requires beam = 1, not {self.beam}"
        for holds, name, problem in (
            *((getattr(self, name) <= limit, name, f"must be at most {limit:,}") for name, limit in MAXIMA.items()),
            (0 < self.top_p <= 1, "top_p", "must be greater than 0 and at most 1"),
            (0 <= self.min_p <= 1, "min_p", "must be between 0 and 1"),
            (self.nbest <= self.beam, "nbest", f"exceeds beam = {self.beam}: use a beam at least as wide"),
            (self.beam == 1 or not sampled, "temperature", only_one),
            (self.samples == 1 or sampled, "samples", "would all be identical: set a temperature above 0"),
            (self.beam == 1 or not self.alternatives, "alternatives", only_one),
        ):
            if not holds:
                raise UsageError(f"{name} = {getattr(self, name)} {problem}")

    def normalize(self, score: "Tensor", length: "Tensor") -> "Tensor":
        """Applies the length penalty to sums of log-probabilities; the length includes `<end>`."""
        return score / self.divisor(length)

    def divisor(self, length: "Tensor") -> "Tensor":
        if self.penalty == "gnmt":
            length = (5 + length) / 6
        return length**self.length_penalty


class SearchOptions(TypedDict, total=False):
    """The fields of `Search` as keyword arguments of the API; everything else passes a `Search`."""

    beam: int
    nbest: int
    length_penalty: float
    penalty: PenaltyForm
    early_stopping: EarlyStopping
    max_new_tokens: int
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    seed: int
    samples: int
    alternatives: int
    window: WindowEnd
