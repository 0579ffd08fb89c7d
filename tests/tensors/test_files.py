"""Input and output files: links, devices, pipes, full disks, closed outputs; always one line, never a traceback."""

import os
import stat
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from seq2see.cli import app
from seq2see.errors import UserError
from seq2see.storage.bundled import GRAMMAR
from seq2see.tensors.files import atomic_write, file_lock, new_directory, write_text
from tests.commands import CLOSED, COLD, run_command

needs_dev_full = pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has /dev/full")


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inputs")
    (folder / "a.en").write_text("I like tea.\nWe are friends.\n")
    (folder / "a.hi").write_text("मुझे चाय पसंद है।\nहम दोस्त हैं।\n")
    (folder / "a.md").write_text("# I like tea.\n")
    (folder / "text.txt").write_text("the cat likes the dog and the dog likes the cat\n" * 40)
    (folder / "run").mkdir()
    (folder / "run" / "config.toml").write_text("")
    fit = ["vectors", "fit", "--method", "one-hot", "--text", str(folder / "text.txt")]
    assert CliRunner().invoke(app, [*fit, "--out", str(folder / "v.vec")]).exit_code == 0
    return folder


# Each command that writes one file, with a suffix that it accepts.
WRITERS: list[tuple[Callable[[Path], Sequence[str | Path]], str]] = [
    (lambda folder: ["translate", "--model", GRAMMAR, "I like tea."], ".txt"),
    (lambda folder: ["translate", "--model", GRAMMAR, folder / "a.md"], ".md"),
    (lambda folder: ["explain", "--model", GRAMMAR, "I like tea."], ".json"),
    (lambda folder: ["explain", "--model", GRAMMAR, "I like tea."], ".html"),
    (lambda folder: ["explain", "--model", GRAMMAR, "I like tea."], ".safetensors"),
    (lambda folder: ["explain", "--model", GRAMMAR, "I like tea."], ".svg"),
    (lambda folder: ["evaluate", "--hyp", folder / "a.hi", "--ref", folder / "a.hi"], ".png"),
    (lambda folder: ["runs", folder / "run"], ".png"),
    (lambda folder: ["lesson", "lookup"], ".png"),
    (lambda folder: ["vectors", "fit", "--method", "one-hot", "--text", folder / "text.txt"], ".safetensors"),
    (lambda folder: ["vectors", "fit", "--method", "one-hot", "--text", folder / "text.txt"], ".vec"),
    (lambda folder: ["vectors", "plot", "--vectors", folder / "v.vec"], ".svg"),
]


@pytest.mark.parametrize(("command", "suffix"), WRITERS)
def test_output_files_keep_links_and_devices_and_need_a_directory(
    command: Callable[[Path], Sequence[str | Path]], suffix: str, inputs: Path, tmp_path: Path
) -> None:
    def run(out: Path) -> BaseException | None:
        return CliRunner().invoke(app, [*map(str, command(inputs)), "--out", str(out)]).exception

    (tmp_path / "real").mkdir()
    target, link, null = tmp_path / "real" / f"file{suffix}", tmp_path / f"link{suffix}", tmp_path / f"null{suffix}"
    target.write_text("old")
    link.symlink_to(Path("real", target.name))
    null.symlink_to(os.devnull)
    assert run(link) is None
    assert link.is_symlink() and not target.is_symlink()
    assert target.read_bytes() not in (b"", b"old")
    assert run(null) is None
    assert null.is_symlink() and stat.S_ISCHR(os.stat(os.devnull).st_mode)
    error = run(tmp_path / "missing" / f"file{suffix}")
    assert isinstance(error, UserError) and "there is no directory" in str(error) and "\n" not in str(error)
    (tmp_path / f"directory{suffix}").mkdir()
    if suffix != ".md":  # documents are translated into a directory
        assert isinstance(run(tmp_path / f"directory{suffix}"), UserError)
    assert sorted(os.listdir(tmp_path)) == sorted([f"directory{suffix}", link.name, null.name, "real"])
    assert os.listdir(tmp_path / "real") == [target.name]


MISSING = "no-such-input"


@pytest.mark.parametrize(
    "command",
    [
        f"explain tea --model {MISSING} --out",
        f"lesson encoder --model {MISSING} --out",
        f"evaluate --hyp {MISSING} --ref {MISSING} --out",
        f"evaluate --text {MISSING} --model {MISSING} --out",
        f"runs {MISSING} --out",
        f"vectors plot --vectors {MISSING} --out",
        f"vectors convert {MISSING}",
    ],
)
def test_an_output_that_cannot_be_written_is_refused_before_anything_is_read(command: str, tmp_path: Path) -> None:
    def error(out: str) -> str:
        return str(CliRunner().invoke(app, [*command.split(), str(tmp_path / out)]).exception)

    assert 'unknown file type "m.doc": use one of .' in error("m.doc")
    suffix = "vec" if "convert" in command else "png"
    assert "there is no directory" in error(f"missing/m.{suffix}")
    assert MISSING in error(f"m.{suffix}")


def test_several_documents_need_the_parent_of_their_directory(inputs: Path, tmp_path: Path) -> None:
    (tmp_path / "b.md").write_text("# Thank you\n")
    command = ["translate", "--model", GRAMMAR, str(inputs / "a.md"), str(tmp_path / "b.md"), "--out"]
    result = CliRunner().invoke(app, [*command, str(tmp_path / "no" / "such")])
    assert isinstance(result.exception, OSError) and not (tmp_path / "no").exists()
    assert CliRunner().invoke(app, [*command, str(tmp_path / "hi")]).exit_code == 0
    assert sorted(os.listdir(tmp_path / "hi")) == ["a.md", "b.md"]


def test_a_link_to_a_file_that_does_not_exist_yet_creates_it(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("new")
    with atomic_write(tmp_path / "link") as part:
        part.write_text("text")
    assert (tmp_path / "new").read_text() == "text" and (tmp_path / "link").is_symlink()
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(UserError, match="symbolic links"), atomic_write(tmp_path / "loop"):
        pass


def test_a_failed_write_leaves_the_old_file_and_names_it(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")
    with pytest.raises(OSError, match="No space left") as caught, atomic_write(tmp_path / "a") as part:  # noqa: PT012
        part.write_text("new")
        raise OSError(28, "No space left on device")
    assert caught.value.filename == str(tmp_path / "a")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("a", "old")]


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664, 0o400])
def test_a_replaced_file_keeps_its_mode_and_owner(mode: int, tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("old")
    path.chmod(mode)
    if os.geteuid() == 0:
        os.chown(path, 12345, 54321)
    before = path.stat()
    with atomic_write(path) as part:
        part.write_text("new")
        assert part.stat().st_mode & 0o077 == 0
    after = path.stat()
    assert path.read_text() == "new"
    assert (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, before.st_uid, before.st_gid)


@pytest.mark.parametrize("umask", [0o002, 0o022, 0o077])
def test_new_files_follow_the_umask(umask: int, tmp_path: Path) -> None:
    (tmp_path / "private").mkdir(mode=0o700)
    old = os.umask(umask)
    try:
        write_text(tmp_path / "a", "new")
        with file_lock(tmp_path / "lock"):
            pass
        for folder in ("new", "private"):
            with new_directory(tmp_path / folder):
                pass
    finally:
        os.umask(old)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes["a"] == modes["lock"] == 0o666 & ~umask
    assert (modes["new"], modes["private"]) == (0o777 & ~umask, 0o700)


def fails_in_one_line(arguments: Sequence[str | Path], message: str, **options: Any) -> None:
    done = run_command(*arguments, **options)
    assert done.returncode in (1, 2), done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    assert message in done.stderr, done.stderr


PRINTERS = [
    ["--version"],
    ["--help"],
    ["model", "tiny"],
    ["model", "--json"],
    ["lesson"],
    ["runs", "run", "--json"],
    ["data", "check", "--src", "a.en", "--tgt", "a.hi"],
    ["translate", "--model", GRAMMAR, "I like tea."],
    ["vectors", "nearest", "cat", "--vectors", "v.vec"],
]


@needs_dev_full
@pytest.mark.parametrize("arguments", PRINTERS, ids=" ".join)
def test_a_full_standard_output_is_one_line(arguments: list[str], inputs: Path) -> None:
    with open("/dev/full", "w") as full:
        fails_in_one_line(arguments, "No space left on device", stdout=full, cwd=inputs)


@pytest.mark.parametrize("arguments", PRINTERS[2:], ids=" ".join)
def test_a_closed_standard_output_is_silent(arguments: list[str], inputs: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    broken = run_command(*arguments, stdout=writer, cwd=inputs)
    os.close(writer)
    assert (broken.returncode, broken.stderr) == (1, "")
    closed = run_command(*arguments, stdout=CLOSED, cwd=inputs)
    assert (closed.returncode, closed.stderr) == (0, "")


ASCII = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}


@pytest.mark.parametrize("locale", [{}, ASCII], ids=["here", "ASCII"])
def test_a_closed_standard_output_is_silent_from_the_start(locale: dict[str, str], inputs: Path) -> None:
    shell = ["sh", "-c", 'exec "$@" >&-', "sh", *COLD, "model", "tiny"]
    closed = subprocess.run(shell, stderr=subprocess.PIPE, check=False, cwd=inputs, env=os.environ | locale)
    assert (closed.returncode, closed.stderr) == (0, b"")


@needs_dev_full
def test_vectors_on_a_full_or_read_only_disk(inputs: Path, tmp_path: Path) -> None:
    (tmp_path / "v.safetensors").symlink_to("/dev/full")
    fit: list[str | Path] = ["vectors", "fit", "--method", "one-hot", "--text", inputs / "text.txt", "--out"]
    fails_in_one_line([*fit, tmp_path / "v.safetensors"], "v.safetensors: No space left on device")
    fails_in_one_line([*fit, "/proc/v.vec"], "/proc/v.vec: ")  # not even root can create a file there


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["translate", "--model", GRAMMAR, "tea", "--device", "cpu:NUMBER"], "--device cannot be"),
        (["explain", "--model", GRAMMAR, "tea", "--ablate", "decoder.0.cross:NUMBER"], "is not a head"),
        (["data", "check", "--pairs", "numbers.tsv", "--columns", "NUMBER,1"], "has no column"),
        (["data", "check", "--pairs", "numbers.tsv", "--columns", "²,1"], "has no column"),
        (["evaluate", "--model", GRAMMAR, "--src", "a.tsv", "--ref", "a.jsonl"], "a number has thousands of digits"),
        (["vectors", "nearest", "x", "--vectors", "a.txt"], "expected a word and"),
        (["evaluate", "--model", GRAMMAR, "--src", "one.en", "--ref", "one.en", "--align", "a.align"], "is not a link"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value[:3]),
)
def test_numbers_with_more_digits_than_python_converts_are_one_line(
    arguments: list[str], message: str, tmp_path: Path
) -> None:
    number = "9" * 5000
    (tmp_path / "numbers.tsv").write_text("one\ttwo\n")
    (tmp_path / "one.en").write_text("tea\n")
    (tmp_path / "a.jsonl").write_text(f'{{"references": [{number}]}}\n')
    (tmp_path / "a.txt").write_text(f"{number} {number}\nx y\n")
    (tmp_path / "a.align").write_text(f"{number}-0\n")
    fails_in_one_line([word.replace("NUMBER", number) for word in arguments], message, cwd=tmp_path)


@pytest.mark.parametrize(
    "arguments",
    [
        "runs NAME",
        "data check --src NAME --tgt NAME",
        "data sample --out NAME",
        "translate --model NAME x",
        "train --config NAME --out x",
        "vectors nearest x -v NAME",
    ],
)
def test_a_name_too_long_is_one_line(arguments: str, tmp_path: Path) -> None:
    fails_in_one_line(arguments.replace("NAME", "x" * 300).split(), "File name too long", cwd=tmp_path)


def test_pipes_are_refused_where_a_file_is_read_more_than_once(inputs: Path, tmp_path: Path) -> None:
    for name in ("config.toml", "tokenizer.json", "v.safetensors", "a.tsv"):
        os.mkfifo(tmp_path / name)
    pipe = "is a pipe or a device"
    fails_in_one_line(["train", "--config", tmp_path / "config.toml", "--out", tmp_path / "run"], pipe)
    check: list[str | Path] = ["data", "check", "--src", inputs / "a.en", "--tgt", inputs / "a.hi"]
    fails_in_one_line([*check, "--tokenizer", tmp_path / "tokenizer.json"], pipe)
    fails_in_one_line(["vectors", "nearest", "cat", "--vectors", tmp_path / "v.safetensors"], pipe)
    fails_in_one_line(["data", "check", "--pairs", tmp_path / "a.tsv"], pipe)
