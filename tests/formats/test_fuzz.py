"""A few cases of the fuzzer of parsers; `python -m tests.fuzz_parsers` runs thousands."""

from functools import partial
from pathlib import Path

import pytest

from seq2see.errors import UserError
from seq2see.server.service.keys import read_keys
from tests import fuzz_parsers
from tests.fuzz_models import outcome_of


@pytest.mark.parametrize("parser", fuzz_parsers.PARSERS)
def test_a_changed_file_is_read_or_refused_in_one_line(parser: str) -> None:
    for content in fuzz_parsers.seeds(parser):  # what failed once is among them
        outcome = outcome_of(partial(fuzz_parsers.PARSERS[parser], content))
        assert not outcome.kind.isupper(), outcome
    counts, failures = fuzz_parsers.fuzz(parser, count=100, seed=7)
    assert counts.total() == 100 and not failures, failures


@pytest.mark.parametrize("text", ["a = " + "9" * 5000, "a = " + "[" * 5000])
def test_a_key_file_that_python_cannot_hold_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "keys.toml").write_text(text)
    with pytest.raises(UserError, match="cannot read the key file"):
        read_keys(tmp_path / "keys.toml")
