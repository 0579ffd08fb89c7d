"""The command line, run in processes of their own."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import get_args, get_type_hints

import pytest
import typer
from typer.models import OptionInfo

import seq2see
from seq2see.cli import _share_cores
from seq2see.cli.options import CommandGroup
from seq2see.config.extensions import extension_names, load_extension
from tests.commands import COLD, Command
from tests.commands import run_command as run
from tests.waiting import wait_until


def functions() -> Iterator[Callable[..., object]]:
    """Yields the functions of all commands, with one parameter for each option."""
    for name in extension_names("commands"):
        found = load_extension("commands", name)
        group = found if isinstance(found, typer.Typer) else CommandGroup("", found)
        yield from (command.callback for command in group.registered_commands if command.callback is not None)


def test_options_are_named_alike_by_every_version_of_typer() -> None:
    """Some name an option like its metavar if that is the parameter's name in capitals: --DEVICE."""
    commands = list(functions())
    assert len(commands) > 20
    for command in commands:
        for name, hint in get_type_hints(command, include_extras=True).items():
            for option in get_args(hint)[1:]:
                if isinstance(option, OptionInfo) and option.metavar == name.upper():
                    declared = (option.default, *(option.param_decls or ()))
                    assert any(str(each).startswith("--") for each in declared), f"{command.__name__} --{name}"


def test_a_command_imports_no_other() -> None:
    code = (
        "import sys; from seq2see.cli import app; import typer; command = typer.main.get_command(app); "
        "assert command.commands['embed'].name == 'embed'; "
        "print(*(name for name in sys.modules if name.startswith('seq2see.cli.')))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "seq2see.cli.embed" in found and "seq2see.cli.translate" not in found and "seq2see.cli.train" not in found


def test_version_and_help() -> None:
    version = subprocess.run([*COLD, "--version"], capture_output=True, text=True, check=True)
    assert version.stdout == f"seq2see {seq2see.__version__}\n"
    assert "model" in subprocess.run([*COLD, "--help"], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(
    ("load", "given", "policy"), [(0.1, None, None), (8.0, None, "passive"), (8.0, "active", "active")]
)
def test_threads_wait_asleep_on_busy_cores(
    load: float, given: str | None, policy: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(os, "environ", {"OMP_WAIT_POLICY": given} if given else {})
    _share_cores()
    assert os.environ.get("OMP_WAIT_POLICY") == policy


def test_model_shows_every_part_with_shape_and_count() -> None:
    output = run("model", "paper-base").stdout
    for text in (
        "63,082,496",
        "37,000 × 512",
        "6 × block",
        "queries_keys_values",
        "1,536 × 512 + 1,536",
        "keys_values",
    ):
        assert text in output, output


def test_model_json_parameter_counts_add_up() -> None:
    tree = json.loads(run("model", "paper-base", "--set", "model.width=256", "--json").stdout)

    def check(part: dict[str, object]) -> int:
        children = part["children"]
        assert isinstance(children, list)
        if children:
            assert part["parameters"] == sum(map(check, children)) * int(str(part["repeats"]))
        return int(str(part["parameters"]))

    assert (
        check(tree)
        == tree["parameters"]
        == 37000 * 256 + 6 * (263168 + 1050880 + 1024) + 6 * (2 * 263168 + 1050880 + 1536)
    )


def test_model_trace_shows_every_step() -> None:
    output = run("model", "tiny", "--trace", "--set", "model.decoder_layers=1").stdout
    for text in (
        "cross.weights",
        "4 × 4–6 × 3–4",
        "masked.scaled",
        "feed_forward.post_activation",
        "decoder.vectors",
        "logits",
        "std",
    ):
        assert text in output, output
    assert "encoder.final_norm.output" in run("model", "tiny", "--trace", "--set", "model.norm_first=true").stdout


def test_a_trained_model_is_not_traced_as_an_untrained_one() -> None:
    done = run("model", "en-fr", "--trace")
    assert done.returncode == 2 and 'use "seq2see explain"' in done.stderr


@pytest.mark.parametrize("limit", ["--steps", "--epochs", "--minutes"])
def test_a_training_without_length_is_refused(limit: str, tmp_path: Path) -> None:
    done = run("train", "--text", "book.txt", "--out", str(tmp_path / "run"), limit, "0")
    assert done.returncode == 2 and f"{limit} 0 would not train at all" in done.stderr


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        (("--text", "a.txt", "--src", "a.en", "--tgt", "a.hi"), "one run trains one kind of model"),
        (("--src", "a.en", "--tgt", "a.hi", "--valid-sounds", "a.tsv"), "do not fit a training on --src and --tgt"),
        (("--src", "a.en", "--tgt", "a.hi", "--valid-src", "v.en"), "--valid-tgt"),
    ],
)
def test_files_that_do_not_fit_are_refused_before_anything_is_measured(
    files: tuple[str, ...], problem: str, tmp_path: Path
) -> None:
    done = run("train", *files, "--out", str(tmp_path / "run"))
    assert done.returncode in (1, 2) and problem in done.stderr and len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "run").exists()


def test_sigterm_leaves_no_temporary_file(tmp_path: Path) -> None:
    (tmp_path / "long.txt").write_text("I like apples. " * 3000)
    process = Command("translate", "--to", "fr", "long.txt", "--out", "long.fr", cwd=tmp_path)
    wait_until(lambda: list(tmp_path.glob(".*.part")) or process.poll() is not None, interval=0.0005)
    assert list(tmp_path.glob(".*.part")), "the command ended too early"
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 128 + signal.SIGTERM
    assert [path.name for path in tmp_path.iterdir()] == ["long.txt"]


def test_presets_are_listed() -> None:
    assert "paper-base" in run("model").stdout
    assert set(json.loads(run("model", "--json").stdout)["presets"]) >= {
        "tiny",
        "small",
        "paper-base",
        "paper-big",
        "gpt2",
    }


def test_model_toml_reads_back_as_the_preset() -> None:
    from seq2see.config import Config
    from seq2see.train.presets import preset

    assert Config.from_toml(run("model", "gpt2", "--toml").stdout).model == preset("gpt2")


def test_wrong_usage_prints_one_line_and_exits_with_2() -> None:
    for arguments in (("model", "papr-base"), ("model", "tiny", "--set", "model.heads=3")):
        failed = run(*arguments)
        assert failed.returncode == 2
        assert failed.stdout == ""
        assert failed.stderr.count("\n") == 1
        assert "Traceback" not in failed.stderr
    assert run("model", "--nonsense").returncode == 2
    assert run("nonsense").returncode == 2


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["model.vocab_size=2"], "set model.vocab_size to at least as many"),
        (["model.width=2", "model.heads=1", "model.positions=sinusoidal-fairseq"], "must be at least 4"),
    ],
)
def test_sizes_too_small_to_trace_are_one_line(settings: list[str], message: str) -> None:
    done = run("model", "quick", "--trace", *(word for setting in settings for word in ("--set", setting)))
    assert done.returncode != 0 and message in done.stderr and done.stderr.count("\n") == 1
