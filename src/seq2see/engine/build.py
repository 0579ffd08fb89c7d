"""Compiles `engine.c` into one library, once for each processor: `python -m seq2see.engine.build [SYSTEM …]`.

The compiler is the `ziglang` package, which also compiles for other systems, or else `cc`. A wheel brings its library; a
checkout builds it on first use, and again when the source has changed.
"""

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

SOURCE = Path(__file__).with_name("engine.c")
LIBRARIES = SOURCE.with_name("lib")
MAX_SECONDS = 600
X86 = {"plain": "x86-64", "avx2": "x86-64-v3", "avxvnni": "x86-64-v3+avxvnni", "avx512vnni": "x86-64-v4+avx512vnni"}
ARM = {"plain": "generic", "neon": "generic+dotprod"}
PROCESSORS = {"x86_64": X86, "aarch64": ARM}  # in the order of `seq2see_processors`, slowest first
TARGETS = {  # of zig; the oldest glibc of manylinux2014
    "linux-x86_64": "x86_64-linux-gnu.2.17",
    "linux-aarch64": "aarch64-linux-gnu.2.17",
    "darwin-x86_64": "x86_64-macos.11.0",
    "darwin-aarch64": "aarch64-macos.11.0",
    "win32-x86_64": "x86_64-windows-gnu",
}
FLAGS = [
    "-std=gnu11",
    "-O3",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fvisibility=hidden",
    "-Wall",
    "-Wextra",
    "-Werror",
]
SUFFIXES = {"linux": ".so", "darwin": ".dylib", "win32": ".dll"}


class BuildError(Exception):
    """There is no compiler for this system, or it failed."""


def machine() -> str:
    """The processor family: x86_64 or aarch64."""
    name = platform.machine().lower()
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(name, name)


def this_system() -> str:
    return f"{sys.platform}-{machine()}"


def library_path(system: str) -> Path:
    """Where the library of this source for a system such as "linux-x86_64" lies."""
    version = hashlib.sha256(SOURCE.read_bytes() + Path(__file__).read_bytes()).hexdigest()[:12]
    return LIBRARIES / f"engine-{system}-{version}{SUFFIXES.get(system.partition('-')[0], '.so')}"


def build(system: str = "", flags: list[str] | None = None, to: Path | None = None) -> Path:
    """Compiles the library for a system, this one by default, unless it is there; `flags` are added to the compiler's."""
    system = system or this_system()
    path = to or library_path(system)
    if path.exists():
        return path
    compiler, is_zig = _compiler(system)
    processors = PROCESSORS.get(system.partition("-")[2])
    if processors is None:
        raise BuildError(f"no code for the processors of {system}")
    path.parent.mkdir(exist_ok=True)
    options = [*compiler, *FLAGS, *(flags or []), *([] if system.startswith("win") else ["-fPIC"])]
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        objects = []
        for number, (name, features) in enumerate(processors.items()):
            objects.append(f"{name}.o")
            probe = [] if number else ["-DPROBE"]
            target = _processor_flags(features, is_zig)
            _run([*options, *target, *probe, f"-DPROCESSOR={name}", "-c", str(SOURCE), "-o", objects[-1]], folder)
        _run([*options, "-shared", *([] if flags else ["-s"]), *objects, "-o", path.name], folder)
        os.replace(Path(folder) / path.name, path)
    for old in path.parent.glob(f"engine-{system}-*") if to is None else ():
        if old != path:
            old.unlink(missing_ok=True)
    return path


def _compiler(system: str) -> tuple[list[str], bool]:
    """Returns the command of the compiler, and whether it is zig's."""
    if find_spec("ziglang") and system in TARGETS:
        return [sys.executable, "-m", "ziglang", "cc", "-target", TARGETS[system]], True
    if system == this_system() and (found := shutil.which("cc")):
        return [found, "-Wno-psabi"], False
    raise BuildError(f"no compiler for {system}: install ziglang with pip")


def _processor_flags(features: str, is_zig: bool) -> list[str]:
    name, *others = features.split("+")
    if is_zig:
        return [f"-mcpu={'+'.join([name.replace('-', '_'), *others])}"]
    if name == "generic":
        return [f"-march=armv8-a{'' if not others else '.2-a+dotprod'}".replace("armv8-a.2-a", "armv8.2-a")]
    return [f"-march={name}", *(f"-m{other}" for other in others)]


def _run(command: list[str], folder: str) -> None:
    """Runs the compiler in a folder, where its output goes: zig cannot write to a path that has a %."""
    environment = dict(os.environ)
    if not os.access(environment.get("HOME", ""), os.W_OK):  # where zig keeps what it compiled before
        environment.setdefault("ZIG_GLOBAL_CACHE_DIR", folder)
    try:
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=MAX_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildError(f"the compiler failed: {error}") from error
    if done.returncode:
        raise BuildError(f"the compiler failed:\n{done.stderr[-2000:]}")


if __name__ == "__main__":
    for each in sys.argv[1:] or [this_system()]:
        print(build(each))
