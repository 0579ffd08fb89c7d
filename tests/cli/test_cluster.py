"""Jobs over shards of files, without a cluster: every line once and in order, whatever the shards, and jobs resumed."""

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from seq2see.api import load
from seq2see.cli import app
from seq2see.cli.ray import job
from seq2see.cli.ray.job import run_job
from seq2see.cli.ray.ray_map import Task, share_per_worker
from seq2see.cli.ray.shards import Shard, plan_shards, read_shard_lines
from seq2see.cli.ray.tasks import ModelOptions, RecordedWarnings, TranslateShards
from seq2see.config.search import Search
from seq2see.errors import UserError, no_progress
from seq2see.translate.warning_log import WarningLog
from tests.models import GRAMMAR_MODEL

SENTENCES = ["I like tea.", "Two cows are in the village.", "", "How are you? The girl reads a book."]
SILENT = WarningLog(lambda text: None)


@given(st.lists(st.text("ab \u2028न\r", max_size=12), max_size=8), st.booleans(), st.integers(1, 40))
def test_every_line_is_in_exactly_one_shard(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], ends: bool, size: int
) -> None:
    path = tmp_path_factory.mktemp("shards") / "lines.txt"
    content = "\n".join(lines) + "\n" * (ends and bool(lines))
    path.write_bytes(content.encode())
    shards = plan_shards(path, path.parent, size)
    found = "".join(line.text + line.ending for shard in shards for line in read_shard_lines(shard, SILENT))
    assert found == content


def _local_map(task: Task, items: Sequence[Any], workers: int) -> Iterator[tuple[int, Any]]:
    run = task.start()
    return ((i, run(item)) for i, item in reversed(list(enumerate(items))))  # in no particular order


@pytest.fixture
def local(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "ray_map", _local_map)


def translate(files: Sequence[Path], out: Path, **options: Any) -> None:
    task = TranslateShards(ModelOptions(GRAMMAR_MODEL, "cpu"), Search(beam=options.pop("beam", 1)), **options)
    run_job(files, out, task, 1, SILENT, no_progress, shard_bytes=100)


@pytest.mark.usefixtures("local")
def test_output_has_a_line_for_each_line_in_order(tmp_path: Path) -> None:
    texts = SENTENCES * 5
    (tmp_path / "a.txt").write_text("\n".join(texts))
    rows = [json.dumps({"id": i, "en": {"text": text}}) for i, text in enumerate(texts)]
    (tmp_path / "b.jsonl").write_text("".join(f"{row}\n\n" for row in rows))
    (tmp_path / "empty.txt").write_text("")
    translate([tmp_path / "a.txt", tmp_path / "empty.txt"], tmp_path / "out")
    expected = load(GRAMMAR_MODEL).translate(texts)
    assert (tmp_path / "out" / "a.txt").read_text().split("\n") == expected
    assert (tmp_path / "out" / "empty.txt").read_text() == ""
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["a.txt", "empty.txt", "job.json"]

    translate([tmp_path / "b.jsonl"], tmp_path / "rows", field="en.text")
    lines = (tmp_path / "rows" / "b.jsonl").read_text().split("\n")
    found = [json.loads(line) for line in lines[:-1:2]]
    assert [row["id"] for row in found] == list(range(len(texts)))
    assert [row["translation"] for row in found] == expected
    assert set(lines[1::2]) == {""}


def test_stopped_job_does_only_what_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.txt").write_text("".join(f"{text}\n" for text in SENTENCES * 5))
    done: list[Shard] = []

    def stopping_map(task: Task, items: Sequence[Any], workers: int) -> Iterator[tuple[int, Any]]:
        for i, result in _local_map(task, items, workers):
            done.append(items[i])
            if len(done) == 2:
                raise UserError("stopped")
            yield i, result

    monkeypatch.setattr(job, "ray_map", stopping_map)
    with pytest.raises(UserError, match="stopped"):
        translate([tmp_path / "a.txt"], tmp_path / "out")
    with pytest.raises(UserError, match=r'belongs to another job \(search: \{"beam": 1, .+\}, now \{"beam": 4, .+\}\)'):
        translate([tmp_path / "a.txt"], tmp_path / "out", beam=4)
    translate([tmp_path / "a.txt"], tmp_path / "out")
    assert len(done) == len(set(done)) == len(plan_shards(tmp_path / "a.txt", tmp_path, 100))
    assert (tmp_path / "out" / "a.txt").read_text().splitlines() == load(GRAMMAR_MODEL).translate(SENTENCES * 5)
    done.clear()
    translate([tmp_path / "a.txt"], tmp_path / "out")
    assert not done
    (tmp_path / "a.txt").write_text("Something else.\n")
    with pytest.raises(UserError, match="belongs to another job"):
        translate([tmp_path / "a.txt"], tmp_path / "out")


@pytest.mark.usefixtures("local")
def test_problems_are_reported_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"text": "I like tea."}\n{"txt": "I like milk."}\n')
    with pytest.raises(UserError, match=r'rows.jsonl, line 2: no field "text": did you mean "txt"\?; --field names'):
        translate([tmp_path / "rows.jsonl"], tmp_path / "out")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "rows.jsonl").write_text("{}\n")
    with pytest.raises(UserError, match=r"two of the 2 files are called rows.jsonl"):
        translate([tmp_path / "rows.jsonl", tmp_path / "a" / "rows.jsonl"], tmp_path / "out")
    with pytest.raises(UserError, match="would be overwritten"):
        translate([tmp_path / "rows.jsonl"], tmp_path)
    with pytest.raises(UserError, match="exists and is not an empty directory"):
        translate([tmp_path / "rows.jsonl"], tmp_path / "a")


def test_warnings_of_workers_are_counted_and_the_first_are_shown() -> None:
    shown: list[str] = []
    log, logs = WarningLog(shown.append), [RecordedWarnings(), RecordedWarnings()]
    for worker in logs:
        for i in range(8):
            worker.add("problems", f"line {i}", "bad")
        worker.add_to(log)
    assert log.counts == {"problems": 16}
    assert shown == [f"line {i}: bad" for i in range(5)]


@pytest.mark.parametrize(
    ("nodes", "workers", "share"),
    [([8, 8], 1, 8), ([8, 8], 2, 8), ([8, 8], 3, 4), ([8, 3], 4, 2), ([2], 2, 1), ([2], 3, 0.5), ([1, 1], 5, 1 / 3)],
)
def test_all_workers_fit_onto_the_machines(nodes: list[int], workers: int, share: float) -> None:
    assert share_per_worker(nodes, workers) == share


def test_engine_options_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)  # not installed
    for arguments, message in [
        (["translate", "--engine", "ray", "a.txt"], 'needs Ray: pip install "seq2see[ray]"'),
        (["embed", "--model", "m", "--workers", "2", "a.txt"], "--workers is for --engine ray"),
    ]:
        assert message in str(CliRunner().invoke(app, arguments).exception)
