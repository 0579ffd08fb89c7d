"""Steps of a computation, counted instead of timed: lines of the package that run, and moves of a regular expression.

A count is the same on every machine, so a test can say that twice the input takes at most about twice the steps.
"""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def count_lines(function: Callable[[], object]) -> int:
    """Returns how many lines of the package a call runs."""
    lines = 0

    def on_line(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        return on_line

    def on_call(frame: FrameType, event: str, argument: Any) -> Any:
        return on_line if "seq2see" in frame.f_code.co_filename else None

    before = sys.gettrace()
    sys.settrace(on_call)
    try:
        function()
    finally:
        sys.settrace(before)
    return lines
