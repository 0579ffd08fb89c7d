"""`seq2see` commands in processes forked from one that has imported everything, which takes longer than most commands run.

A forked command has its own streams, directory and environment and ends like any Python process; it computes in one thread.
A few tests start Python anew instead: those of imports, of closed streams, and one of each kind of command.
"""

import atexit
import fcntl
import gc
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import threading
import traceback
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import IO, Any

from tests.corpora import SINGLE_THREAD_ENV
from tests.waiting import HANG

ROOT = Path(__file__).parents[1]
COLD = [sys.executable, "-m", "seq2see"]  # in a new process of Python
Stream = int | IO[Any]  # a file descriptor or a file
MEASURED = "COVERAGE_PROCESS_START"  # the lines that a process runs are measured: tests/mutants.py
CLOSED = -1  # as by `>&-` in a shell


class Command:
    """A running command, or a program in Python, with methods of subprocess.Popen. Streams not given are /dev/null.

    A command with a terminal as its input has it as the controlling terminal, so that closing it sends SIGHUP.
    """

    def __init__(
        self,
        *arguments: object,
        stdin: Stream | None = None,
        stdout: Stream | None = None,
        stderr: Stream | None = None,
        cwd: Path = ROOT,
        env: Mapping[str, str] = os.environ,
        terminal: bool = False,
        program: Path | None = None,
    ) -> None:
        self.returncode: int | None = None
        reader, writer = os.pipe()
        self._messages = open(reader, encoding="utf-8")  # noqa: SIM115  (its id, and its exit code when it has ended)
        closed = [number for number, stream in enumerate((stdin, stdout, stderr)) if stream == CLOSED]
        request = {
            "argv": [str(program or "seq2see"), *map(str, arguments)],
            "cwd": str(cwd),
            "env": dict(env),
            "closed": closed,
            "terminal": terminal,
            "program": program and str(program),
        }
        with open(os.devnull, "r+b") as null, tempfile.TemporaryFile() as file:
            file.write(json.dumps(request).encode())
            file.seek(0)
            streams = [stream if stream not in (None, CLOSED) else null for stream in (stdin, stdout, stderr)]
            numbers = [stream if isinstance(stream, int) else stream.fileno() for stream in streams]
            socket.send_fds(_server(), [b"-"], [file.fileno(), writer, *numbers])
            os.close(writer)
            self.pid = int(self._messages.readline())

    def wait(self, timeout: float = HANG) -> int:
        if self.returncode is None:
            if not select.select([self._messages], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("seq2see", timeout)
            self.returncode = int(self._messages.readline())
            self._messages.close()
        return self.returncode

    def poll(self) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)


def run_command(
    *arguments: object, given: bytes = b"", stdout: Stream | None = None, timeout: float = HANG, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end, like subprocess.run with capture_output."""
    with ExitStack() as stack:
        stdin, out, err = (stack.enter_context(tempfile.TemporaryFile()) for _ in range(3))
        stdin.write(given)
        stdin.seek(0)
        command = Command(*arguments, stdin=stdin, stdout=out if stdout is None else stdout, stderr=err, **options)
        try:
            code = command.wait(timeout)
        except subprocess.TimeoutExpired:
            command.send_signal(signal.SIGKILL)
            raise
        for file in (out, err):
            file.seek(0)
        return subprocess.CompletedProcess(
            [*map(str, arguments)], code, *(file.read().decode(errors="replace") for file in (out, err))
        )


@cache
def _server() -> socket.socket:
    ours, theirs = socket.socketpair()
    code = f"from tests.commands import serve; serve({theirs.fileno()})"
    environment = {name: value for name, value in SINGLE_THREAD_ENV.items() if name != MEASURED}
    process = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, env=environment, pass_fds=[theirs.fileno()])
    theirs.close()

    def stop() -> None:
        ours.close()
        process.wait(HANG)

    atexit.register(stop)
    return ours


def import_everything() -> None:
    import seq2see

    for module in pkgutil.walk_packages(seq2see.__path__, "seq2see."):
        with suppress(ImportError):  # of an optional package
            if not module.name.endswith("__main__"):
                import_module(module.name)


def serve(connection: int) -> None:
    """Forks a process for each request that comes over a socket, until it is closed."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # ignored under nohup
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C in the tests' terminal ends the tests, and they end this process
    import_everything()
    gc.freeze()  # what collections do not touch stays shared
    requests = socket.socket(fileno=connection)
    running: dict[int, int] = {}  # a process, and the pipe to who started it

    def tell_exit_codes(*_: object) -> None:
        while running:
            child, status = os.waitpid(-1, os.WNOHANG)
            if not child:
                return
            pipe = running.pop(child)
            with suppress(BrokenPipeError):
                os.write(pipe, f"{os.waitstatus_to_exitcode(status)}\n".encode())
            os.close(pipe)

    signal.signal(signal.SIGCHLD, tell_exit_codes)
    while descriptors := socket.recv_fds(requests, 1, 5)[1]:
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
        child = os.fork()
        if not child:
            requests.close()
            _run(*descriptors)
        file, pipe, *streams = descriptors
        os.write(pipe, f"{child}\n".encode())
        running[child] = pipe
        for number in (file, *streams):
            os.close(number)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])


def _run(file: int, pipe: int, *streams: int) -> None:
    from seq2see.cli import main

    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
    with open(file, "rb") as content:
        request = json.load(content)
    os.close(pipe)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    if request["terminal"]:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    if MEASURED in os.environ:
        import coverage

        coverage.process_startup()
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
    for number in request["closed"]:
        os.close(number)
        setattr(sys, ("stdin", "stdout", "stderr")[number], None)
    sys.argv = request["argv"]
    code: Any = 0
    try:
        if request["program"]:
            runpy.run_path(request["program"], run_name="__main__")
        else:
            main()
    except SystemExit as end:
        code = end.code or 0
    except BaseException:  # not a failure that a command reports
        traceback.print_exc()
        code = 1
    if threading.active_count() > 1:
        sys.exit(code)
    # Tearing Python down would take ten times as long as most commands: it touches every module.
    atexit._run_exitfuncs()
    sys.stderr.flush()
    os._exit(code)
