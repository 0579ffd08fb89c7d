"""Limits on a picture or a sound, checked from its header: a file of a few bytes can claim to be huge."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from seq2see.errors import UserError


class TooLongError(UserError):
    """A picture or a sound makes more tokens than the model takes."""


def require_tokens(path: Path, tokens: int, limit: int | None) -> None:
    """Raises an error if a file makes more tokens than the limit."""
    if limit is not None and tokens > limit:
        raise TooLongError(
            f"{path} makes {tokens:,} tokens, but the model takes at most {limit:,} "
            "(model.max_source_positions): shorten it"
        )


@contextmanager
def report_out_of_memory(path: Path) -> Iterator[None]:
    """Turns an allocation that fails while a file is decoded into a one-line error."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and "allocate" not in str(error):  # as PyTorch's errors say
            raise
        raise UserError(f"{path} needs more memory than is free: close other programs, or use a smaller file") from None
