"""The package of docs/extending.md, installed and used: a command, two readers, a kind of model and a metric of others."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from zipfile import ZipFile

import pytest

import seq2see
from seq2see.api import load
from tests.corpora import write_phrases
from tests.models import save, tiny_model

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs/extending.md"
MAX_LINES = 40
POSITIONS = "seq2see/model/positions.py"  # the block that goes to the end of it


def blocks() -> dict[str, str]:
    """Returns the code blocks of the page by their first line, a path."""
    return dict(re.findall(r"^```\w+\n# (\S+)\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), flags=re.M | re.S))


def package_files() -> dict[str, str]:
    return {path: text for path, text in blocks().items() if path != POSITIONS}


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
        [sys.executable, "-m", "seq2see", *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_each_part_of_the_package_is_short() -> None:
    assert len(blocks()) == 7
    assert all(len(text.splitlines()) <= MAX_LINES for text in blocks().values())


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


def test_a_corpus_in_another_format(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "a.align").write_text("the cat ||| die Katze\na dog ||| ein Hund\n")
    report = json.loads(run(installed, "data", "check", "--pairs", tmp_path / "a.align", "--json"))
    assert max(finding["total"] for finding in report["findings"]) == 2


def test_a_kind_of_model_that_a_metric_of_another_package_selects(installed: Path, tmp_path: Path) -> None:
    data = write_phrases(tmp_path)
    files = ("--src", *data.src, "--tgt", *data.tgt, "--valid-src", *data.valid_src, "--valid-tgt", *data.valid_tgt)
    settings = (
        "model.kind=no-encoder",
        "train.metric=length-ratio",
        "model.width=32",
        "model.heads=2",
        "train.validate_every=10",
    )
    length = ("--steps", 20, "--preset", "tiny", "--set", *settings)
    run(installed, "train", *files, "--out", tmp_path / "run", *length)
    log = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert all(row["length-ratio"] >= 0 for row in log if row["kind"] == "validation")
    assert json.loads((tmp_path / "run" / "scores.json").read_text())["validation"]["length-ratio"] >= 0
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


ALIBI = """
import torch
from dataclasses import replace
from seq2see.data.layout import Packed
from seq2see.decode.engine_model import why_on_torch
from seq2see.decode.generate import generate_tokens
from seq2see.config.search import Search
from seq2see.inspect.trace import trace
from tests.models import TINY, tiny_model

model = tiny_model(["the cat sees a dog"], replace(TINY, shape="decoder", heads=4, positions="alibi", max_positions=64))
prompt = model.tokenizers[1].frame_prompt(model.tokenizers[1].encode("the cat"))
with trace(model.network) as t:
    model.network(Packed.from_sequences([prompt]))
bias = t["decoder.0.masked.biased", 0] - t["decoder.0.masked.scaled", 0]  # [H, L, M]
slopes = torch.tensor([1 / 4, 1 / 16, 1 / 64, 1 / 256])
positions = torch.arange(len(prompt))
close = dict(atol=1e-4, rtol=1e-4)
torch.testing.assert_close(bias, -slopes[:, None, None] * (positions[:, None] - positions).abs(), **close)

model.network.use_engine = True  # it does not know the scheme, so torch decodes
assert "its positions are alibi" in why_on_torch(model.network)
for beam in (1, 3):  # cached steps add the same bias as one pass over all tokens
    framing = replace(model.tokenizers[1].framing, prompt=())
    (best, *_), = generate_tokens(model.network, [prompt], framing, Search(beam=beam, max_new_tokens=12))
    logits = model.network(Packed.from_sequences([[*prompt, *best.tokens]])).log_softmax(-1)
    found = [float(logits[len(prompt) - 1 + i, token]) for i, token in enumerate(best.tokens)]
    torch.testing.assert_close(torch.tensor(found), torch.tensor(best.logprobs[: len(found)]), **close)
"""


def test_a_position_scheme_inside(tmp_path: Path) -> None:
    source = Path(seq2see.__file__).parent
    shutil.copytree(source, tmp_path / "seq2see", ignore=shutil.ignore_patterns("__pycache__", "bundled", "page"))
    with (tmp_path / POSITIONS).open("a") as file:
        file.write("\n\n" + blocks()[POSITIONS])
    options = tmp_path / "seq2see/config/model.py"
    before = options.read_text()
    options.write_text(before.replace('"relative", "none"\n', '"relative", "alibi", "none"\n'))
    assert options.read_text() != before
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    done = subprocess.run([sys.executable, "-c", ALIBI], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    data = write_phrases(tmp_path)
    train = ("train", "--src", *data.src, "--tgt", *data.tgt, "--out", "run", "--preset", "tiny", "--steps", "3")
    settings = ("model.positions=alibi", "model.width=32", "model.heads=2")
    command = [sys.executable, "-m", "seq2see", *train, "--set", *settings]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
