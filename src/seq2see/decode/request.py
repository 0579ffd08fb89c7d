"""A request: one sequence to decode, and what ends its output; a row: a request that is running."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from seq2see.data.layout import Tokens
from seq2see.decode.sampling import RowOptions

StopCondition = Callable[[Sequence[int]], bool]  # whether generation may stop after these tokens


@dataclass(eq=False)
class Request:
    """One sequence to decode: what the model reads, and what ends its output besides `<end>`."""

    sequence_id: int
    source: Tokens  # empty for a language model
    prompt: Sequence[int]  # <start> and the prefix of the output
    max_new_tokens: int
    seed: int = 0
    options: RowOptions | None = None  # None: the session's search
    should_stop: StopCondition | None = None

    def same_inputs(self, other: "Request") -> bool:
        """Whether two requests are samples of one prompt."""
        same_source = self.sequence_id == other.sequence_id and self.source is other.source
        return same_source and self.prompt is other.prompt


R = TypeVar("R", bound=Request)


@dataclass
class Row(Generic[R]):
    """A running request: what the host knows of one row of the batch. The rest is in tables on the device."""

    request: R
    options: RowOptions
    joined: int  # the step at which it joined
    start: int  # the step at which its first token was, or would have been, generated

    @property
    def source_length(self) -> int:
        return len(self.request.source)
