"""Small changes to the core's code, drawn with a seed: the tests that run a changed line must notice the change.

    python -m tests.mutants [--count 300] [--seed 1] [--first 0] [--map]

A change swaps an operator, a constant, a condition or two arguments, or leaves out a statement, inside a function of the core
on a line that tests run (`make coverage` finds the others). It is made in a copy of the project; there the tests of the line
run in a forked process with a time limit, the quickest first, until one fails. That test must pass without the change.
Changes that can alter nothing, each with its reason, are listed in tests/equivalent_changes.txt.

Which tests run a line is measured once, by a run of all tests (`--map` repeats it), and stored in `.mutants/`. Lines that were
only moved since keep their tests; a line that was edited has none and is not drawn.
"""

import argparse
import difflib
import gc
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from importlib import import_module
from pathlib import Path

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")
os.environ["OMP_NUM_THREADS"] = "1"
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

import coverage
import pytest

from tests.changes import ROOT, Change, changes

STORE = ROOT / ".mutants"
EQUIVALENT = ROOT / "tests/equivalent_changes.txt"
CORE = ["config", "tensors", "data", "model", "decode", "storage", "inspect", "evaluate", "translate", "train"]
BATCHES = [4, 25, 120]  # the tests of a change run in up to three processes, until so many seconds of tests have run
MINIMUM = 120  # seconds until a process is taken to hang
LIMIT = 0.03  # of the changes may survive
NO_BROWSER = "--ignore-glob=*/test_page*"
PAGE = "src/seq2see/server/explore/page"  # built, and ignored by git
NO_PLUGINS = [f"-pno:{name}" for name in ("cacheprovider", "cov", "schemathesis", "xdist")]  # none has a part here
ENDINGS = {None: "time limit", 2: "collection", 3: "pytest itself", 4: "other parameters"}  # by pytest's exit code
IMPORTED_ONCE = [
    "torch._dynamo",
    "transformers",
    "sacrebleu",
    "hypothesis",
    "schemathesis",
    "fastapi.testclient",
    "uvicorn",
    "typer.testing",
    "matplotlib.pyplot",
]


# Which tests run a line, and how long each takes.


@dataclass(eq=False)  # a plugin must have a hash
class Recorder:
    """What pytest reports of the tests."""

    collected: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    setups: dict[str, float] = field(default_factory=dict)  # the fixtures of each file

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.collected += [item.nodeid for item in session.items]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        seconds, key = (
            (self.setups, file_of(report.nodeid)) if report.when == "setup" else (self.seconds, report.nodeid)
        )
        seconds[key] = seconds.get(key, 0) + report.duration
        if report.failed:
            self.failed.append(report.nodeid)


def file_of(test: str) -> str:
    return test.partition("::")[0]


def measure() -> None:
    """Runs all tests without a browser. A process that a test starts counts as the test's: its environment names the test."""
    STORE.mkdir(exist_ok=True)
    configuration = STORE / "measured.ini"
    core = ",".join(f"{ROOT}/src/seq2see/{folder}/*" for folder in CORE)
    configuration.write_text(
        f"[run]\ninclude = {core}\ndata_file = {STORE}/lines\nparallel = true\nsigterm = true\ncore = ctrace\n"
        "context = ${PYTEST_CURRENT_TEST-}\n"
    )
    os.environ["COVERAGE_PROCESS_START"] = str(configuration)
    recorder = Recorder()
    options = ["--cov", "--cov-context=test", f"--cov-config={configuration}", "--cov-report="]
    pytest.main([*options, "-p", "no:cacheprovider", NO_BROWSER], plugins=[recorder])
    sources = {name: (ROOT / name).read_text() for name in core_files()}
    (STORE / "tests.json").write_text(json.dumps({"root": str(ROOT), "sources": sources, **asdict(recorder)}))


def core_files() -> list[str]:
    files = [path for folder in CORE for path in (ROOT / "src/seq2see" / folder).rglob("*.py")]
    return sorted(str(path.relative_to(ROOT)) for path in files)


class Map:
    def __init__(self, collected: list[str]) -> None:
        self.lines = coverage.CoverageData(str(STORE / "lines"))
        self.lines.read()
        stored = json.loads((STORE / "tests.json").read_text())
        self.root: str = stored["root"]
        self.sources: dict[str, str] = stored["sources"]
        usable = set(collected).difference(stored["failed"])
        self.seconds = {name: value for name, value in stored["seconds"].items() if name in usable}
        self.setups: dict[str, float] = stored["setups"]
        self.tests_of_file: defaultdict[str, set[str]] = defaultdict(set)
        for name in self.seconds:
            self.tests_of_file[file_of(name)].add(name)

    def tests(self, file: str) -> dict[int, list[str]]:
        """The tests that run each line of a file as it is now, those of the quickest file first."""
        contexts = self.lines.contexts_by_lineno(f"{self.root}/{file}")
        was, now = self.sources.get(file, "").splitlines(), (ROOT / file).read_text().splitlines()
        blocks = difflib.SequenceMatcher(None, was, now, autojunk=False).get_matching_blocks()
        moved = {block.b + i + 1: block.a + i + 1 for block in blocks for i in range(block.size)}
        found = {line: self._names(contexts.get(before, ())) for line, before in moved.items()}
        return {line: names for line, names in found.items() if names}

    def _names(self, contexts: Iterable[str]) -> list[str]:
        names: set[str] = set()
        for context in contexts:
            name = context.rpartition("|" if context.endswith(("|run", "|setup", "|teardown")) else " (")[0]
            if context.endswith("|setup"):  # perhaps of a fixture that the other tests of the file use
                names |= self.tests_of_file[file_of(name)]
            names.add(name)
        files = [sorted(names & self.tests_of_file[file]) for file in sorted({file_of(name) for name in names})]
        return [name for tests in sorted(files, key=self.cost) for name in tests]

    def cost(self, tests: Collection[str]) -> float:
        """Seconds that tests take when they run together."""
        setups = sum(self.setups.get(file, 0) for file in {*map(file_of, tests)})
        return setups + sum(self.seconds[name] for name in tests)


# Running the tests.


class Copy:
    """A copy of the project, in which tests run in forked processes."""

    def __init__(self, folder: Path) -> None:
        self.root, self.versions, self.tried = folder, 0, 0
        listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        names = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
        for path in [ROOT / name for name in names if name] + list((ROOT / PAGE).rglob("*")):
            if path.is_file():
                target = folder / path.relative_to(ROOT)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, target)
        for name in IMPORTED_ONCE:
            with suppress(ImportError):
                import_module(name)
        sys.dont_write_bytecode = False  # files that are not changed are compiled once
        gc.freeze()  # what collections do not touch stays shared

    def run(self, arguments: Iterable[str], seconds: float) -> tuple[int | None, Recorder]:
        """Runs pytest; returns its exit code, or None for a hang, and what it reported."""
        answer = self.root.with_suffix(".json")
        child = os.fork()
        if not child:
            self._run_forked(list(arguments), answer)
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if (status := os.waitpid(child, os.WNOHANG)) != (0, 0):
                return os.waitstatus_to_exitcode(status[1]), Recorder(**json.loads(answer.read_text()))
            time.sleep(0.02)
        os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return None, Recorder()

    def _run_forked(self, arguments: list[str], answer: Path) -> None:
        recorder = Recorder()
        code = 1
        try:
            answer.write_text("{}")
            os.setsid()
            null = os.open(os.devnull, os.O_RDWR)
            for stream in range(3):
                os.dup2(null, stream)
            os.chdir(self.root)
            for name in [name for name in sys.modules if name.partition(".")[0] in ("seq2see", "tests")]:
                del sys.modules[name]
            sys.path[:0] = [str(self.root / "src"), str(self.root)]
            os.environ["PYTHONPATH"] = str(self.root / "src")
            options = [*NO_PLUGINS, "-W", "ignore::pytest.PytestAssertRewriteWarning"]
            code = pytest.main([*options, *arguments], plugins=[recorder])
        finally:
            answer.write_text(json.dumps(asdict(recorder)))
            os._exit(code)

    def collect(self) -> list[str]:
        code, recorder = self.run(["--collect-only", NO_BROWSER], 600)
        assert code == 0, "the tests cannot be collected"
        return recorder.collected

    def failing(self, tests: list[str]) -> list[str]:
        """The tests that fail without a change."""
        return self.run(tests, 3600)[1].failed if tests else []

    def notice(self, change: Change, tests: Map) -> str | None:
        """The test that notices a change, or what else did; None if nothing."""
        target = self.root / change.file
        target.write_bytes(change.mutated)
        self.versions += 1
        os.utime(target, (self.versions, self.versions))  # Python compiles a file anew if its time has changed
        try:
            start = 0
            for limit in BATCHES:
                end = start
                while end < len(change.tests) and (end == 0 or tests.cost(change.tests[: end + 1]) < limit):
                    end += 1
                if batch := change.tests[start:end]:
                    code, recorder = self.run(["-x", *batch], MINIMUM + 10 * tests.cost(batch))
                    if code != 0:
                        return (*recorder.failed, ENDINGS.get(code, "crash"))[0]
                self.tried = start = end
            return None
        finally:
            shutil.copy2(ROOT / change.file, target)


def run(drawn: list[Change], copy: Copy, tests: Map, first: int) -> list[Change]:
    """Tries the changes one by one; returns those that no test noticed."""
    noticed: dict[Change, str | None] = {}
    for number, change in list(enumerate(drawn))[first:]:
        noticed[change] = copy.notice(change, tests)
        result = noticed[change] or f"SURVIVED {copy.tried} of {len(change.tests)} tests"
        print(f"{number:4}  {result}  {change}", flush=True)
    broken = copy.failing(sorted({name for name in noticed.values() if name and "::" in name}))
    for change, name in noticed.items():
        if name in broken:  # it fails anyway
            others = tuple(test for test in change.tests if test not in broken)
            noticed[change] = copy.notice(replace(change, tests=others), tests)
    print(*(f"{name} fails without a change, and was left out" for name in broken), sep="\n")
    return [change for change, name in noticed.items() if name is None]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="leave out so many of the drawn changes")
    parser.add_argument("--map", action="store_true", help="measure again which tests run a line")
    options = parser.parse_args()
    if options.map or not (STORE / "tests.json").exists():
        subprocess.run([sys.executable, "-c", "from tests.mutants import measure; measure()"], cwd=ROOT, check=True)
    with tempfile.TemporaryDirectory() as folder:
        copy = Copy(Path(folder) / "copy")
        tests = Map(copy.collect())
        possible = [change for file in core_files() for change in changes(file, tests.tests(file))]
        drawn = random.Random(options.seed).sample(possible, min(options.count, len(possible)))
        print(f"{len(drawn)} of {len(possible):,} possible changes, drawn with seed {options.seed}", flush=True)
        survivors = run(drawn, copy, tests, options.first)
    known = {line.rpartition(" | ")[0] for line in EQUIVALENT.read_text().splitlines()}
    missed = [change for change in survivors if change.key not in known]
    tried = len(drawn) - options.first
    print(
        f"{tried} tried, {len(survivors)} survived, of which {len(survivors) - len(missed)} are known to change nothing"
    )
    print(*(f"{change.file}:{change.line}\n    {change.key}" for change in missed), sep="\n")
    sys.exit(len(missed) > LIMIT * tried)


if __name__ == "__main__":
    main()
