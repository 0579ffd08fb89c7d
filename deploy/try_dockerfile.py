"""Runs the commands of the Dockerfile where there is no Docker: in copies of a clean root, one per stage. Needs root rights.

    debootstrap --variant=minbase --include=python3,python3-venv,python-is-python3,ca-certificates bookworm base
    python deploy/try_dockerfile.py base image [--build-arg TORCH_INDEX=URL] [--build-file FILE:PATH ...]

The base stands for `FROM python:3.11-slim`. The last stage becomes the directory `image`, whose size is printed. Its command is
run with `chroot --userspec=seq2see image …`. --build-file copies a file or folder into all stages but the last: a pip.conf.
"""

import argparse
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

HERE = Path(__file__).parent


class Stage:
    """A root directory, and the environment of its commands."""

    def __init__(self, base: Path, root: Path) -> None:
        subprocess.run(["cp", "-a", "--reflink=auto", base, root], check=True)
        self.root = root
        self.variables = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"}
        self.user = ""

    def run(self, command: str) -> None:
        proc = self.root / "proc"
        shutil.copyfile("/etc/resolv.conf", self.root / "etc/resolv.conf")
        subprocess.run(["mount", "-t", "proc", "proc", proc], check=True)
        try:
            user = [f"--userspec={self.user}"] if self.user else []
            subprocess.run(["chroot", *user, self.root, "/bin/sh", "-ec", command], env=self.variables, check=True)
        finally:
            subprocess.run(["umount", proc], check=True)

    def copy(self, source: Path, target: str) -> None:
        destination = self.root / target.lstrip("/")
        if target.endswith("/"):
            destination = destination / source.name
        destination.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["cp", "-a", f"{source}/." if source.is_dir() else source, destination], check=True)


def instructions(text: str) -> list[tuple[str, str]]:
    """Returns the instructions of a Dockerfile with their arguments."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    return [(name.upper(), rest) for name, rest in (line.split(maxsplit=1) for line in joined.splitlines())]


def build(base: Path, out: Path, arguments: dict[str, str], files: list[str]) -> Stage:
    steps = instructions((HERE / "Dockerfile").read_text())
    count = sum(name == "FROM" for name, _ in steps)
    stages: dict[str, Stage] = {}
    stage = None
    for name, rest in steps:
        print(f"{name} {rest}", flush=True)
        if name == "FROM":
            label = rest.partition(" AS ")[2] or str(len(stages))
            last = len(stages) == count - 1
            stage = stages[label] = Stage(base, out if last else out.with_name(f"{out.name}.{label}"))
            for source, _, target in () if last else (each.partition(":") for each in files):
                (stage.root / target.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
                stage.copy(Path(source), target)
            continue
        assert stage is not None
        if name == "ARG":
            key, _, default = rest.partition("=")
            stage.variables[key] = arguments.get(key, default.strip('"'))
        elif name == "ENV":
            for key, value in (word.split("=", 1) for word in shlex.split(rest)):
                stage.variables[key] = value.replace("$PATH", stage.variables["PATH"])
        elif name == "RUN":
            stage.run(rest)
        elif name == "USER":
            stage.user = rest
        elif name == "COPY":
            words = rest.split()
            origin = next((stages[word[7:]].root for word in words if word.startswith("--from=")), HERE.parent)
            *sources, target = (word for word in words if not word.startswith("--"))
            for source in sources:
                stage.copy(origin / source.lstrip("/"), target)
        elif name not in ("WORKDIR", "EXPOSE", "HEALTHCHECK", "STOPSIGNAL", "ENTRYPOINT", "CMD"):
            raise SystemExit(f"unknown instruction {name}")
    assert stage is not None
    return stage


def megabytes(folder: Path) -> int:
    size = 0
    for parent, folders, names in os.walk(folder):
        size += sum(os.lstat(os.path.join(parent, name)).st_blocks * 512 for name in [*folders, *names])
    return round(size / 1e6)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base", type=Path)
    parser.add_argument("image", type=Path)
    parser.add_argument("--build-arg", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--build-file", action="append", default=[], metavar="FILE:PATH")
    options = parser.parse_args()
    arguments = dict(each.split("=", 1) for each in options.build_arg)
    stage = build(options.base.resolve(), options.image.resolve(), arguments, options.build_file)
    print(f"{options.image}: {megabytes(stage.root)} MB, of which the base has {megabytes(options.base)} MB")


if __name__ == "__main__":
    main()
