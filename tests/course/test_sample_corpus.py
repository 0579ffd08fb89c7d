"""The built-in corpus: what the files say is what is loaded, and the command writes them."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from seq2see.cli.data import data_app
from seq2see.course.sample_corpus import Pair, SampleCorpus, corpus_files, load_corpus, write_files
from seq2see.errors import UserError

FILES = {"valid.en": b"Hello\n", "valid.hi": b"..."}


@pytest.fixture(scope="module")
def corpus() -> SampleCorpus:
    return load_corpus()


@pytest.mark.parametrize("name", ["train", "valid", "test", "longer"])
def test_pairs_are_the_lines_of_the_files(corpus: SampleCorpus, name: str) -> None:
    pairs: list[Pair] = getattr(corpus, name)
    files = corpus_files()
    assert [pair.source for pair in pairs] == files[f"{name}.en"].decode().splitlines()
    assert [pair.target for pair in pairs] == files[f"{name}.hi"].decode().splitlines()
    links = [" ".join(f"{i}-{j}" for i, j in pair.alignment) for pair in pairs]
    assert links == files[f"{name}.align"].decode().splitlines()
    rows = [{"source": pair.source, "references": list(pair.references)} for pair in pairs]
    if name == "train":
        assert all(pair.references == (pair.target,) for pair in pairs)
    else:
        assert rows == [json.loads(line) for line in files[f"{name}.jsonl"].decode().splitlines()]


def test_write_is_idempotent_but_overwrites_nothing_else(tmp_path: Path) -> None:
    write_files(FILES, tmp_path)
    write_files(FILES, tmp_path)
    assert not list(tmp_path.glob(".*"))
    (tmp_path / "valid.en").write_text("mine\n")
    with pytest.raises(UserError, match=r"valid\.en already exists"):
        write_files(FILES, tmp_path)
    assert (tmp_path / "valid.en").read_text() == "mine\n"


def test_command_writes_the_corpus(tmp_path: Path) -> None:
    runner, out = CliRunner(), str(tmp_path / "d")
    done = runner.invoke(data_app, ["sample", "--out", out])
    assert done.exit_code == 0, done.output
    assert "train 30,000, valid 1,000, test 1,000, longer 500 pairs" in done.output
    assert {path.name: path.read_bytes() for path in (tmp_path / "d").iterdir()} == corpus_files()
    assert "Example:" in runner.invoke(data_app, ["sample", "--help"]).output
