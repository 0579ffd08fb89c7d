"""Fuzzing of the command line: random options, damaged model directories and odd input files must never give a traceback.

    python -m tests.fuzz [--cases 5000] [--seed 1] [--only options directory input]

Every case runs `seq2see` in a forked process. It must end within the time limit with exit code 0, 1 or 2; a failure must say
why on standard error, and never with a traceback; and the bundled model must stay as it is. Cases follow from (seed, number),
so one can be repeated with `--first`.
"""

import argparse
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")
os.environ["MPLBACKEND"] = "agg"

import typer

from seq2see.cli import app
from seq2see.storage.bundled import BUNDLED, GRAMMAR
from tests.commands import run_command

TIME_LIMIT = 60  # seconds per case: far above what any of them takes, so that only a hang exceeds it
SKIPPED = {"explore"}  # runs until it is stopped

WORDS = [
    "cpu",
    "cuda",
    "int8",
    "bf16",
    "float32",
    "jsonl",
    "text",
    "json",
    "cosine",
    "dot",
    "word2vec",
    "one-hot",
    "bpe",
    "file",
    "tiny",
    "small",
    "gpt2",
    "encoder",
    "decoder.1.cross",
    "decoder.0.masked:1",
    "decoder.0.masked:" + "9" * 5000,
    "cpu:" + "9" * 5000,
    "9" * 5000 + ",²",
    "en,hi",
    "1,2",
    "tea",
    "mean",
]
STRINGS = [
    "",
    " ",
    "x",
    "-",
    "--",
    "💥",
    "\u202e",
    "a" * 300,
    "How are you?",
    "आप कैसे हैं?",
    "%s{}",
    "../..",
    "nan",
]
NUMBERS = [
    "0",
    "1",
    "2",
    "-1",
    "3.5",
    "1e400",
    "9" * 19,
    "9" * 40,
    "-" + "9" * 30,
    "9" * 5000,  # more digits than Python converts
    "0x10",
    "1_000",
    "١٢",
    "inf",
    "1e-320",
]
SETTINGS = [
    "train.lr=1",
    "model.width=7",
    "model.heads=0",
    "model.kind=rnn",
    "a.b=c",
    "train.steps=1",
    "=",
    "model.width=1e9",
    "text.vocab_size=99999999999999999999",
    "model.encoder_layers=1000000",
    "train.seed=-1",
    "model.dropout=nan",
]


@dataclass
class Case:
    arguments: list[str]
    stdin: bytes = b""


def files(folder: Path, draw: random.Random) -> list[str]:
    """Paths to odd files, among them some that do not exist."""
    samples = {
        "empty": b"",
        "text.en": b"How are you?\nThank you\nI am good\n",
        "text.hi": "आप कैसे हैं?\nधन्यवाद\nमैं अच्छा हूँ\n".encode(),
        "binary": draw.randbytes(2000),
        "latin1.txt": "é è\n".encode("latin-1"),
        "crlf.txt": b"a b\r\nc d\r\n",
        "bom.txt": b"\xef\xbb\xbfa\nb\n",
        "long.txt": b"word " * 20_000,
        "nul.txt": b"a\x00b\nc\n",
        "pairs.tsv": "1\tHow are you?\tआप कैसे हैं?\n".encode(),
        "one.tsv": b"only one column\n",
        "lines.jsonl": b'{"en": "Hello", "hi": 5}\n[1]\n{"en": 1e999}\n',
        "deep.jsonl": b"[" * 5000 + b"\n",
        "memory.tmx": b"<tmx><body><tu>",
        "bad.tmx": b'<?xml version="1.0" encoding="utf-77"?><tmx/>',
        "messages.po": b'msgid "a"\nmsgstr "b\n',
        "text.gz": b"\x1f\x8bnot gzip",
        "text.xz": b"\xfd7zXZ\x00broken",
        "vectors.safetensors": b"\x08\x00\x00\x00\x00\x00\x00\x00{}      ",
        "config.toml": b"[model]\nwidth = 'x'\n",
        "big.toml": b"[model]\nwidth = 99999999999999999999999999\n",
        "video.srt": b"1\n00:00:01 --> x\nHi\n",
        "page.md": b"# T\n\n| a |\n|-|\n| b |\n",
    }
    for name, content in samples.items():
        (folder / name).write_bytes(content)
    (folder / "folder").mkdir(exist_ok=True)
    if not (folder / "link").is_symlink():
        (folder / "link").symlink_to("text.en")
    paths = [str(folder / name) for name in [*samples, "folder", "link", "missing", "no/such/folder/file", "n" * 300]]
    return [*paths, "/dev/null", "/proc/self/mem", str(BUNDLED / GRAMMAR), ""]


def option_case(folder: Path, draw: random.Random) -> Case:
    """A command with a random choice of its options and random values."""
    names, command = draw.choice(COMMANDS)
    paths = files(folder, draw)
    arguments = list(names)
    for parameter in command.params:
        required = parameter.param_type_name == "argument"
        if not required and draw.random() > 0.22:
            continue
        if not required:
            arguments.append(draw.choice(parameter.opts))
        if getattr(parameter, "is_flag", False):
            continue
        for _ in range(draw.choice([1, 1, 1, 2, 3]) if required else 1):
            arguments.append(value(parameter, paths, draw, folder))
    if names == ("train",):  # no case may train for long
        arguments += ["--steps", "1", "--preset", "quick", "--set", "model.width=16", "--set", "train.batch_tokens=200"]
    if names == ("lesson",):
        arguments.insert(1, draw.choice([*STRINGS, *QUICK_LESSONS, *QUICK_LESSONS]))
    return Case(arguments, draw.choice([b"", b"How are you?\n", draw.randbytes(50)]))


def value(parameter: Any, paths: list[str], draw: random.Random, folder: Path) -> str:
    if "--out" in parameter.opts and draw.random() < 0.5:
        return str(folder / f"out-{draw.randrange(3)}{draw.choice(['', '.png', '.json', '.html', '.txt', '.svg'])}")
    if "--set" in parameter.opts:
        return draw.choice(SETTINGS)
    return draw.choice(draw.choice([STRINGS, NUMBERS, WORDS, paths, paths]))


MODEL_COMMANDS: list[list[str]] = [
    ["translate", "--model", "DIR", "How are you?"],
    ["translate", "--model", "DIR", "--beam", "3", "--format", "jsonl", "I like tea"],
    ["translate", "--model", "DIR", "--precision", "int8", "Thank you"],
    ["explain", "--model", "DIR", "How are you?"],
    ["explain", "--model", "DIR", "--json", "I am good"],
    ["generate", "--model", "DIR", "--prompt", "Once"],
    ["model", "DIR"],
    ["model", "DIR", "--verify"],
    ["runs", "DIR"],
    ["runs", "--json", "DIR"],
]


def directory_case(folder: Path, draw: random.Random) -> Case:
    """A model directory with one or two damaged files, and a command that loads it."""
    model = folder / "model"
    shutil.copytree(BUNDLED / GRAMMAR, model, ignore=shutil.ignore_patterns("snapshots"))
    for _ in range(draw.choice([1, 1, 2])):
        target = draw.choice(
            [path for path in sorted(model.iterdir()) if path.is_file() and not path.is_symlink()] or [model / "x"]
        )
        draw.choice(DAMAGES)(target, draw)
    return Case([str(model) if word == "DIR" else word for word in draw.choice(MODEL_COMMANDS)])


def truncate(path: Path, draw: random.Random) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: draw.randrange(len(content) + 1)])


def flip_bytes(path: Path, draw: random.Random) -> None:
    content = bytearray(path.read_bytes() or b" ")
    for _ in range(draw.choice([1, 10, 1000])):
        content[draw.randrange(min(len(content), draw.choice([200, 10**9])))] = draw.randrange(256)
    path.write_bytes(bytes(content))


def change_values(path: Path, draw: random.Random) -> None:
    """Replaces some numbers or strings of a text file."""
    if path.suffix == ".safetensors":
        flip_bytes(path, draw)
        return
    text = path.read_text(encoding="utf-8", errors="replace")
    found = list(re.finditer(r"-?\d+(\.\d+)?|\"[^\"\n]{0,30}\"|true|false", text))
    for match in draw.sample(found, min(len(found), draw.choice([1, 1, 3, 30]))):
        new = draw.choice(
            [
                "-1",
                "0",
                "99999999999999999999",
                "9" * 5000,
                "1e999",
                '""',
                '"x"',
                "null",
                "nan",
                "true",
                "[]",
                "{}",
                "1000000",
            ]
        )
        text = text.replace(match[0], new, 1) if draw.random() < 0.8 else text.replace(match[0], new)
    path.write_text(text, encoding="utf-8")


def delete(path: Path, draw: random.Random) -> None:
    path.unlink(missing_ok=True)


def append(path: Path, draw: random.Random) -> None:
    path.write_bytes(path.read_bytes() * draw.randrange(2) + draw.randbytes(draw.randrange(2) * 20))


def swap(path: Path, draw: random.Random) -> None:
    other = draw.choice([p for p in path.parent.iterdir() if p.is_file()] or [path])
    content = path.read_bytes()
    path.write_bytes(other.read_bytes())
    other.write_bytes(content)


def replace_by_other(path: Path, draw: random.Random) -> None:
    path.unlink(missing_ok=True)
    kind = draw.randrange(5)
    if kind == 0:
        path.mkdir()
    elif kind == 1:
        os.mkfifo(path)
    elif kind == 2:
        path.symlink_to("/dev/null")
    elif kind == 3:
        path.symlink_to(path.name)  # to itself
    else:
        path.write_bytes(draw.randbytes(draw.choice([0, 1, 8, 5000])))


DAMAGES: list[Callable[[Path, random.Random], None]] = [
    truncate,
    flip_bytes,
    change_values,
    change_values,
    change_values,
    swap,
    replace_by_other,
    delete,
    append,
]

INPUT_COMMANDS: list[list[str]] = [
    ["data", "check", "--src", "FILE", "--tgt", "FILE"],
    ["data", "check", "--pairs", "FILE"],
    ["data", "check", "--text", "FILE"],
    ["translate", "--model", GRAMMAR, "FILE", "--out", "OUT"],
    ["translate", "--model", GRAMMAR, "--format", "jsonl", "FILE"],
    ["evaluate", "--model", GRAMMAR, "--src", "FILE", "--ref", "FILE"],
    ["vectors", "fit", "--text", "FILE", "--out", "OUT", "--method", "one-hot"],
    ["vectors", "nearest", "--vectors", "FILE", "tea"],
    ["train", "--src", "FILE", "--tgt", "FILE", "--out", "OUT", "--steps", "1"],
    ["train", "--config", "FILE", "--out", "OUT"],
    ["train", "--resume", "FILE"],
    ["train", "--text", "FILE", "--out", "OUT", "--steps", "1", "--set", "model.width=16"],
    ["runs", "FILE"],
]


def input_case(folder: Path, draw: random.Random) -> Case:
    """A command that reads files, with odd ones."""
    paths = files(folder, draw)
    replaced = {"OUT": lambda: str(folder / f"out-{draw.randrange(100)}"), "FILE": lambda: draw.choice(paths)}
    return Case([replaced[word]() if word in replaced else word for word in draw.choice(INPUT_COMMANDS)])


KINDS = {"options": option_case, "directory": directory_case, "input": input_case}
QUICK_LESSONS = ["similarity", "context", "lookup", "norms", "positions", "scaling", "mask"]


def commands(command: Any, names: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:
    found = getattr(command, "commands", None)
    if found is None:
        return [(names, command)]
    return [entry for name in found if name not in SKIPPED for entry in commands(found[name], (*names, name))]


COMMANDS = commands(typer.main.get_command(app))


def run(case: Case, folder: Path) -> tuple[int, str]:
    """Runs the command; returns its exit code, or −1 for a hang, and what it said."""
    try:
        done = run_command(*case.arguments, given=case.stdin, cwd=folder, timeout=TIME_LIMIT)
    except subprocess.TimeoutExpired:
        return -1, "no answer within the time limit"
    return done.returncode, done.stderr or done.stdout  # a report, such as that of the data check


def fuzz(kinds: list[str], cases: int, seed: int, first: int = 0) -> tuple[Counter[str], list[str]]:
    """Runs cases; returns the count of exit codes and a description of each failure."""
    counts: Counter[str] = Counter()
    failures = []
    bundled = sorted(BUNDLED.rglob("*"))
    for number in range(first, first + cases):
        draw = random.Random(f"{seed} {number}")
        kind = kinds[number % len(kinds)]
        with tempfile.TemporaryDirectory() as name:
            case = KINDS[kind](Path(name), draw)
            code, error = run(case, Path(name))
        counts[f"{kind}: exit {code}"] += 1
        if code not in (0, 1, 2) or "Traceback (most recent call last)" in error or (code and not error.strip()):
            failures.append(f"case {number} ({kind}), exit {code}: seq2see {case.arguments}\n{error[-1500:]}")
    if sorted(BUNDLED.rglob("*")) != bundled:
        failures.append(f"the files in {BUNDLED} have changed")
    return counts, failures


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--only", nargs="*", choices=list(KINDS), default=list(KINDS))
    options = parser.parse_args()
    total, failed = fuzz(options.only, options.cases, options.seed, options.first)
    print(*failed, sep="\n\n")
    for label, count in sorted(total.items()):
        print(f"{count:6,}  {label}")
    print(f"{sum(total.values()):,} cases, {len(failed)} failures")
    sys.exit(bool(failed))
