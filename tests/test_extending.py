"""The package of docs/extending.md, installed and used: a command, a reader, a kind of model and a metric of somebody else."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from zipfile import ZipFile

import pytest

from seq2see.api import load
from tests.corpora import write_phrases
from tests.models import save, tiny_model

PAGE = Path(__file__).parent.parent / "docs/extending.md"
MAX_LINES = 40


def package_files() -> dict[str, str]:
    """Returns the files of the package: code blocks whose first line is their path."""
    return dict(re.findall(r"^```\w+\n# (\S+)\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), flags=re.M | re.S))


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the package and its metadata, as pip would write it."""
    folder = tmp_path_factory.mktemp("site-packages")
    files = package_files()
    project = tomllib.loads(files.pop("pyproject.toml"))["project"]
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    metadata = folder / "seq2see_example-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 1.0\n")
    groups = project["entry-points"].items()
    lines = [
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in table.items()) for group, table in groups
    ]
    (metadata / "entry_points.txt").write_text("\n".join(lines))
    return folder


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tiny_model(["the cat sees a dog"]), tmp_path_factory.mktemp("models") / "translator")


def run(installed: Path, *arguments: object) -> str:
    path = os.pathsep.join([str(installed), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", "seq2see", *map(str, arguments)], env={**os.environ, "PYTHONPATH": path},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_each_part_of_the_package_is_short() -> None:
    assert len(package_files()) == 5
    assert all(len(text.splitlines()) <= MAX_LINES for text in package_files().values())


def test_a_command(installed: Path, translator: Path, tmp_path: Path) -> None:
    (tmp_path / "a.en").write_text("a dog\nthe cat sees a dog\n")
    assert "lengths" in run(installed, "--help")
    assert "--longest" in run(installed, "lengths", "--help")
    assert run(installed, "lengths", tmp_path / "a.en", "--model", translator, "--longest").endswith(
        "the cat sees a dog\n"
    )


def test_a_reader_of_another_format_and_a_metric(installed: Path, translator: Path, tmp_path: Path) -> None:
    with ZipFile(tmp_path / "model.zip", "w") as archive:
        for file in translator.iterdir():
            archive.write(file, file.name)
    (tmp_path / "t.en").write_text("the cat\na dog\n")
    (tmp_path / "t.hi").write_text("\n".join(load(translator).translate(["the cat", "a dog"])) + " !\n")
    test = ("--src", tmp_path / "t.en", "--ref", tmp_path / "t.hi", "--json")
    scores = json.loads(run(installed, "evaluate", "--model", tmp_path / "model.zip", *test))["scores"]
    assert [score["name"] for score in scores] == ["BLEU", "chrF++", "TER", "length ratio"]
    assert 0 < scores[-1]["value"] <= 100


def test_a_kind_of_model_that_a_metric_of_another_package_selects(installed: Path, tmp_path: Path) -> None:
    data = write_phrases(tmp_path)
    files = ("--src", *data.src, "--tgt", *data.tgt, "--valid-src", *data.valid_src, "--valid-tgt", *data.valid_tgt)
    settings = (
        "model.kind=no-encoder", "train.metric=length-ratio", "model.width=32", "model.heads=2", "train.validate_every=10",
    )  # fmt: skip
    length = ("--steps", 20, "--preset", "tiny", "--set", *settings)
    run(installed, "train", *files, "--out", tmp_path / "run", *length)
    assert "no-encoder" in run(installed, "model", tmp_path / "run")
    found = run(installed, "translate", "--model", tmp_path / "run", "--beam", 2, "--format", "jsonl", "red tea")
    assert json.loads(found)["source"] == "red tea"


def test_a_part_that_cannot_be_imported_is_named(installed: Path, tmp_path: Path) -> None:
    metadata = tmp_path / "broken-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[seq2see.commands]\nbroken = no_such_module:run\n")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "seq2see", "broken"]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False)
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert 'no_such_module:run ("broken" of seq2see.commands) cannot be imported' in done.stderr
