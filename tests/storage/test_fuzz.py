"""A few cases of the fuzzer of model directories; `python -m tests.fuzz_models` runs thousands."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from seq2see.errors import UserError, foreign
from seq2see.exchange.foreign_tokenizer import _content
from seq2see.storage.directory import load_files, load_pipeline
from tests import fuzz_models
from tests.commands import run_command


@pytest.mark.parametrize("kind", fuzz_models.KINDS)
def test_a_damaged_file_is_refused_in_one_line_or_works(kind: str) -> None:
    if kind == "gguf":
        pytest.importorskip("gguf")
    counts, failures = fuzz_models.fuzz(kind, count=12, seed=7)
    assert counts.total() == 12 and not failures, failures


def test_a_regular_expression_that_never_ends_is_one_line(tmp_path: Path) -> None:
    """The tokenizers library panics then, with an exception that is no Exception."""
    folder = Path(shutil.copytree(fuzz_models.ours(), tmp_path / "model"))
    table = json.loads((folder / "tokenizer.json").read_text())
    split = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}
    table["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [split, table["pre_tokenizer"]]}
    (folder / "tokenizer.json").write_text(json.dumps(table))
    result = run_command("translate", "--model", folder, "a" * 60 + "!")
    assert result.returncode == 1
    assert "seq2see: the tokenizer cannot split this text: PanicException: " in result.stderr
    assert "Traceback" not in result.stderr
    tokenizer, _ = load_pipeline(folder).tokenizers
    for texts in (["a" * 60 + "!"], ["a" * 60 + "!"] * 3):
        with pytest.raises(UserError, match="cannot split this text"):
            tokenizer.encode_batch(texts)


@pytest.mark.parametrize("error", [KeyError("x"), OSError(5, "broken"), ZeroDivisionError(), RecursionError()])
def test_whatever_a_reader_raises_is_one_line(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: Path) -> Any:
        raise error

    monkeypatch.setattr("seq2see.exchange.huggingface.read_config", fail)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UserError, match=f"cannot read {tmp_path}: {type(error).__name__}: "):
        load_files(tmp_path)


def test_an_error_is_one_short_line_without_control_characters_whatever_it_quotes() -> None:
    quoted = str(UserError(f'no "{"a" * 5000}" in \x1b[2J\r\n\x9b the \u200dfile'))
    assert len(quoted) < 1000 and quoted.startswith('no "aaa') and quoted.endswith('aa" in  [2J  the \u200dfile')


@pytest.mark.parametrize("token", ["<0xZZ>", "<0x\ufffdB>", "<0x \x00>", "<0x+1>"])
def test_a_token_that_only_looks_like_a_byte_is_text(token: str) -> None:
    assert _content(token, "metaspace", {}) == token.encode() and _content("<0x0A>", "metaspace", {}) == b"\n"


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, MemoryError])
def test_interruptions_pass_the_boundary_around_foreign_code(error: type[BaseException]) -> None:
    with pytest.raises(error), foreign("cannot read it"):
        raise error
