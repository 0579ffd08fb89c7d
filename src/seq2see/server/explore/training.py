"""Training from the page: one `seq2see train` at a time, in a process of its own, watched through the files it writes.

The server holds the standard input of that process. Closing it makes the training save and stop, and it closes by itself when
the server ends, however that happens: no training outlives the page that started it.
"""

import itertools
import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Literal

from pydantic import Field

from seq2see.course.sample_corpus import TRAINING_PRESET, TRAINING_SETTINGS
from seq2see.data.corpus import holds_pairs
from seq2see.server.explore import requests
from seq2see.server.explore.options import TrainingOptions
from seq2see.server.explore.responses import ResponseModel, TrainingPoint, ValidationPoint
from seq2see.server.http.errors import ApiError
from seq2see.storage.scores import load_scores
from seq2see.train.checkpoint import CheckpointManager, steps_with_weights
from seq2see.train.run_lock import is_locked
from seq2see.train.run_log import RunLog, downsample, trained_so_far

CHECKPOINT_STEPS = 100  # between the weights that the page shows
STOP_SECONDS = 20.0  # for the training to save when the server ends; then it is killed
MAX_FILES = 500


TrainingState = Literal["preparing", "training", "paused", "finishing", "finished", "stopped", "failed"]


class TrainingFile(ResponseModel):
    name: str = Field(examples=["books/emma.txt"])
    bytes: int


class TrainingStep(TrainingPoint):
    lr: float = Field(description="Learning rate.")
    tokens_per_second: float


class TrainingRun(ResponseModel):
    """A training run, as its files describe it."""

    name: str
    directory: str
    state: TrainingState = Field(
        description="`finishing`: scores and writes the model; `stopped`: before the first step."
    )
    own: bool = Field(description="Whether this server started it, and so can pause and stop it.")
    model: str | None = Field(description="Its name in `/api/models`, once it has finished.")
    command: str = Field(description="The command that trains it; empty if another process does.")
    message: str = Field(description="The last line of the command's output: of a failed run, the reason.")
    step: int
    seconds: float
    progress: float = Field(description="From 0 to 1.")
    steps: list[TrainingStep]
    validations: list[ValidationPoint]
    steps_with_weights: list[int] = Field(description="For `/api/training/report`.")


class Training(ResponseModel):
    disabled: str = Field(description="Why this server does not train; empty if it does.")
    runs: str = Field(description="The directory of new runs.")
    files: list[TrainingFile] = Field(description="What can be trained on, besides the built-in corpus.")
    paused: list[str] = Field(description="Runs that can be resumed.")
    run: TrainingRun | None = Field(description="The run that was started, resumed or followed last.")


class TrainingProcess:
    """One command, with the last lines of its output."""

    def __init__(
        self, arguments: Sequence[str], environment: Mapping[str, str], on_exit: Callable[["TrainingProcess"], None]
    ) -> None:
        self.arguments, self.lines, self.stopped = arguments, deque[str](maxlen=20), False
        self._process = subprocess.Popen(
            [sys.executable, "-m", "seq2see", *arguments],
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,  # Ctrl-C in the server's terminal reaches the server only
        )
        self._on_exit = on_exit
        self._reader = threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True)
        self._reader.start()

    @property
    def code(self) -> int | None:
        """The exit status; None while it runs."""
        return self._process.poll()

    @property
    def message(self) -> str:
        """The last line of its output, or what killed it."""
        if (self.code or 0) < 0:
            return f"the process was killed by signal {-(self.code or 0)}"
        return self.lines[-1].removeprefix("seq2see: ") if self.lines else ""

    def stop(self) -> None:
        """Makes it save and stop, without waiting for it."""
        self.stopped = True
        if self.arguments[0] != "train":
            self._process.terminate()
        self._close_input()

    def _close_input(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()

    def close(self) -> None:
        """Stops it and waits for its end."""
        self.stop()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()

    def _read(self, output: IO[str]) -> None:
        with output:
            for line in output:
                if line.strip():
                    self.lines.append(line.strip())
        self._process.wait()
        self._close_input()
        self._on_exit(self)


class TrainingManager:
    """Starts, pauses, resumes and stops one training at a time, and reports on it or on the run that is followed."""

    def __init__(self, options: TrainingOptions, on_finished: Callable[[Path], str]) -> None:
        self.options = options
        self._on_finished = on_finished  # makes the model of a finished run known; returns its name
        self._lock = threading.RLock()
        self._run = options.follow
        self._process: TrainingProcess | None = None
        self._next: list[list[str]] = []  # commands to run after the present one
        self._models: dict[Path, str] = {}  # of finished runs
        self._closed = False

    # Commands

    def start(self, body: requests.StartTraining) -> None:
        with self._lock:
            self._require_idle()
            out = self.options.runs / body.name
            if (out / "config.toml").exists():
                raise ApiError(409, f"{out} already contains a run", "choose another name, or resume that run", "name")
            commands = self._commands(body, out)
            try:
                self.options.runs.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                message = f"cannot create {self.options.runs}: {error.strerror}"
                raise ApiError(422, message, "start the server with another --runs-dir", "name") from error
            self._run = out
            self._execute(commands)

    def pause(self) -> None:
        """Saves the training and ends its process."""
        with self._lock:
            self._next.clear()
            self._require_own().stop()

    def resume(self, name: str) -> None:
        with self._lock:
            self._require_idle()
            if name not in self._paused():
                hint = f"paused runs: {', '.join(self._paused()) or 'none'}"
                raise ApiError(404, f'no paused run "{name}" in {self.options.runs}', hint, "name")
            self._run = self.options.runs / name
            self._execute([self._train("--resume", str(self._run))])

    def stop(self) -> None:
        """Ends the training early: it saves, then scores and writes the model of the step it has reached."""
        with self._lock:
            if self._process is not None and self._process.code is None:
                self._next = [["finish"]]
                self._process.stop()
            elif self._run is not None and self._run.name in self._paused():
                self._execute([["finish"]])
            else:
                raise ApiError(409, "no training is running or paused", "start one first")

    def close(self) -> None:
        """Called when the server ends."""
        with self._lock:
            self._closed = True
            self._next.clear()
            process = self._process
        if process is not None:
            process.close()

    def _require_idle(self) -> None:
        if self._process is not None and (self._process.code is None or self._next):
            raise ApiError(409, f"a training is already running: {self._run}", "pause or stop it first")

    def _require_own(self) -> TrainingProcess:
        if self._process is None or self._process.code is not None:
            raise ApiError(
                409, "no training of this page is running", "start one, or stop the other where it was started"
            )
        return self._process

    def _commands(self, body: requests.StartTraining, out: Path) -> list[list[str]]:
        end = ["--out", str(out), "--minutes", f"{body.minutes:g}"]
        if not body.files:
            sample = self.options.runs / f"{out.name}-data"
            settings = [argument for setting in TRAINING_SETTINGS for argument in ("--set", setting)]
            names = {"--src": "train.en", "--tgt": "train.hi", "--valid-src": "valid.en", "--valid-tgt": "valid.hi"}
            files = [argument for option, name in names.items() for argument in (option, str(sample / name))]
            train = self._train(*files, "--preset", TRAINING_PRESET, *settings, *end)
            return [["data", "sample", "--out", str(sample)], train]
        paths = [str(self._data_file(name)) for name in body.files]
        if len(paths) == 2:
            return [self._train("--src", paths[0], "--tgt", paths[1], *end)]
        option = "--pairs" if holds_pairs(Path(paths[0])) else "--text"
        return [self._train(option, paths[0], *end)]

    def _train(self, *arguments: str) -> list[str]:
        return ["train", *arguments, "--set", f"train.checkpoint_steps={CHECKPOINT_STEPS}", "--stop-on-eof"]

    def _data_file(self, name: str) -> Path:
        data = self.options.data
        if data is None:
            raise ApiError(422, "this server offers no files", "start it with --data-dir DIRECTORY", "files")
        path = data / name
        if not path.resolve().is_relative_to(data.resolve()) or not path.is_file():
            raise ApiError(404, f'no file "{name}" in {data}', "choose one that is listed", "files")
        return path

    def _execute(self, commands: list[list[str]]) -> None:
        """Runs commands one after the other, each if the one before succeeded."""
        if self._closed:
            return
        command, *self._next = commands
        if command == ["finish"]:
            assert self._run is not None
            steps = _checkpoints(self._run)
            if not steps:
                return
            command = self._train("--resume", str(self._run), "--steps", str(steps[0]))
        self._process = TrainingProcess(command, self.options.environment, self._exited)

    def _exited(self, process: TrainingProcess) -> None:
        with self._lock:
            if process is self._process and self._next and (process.code == 0 or process.stopped):
                self._execute(self._next)
            elif process is self._process:
                self._next.clear()

    # Status

    def status(self) -> Training:
        with self._lock:
            run, process, following = self._run, self._process, self._next == [["finish"]]
        return Training(
            disabled="",
            runs=str(self.options.runs),
            files=self._files(),
            paused=self._paused(),
            run=self._describe(run, process, following) if run is not None else None,
        )

    @property
    def run(self) -> Path:
        if self._run is None:
            raise ApiError(404, "no training has been started", "start one first")
        return self._run

    def _describe(self, run: Path, process: TrainingProcess | None, finishing: bool) -> TrainingRun:
        log = RunLog.load(run) if (run / "config.toml").is_file() else None
        own = process is not None and process.code is None
        running = own or finishing or is_locked(run)
        state: TrainingState
        if finishing or (own and process is not None and "--steps" in process.arguments):
            state = "finishing"
        elif running:
            state = "training" if log is not None and log.step else "preparing"
        elif log is not None and log.finished:
            state = "finished"
        elif process is not None and process.code and not process.stopped:
            state = "failed"
        else:
            state = "paused" if _checkpoints(run) else "stopped"
        return TrainingRun(
            name=run.name,
            directory=str(run),
            state=state,
            own=process is not None and state != "finished",
            model=self._model(run) if state == "finished" else None,
            command=_command_line(process),
            message=process.message if process is not None else "",
            step=log.step if log else 0,
            seconds=log.seconds if log else 0.0,
            progress=_progress(log),
            steps=_training_steps(log),
            validations=validations(log),
            steps_with_weights=steps_with_weights(run) if log else [],
        )

    def _model(self, run: Path) -> str:
        with self._lock:
            if run not in self._models:
                self._models[run] = self._on_finished(run)
            return self._models[run]

    def _paused(self) -> list[str]:
        """Names the runs in the directory of runs that can be resumed."""
        if not self.options.runs.is_dir():
            return []
        return sorted(run.name for run in self.options.runs.iterdir() if _is_paused(run))

    def _files(self) -> list[TrainingFile]:
        data = self.options.data
        if data is None:
            return []
        return [
            TrainingFile(name=str(path.relative_to(data)), bytes=path.stat().st_size)
            for path in itertools.islice(_visible_files(data), MAX_FILES)
        ]


def _visible_files(directory: Path) -> Iterator[Path]:
    """Yields the files of a directory in order; lazily, since there may be a million."""
    for folder, folders, names in os.walk(directory):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        paths = (Path(folder, name) for name in sorted(names) if not name.startswith("."))
        yield from (path for path in paths if path.is_file())


def _is_paused(run: Path) -> bool:
    """Whether a run has been saved, and neither trains nor has finished; reads no log, which may be long."""
    steps = _checkpoints(run)
    return bool(steps) and not is_locked(run) and steps[0] > trained_so_far(load_scores(run))[0]


def _checkpoints(run: Path) -> list[int]:
    """Lists the steps of the checkpoints, newest first."""
    return [checkpoint.step for checkpoint in CheckpointManager(run / "checkpoints").list_files("step")]


def _progress(log: RunLog | None) -> float:
    if log is None or not log.steps:
        return 0.0
    return 1.0 if log.finished else log.steps[-1].get("progress") or 0.0


def _training_steps(log: RunLog | None) -> list[TrainingStep]:
    return [
        TrainingStep(
            step=row["step"],
            loss=row["loss"],
            lr=row.get("lr") or 0.0,
            tokens_per_second=row.get("tokens_per_second") or 0.0,
        )
        for row in (downsample(log.steps) if log else [])
    ]


def validations(log: RunLog | None) -> list[ValidationPoint]:
    rows = downsample(log.validations) if log else []
    return [ValidationPoint(step=row["step"], loss=row["loss"], bleu=row.get("bleu")) for row in rows]


def _command_line(process: TrainingProcess | None) -> str:
    """The command as a user would type it, without what only the page needs."""
    if process is None:
        return ""
    words = [word for word in process.arguments if word != "--stop-on-eof"]
    return " ".join(["seq2see", *(f'"{word}"' if " " in word else word for word in words)])
