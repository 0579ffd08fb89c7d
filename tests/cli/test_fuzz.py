"""A few cases of the fuzzer; `python -m tests.fuzz` runs thousands."""

from tests.fuzz import KINDS, fuzz


def test_odd_options_files_and_directories_never_give_a_traceback() -> None:
    counts, failures = fuzz(list(KINDS), cases=45, seed=7)
    assert counts.total() == 45 and not failures, failures
