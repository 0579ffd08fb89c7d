"""Text that is shown while it is generated: nothing is taken back, and a stop string ends it, wherever it is."""

import pytest

from seq2see.data.tokenizer import Tokenizer
from seq2see.decode.streaming import find_stop, stream_text

TEXT = "I like tea. मुझे चाय पसंद है। I like apples 👩‍🚀 too"


@pytest.mark.parametrize("stop", ["I", "I like", " tea", "पसंद", "है।", "ि", "too", "o", "I like a", "never"])
@pytest.mark.parametrize("other", ["🚀", "apples ", "\n"])
def test_a_stream_ends_before_the_first_stop_string(stop: str, other: str) -> None:
    tokenizer = Tokenizer.train([TEXT], "bpe", vocab_size=270)  # most tokens are single bytes
    ends = [TEXT.find(string) for string in (stop, other) if string in TEXT]
    expected = TEXT[: min(ends, default=len(TEXT))]
    pieces = list(stream_text(tokenizer, tokenizer.encode(TEXT), [stop, other]))
    assert "".join(pieces) == expected
    assert len(pieces) >= len(expected) / 4  # as they arrive, not at the end


def test_the_first_of_several_stop_strings_counts() -> None:
    assert find_stop("abc", ["c", "b"]) == 1
    assert find_stop("abc", ["abc"]) == 0
    assert find_stop("abc", ["d"]) is None
