"""A few cases of the fuzzer; `python -m tests.fuzz` runs thousands."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_odd_options_files_and_directories_never_give_a_traceback() -> None:
    # In a process of its own: it forks, which threads of other tests would not survive.
    command = [sys.executable, "-m", "tests.fuzz", "--cases", "45", "--seed", "7"]
    result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert result.returncode == 0, result.stdout + result.stderr
