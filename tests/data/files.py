"""Files and error messages for the tests of corpora."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from seq2see.errors import UserError

shared_tmp_path = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


# All characters but surrogates, which UTF-8 cannot encode.
any_text = st.text(st.characters(exclude_categories=["Cs"]))


def write(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def error_message(read: Callable[[], object]) -> str:
    with pytest.raises(UserError) as error:
        read()
    message = str(error.value)
    assert "\n" not in message
    return message
