"""A Ray cluster of two nodes, both on this machine: the results of one process, also if a worker is killed."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from seq2see.api import load
from seq2see.cli import app
from seq2see.cli.ray.job import run_job
from seq2see.cli.ray.shards import Shard
from seq2see.cli.ray.tasks import ModelOptions, RecordedWarnings, TranslateShards
from seq2see.config.search import Search
from seq2see.errors import no_progress
from seq2see.translate.warning_log import WarningLog
from tests.foreign_models import encoder, word_piece
from tests.foreign_models import save as save_foreign
from tests.models import GRAMMAR_MODEL

pytestmark = [pytest.mark.extras, pytest.mark.filterwarnings("ignore")]  # Ray's own warnings
TEXTS = ["I like tea.", "Two cows are in the village.", "", "How are you? The girl reads a book."] * 10


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[Any]:
    os.environ.setdefault("RAY_AUTH_MODE", "disabled")  # else Ray writes a token to the home directory
    ray = pytest.importorskip("ray", reason="the extra `ray` is not installed")
    pytest.importorskip("pyarrow")
    from ray.cluster_utils import Cluster

    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    nodes.add_node(num_cpus=1)  # as another machine would join
    ray.init(address=nodes.address, log_to_driver=False)
    assert len(ray.nodes()) == 2
    yield ray
    ray.shutdown()
    nodes.shutdown()


def run(*arguments: object) -> str:
    result = CliRunner().invoke(app, [*map(str, arguments), "--engine", "ray", "--workers", "2"])
    assert result.exception is None, result.exception
    return result.stdout


@dataclass(frozen=True)
class KilledOnce(TranslateShards):
    """Kills its own process in the middle of the third shard, the first time."""

    folder: str = ""

    def start(self) -> Callable[[Shard], RecordedWarnings]:
        translate = super().start()

        def run(shard: Shard) -> RecordedWarnings:
            killed = Path(self.folder) / "killed"
            if shard.part.name == "000002" and not killed.exists():
                killed.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            (Path(self.folder) / f"{shard.part.name}-{os.getpid()}").touch()
            return translate(shard)

        return run


def test_killed_worker_loses_no_line(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("".join(f"{text}\n" for text in TEXTS))
    (tmp_path / "log").mkdir()
    task = KilledOnce(ModelOptions(GRAMMAR_MODEL, "cpu"), Search(), folder=str(tmp_path / "log"))
    run_job([tmp_path / "a.txt"], tmp_path / "out", task, 2, WarningLog(print), no_progress, shard_bytes=100)
    assert (tmp_path / "out" / "a.txt").read_text().split("\n") == [*load(GRAMMAR_MODEL).translate(TEXTS), ""]
    names = [path.name for path in (tmp_path / "log").iterdir()]
    assert "killed" in names
    assert len({name.split("-")[1] for name in names if "-" in name}) > 1  # several processes did the work


def test_translate_keeps_the_rows_of_parquet_and_json_lines(tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    expected = load(GRAMMAR_MODEL).translate(TEXTS)
    table = pyarrow.table({"id": range(len(TEXTS)), "en": [text or None for text in TEXTS]})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet", row_group_size=7)
    (tmp_path / "b.jsonl").write_text("".join(json.dumps({"en": text}) + "\n" for text in TEXTS))
    files = [tmp_path / "a.parquet", tmp_path / "b.jsonl"]
    run("translate", "--model", GRAMMAR_MODEL, *files, "--field", "en", "--out", tmp_path / "out")
    found = pyarrow.parquet.read_table(tmp_path / "out" / "a.parquet").to_pydict()
    assert found["id"] == list(range(len(TEXTS)))
    assert found["translation"] == [text or None for text in expected]
    rows = list(map(json.loads, (tmp_path / "out" / "b.jsonl").read_text().splitlines()))
    assert rows == [{"en": text, "translation": translation} for text, translation in zip(TEXTS, expected, strict=True)]


def test_vectors_equal_those_of_one_process(tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    model = save_foreign(tmp_path / "encoder", encoder(), word_piece())
    texts = ["the cat", "a dog", "the cat and a dog"]
    (tmp_path / "a.txt").write_text("\n".join(texts))
    pyarrow.parquet.write_table(pyarrow.table({"text": texts}), tmp_path / "b.parquet", row_group_size=2)
    run("embed", "--model", model, tmp_path / "a.txt", tmp_path / "b.parquet", "--normalize", "--out", tmp_path / "out")
    expected = load(model).embed(texts)
    rows = list(map(json.loads, (tmp_path / "out" / "a.txt.jsonl").read_text().splitlines()))
    assert [row["text"] for row in rows] == texts
    columns = pyarrow.parquet.read_table(tmp_path / "out" / "b.parquet").to_pydict()
    for i, vector in enumerate(expected):
        vector = vector / vector.norm()
        assert rows[i]["vector"] == pytest.approx(vector.tolist(), abs=1e-5)
        assert columns["vector"][i] == pytest.approx(vector.tolist(), abs=1e-5)


def test_a_test_set_is_translated_on_ray_and_then_evaluated(tmp_path: Path) -> None:
    sources = [text for text in TEXTS if text]
    (tmp_path / "t.en").write_text("".join(f"{text}\n" for text in sources))
    (tmp_path / "t.hi").write_text("".join(f"{text} और\n" for text in load(GRAMMAR_MODEL).translate(sources)))
    run("translate", "--model", GRAMMAR_MODEL, tmp_path / "t.en", "--out", tmp_path / "out")
    test = ["--src", str(tmp_path / "t.en"), "--ref", str(tmp_path / "t.hi"), "--json"]
    found = [
        json.loads(CliRunner().invoke(app, ["evaluate", *system, *test]).stdout)["scores"]
        for system in (["--model", str(GRAMMAR_MODEL)], ["--hyp", str(tmp_path / "out" / "t.en")])
    ]
    assert found[0] == found[1]


def test_problem_of_a_worker_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("I like tea.\n")
    arguments = [
        "translate",
        "--engine",
        "ray",
        "--model",
        str(tmp_path / "missing"),
        str(tmp_path / "a.txt"),
        "--out",
        str(tmp_path / "out"),
    ]
    error = CliRunner().invoke(app, arguments).exception
    assert str(tmp_path / "missing") in str(error) and "\n" not in str(error)
