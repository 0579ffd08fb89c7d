"""Failing disks and dying processes: no result is lost, half-written or wrongly reported as written (all: `make faults`)."""

import pytest

from tests.faults import study


@pytest.mark.parametrize("writer", ["save", "checkpoint", "tokens", "translate"])
def test_a_failed_write_loses_nothing_and_is_reported(writer: str, capsys: pytest.CaptureFixture[str]) -> None:
    counts = study([writer], count=6, seed=1)[writer]
    assert not counts["wrong"] and counts["as before"] + counts["complete"] == 6, capsys.readouterr().out
