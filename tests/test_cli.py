"""The command line, run as a person runs it."""

import json
import subprocess
import sys

import seq2see


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "seq2see", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_version_and_help() -> None:
    assert run("--version").stdout == f"seq2see {seq2see.__version__}\n"
    helped = run("--help")
    assert helped.returncode == 0
    assert "model" in helped.stdout


def test_a_preset_is_shown_with_every_part_shape_and_count() -> None:
    shown = run("model", "paper-base").stdout
    for fact in (
        "63,082,496",
        "37,000 × 512",
        "6 × block",
        "queries_keys_values",
        "1,536 × 512 + 1,536",
        "keys_values",
    ):
        assert fact in shown


def test_a_program_can_read_the_parts_and_they_add_up() -> None:
    tree = json.loads(run("model", "paper-base", "--set", "model.width=256", "--json").stdout)

    def check(part: dict[str, object]) -> int:
        children = part["parts"]
        assert isinstance(children, list)
        if children:
            assert part["parameters"] == sum(map(check, children)) * int(str(part["times"]))
        return int(str(part["parameters"]))

    assert (
        check(tree)
        == tree["parameters"]
        == 37000 * 256 + 6 * (263168 + 1050880 + 1024) + 6 * (2 * 263168 + 1050880 + 1536)
    )


def test_one_pass_is_told_step_by_step() -> None:
    told = run("model", "tiny", "--trace", "--set", "model.decoder_layers=1").stdout
    for fact in (
        "cross.weights",
        "2 × 4 × 6 × 4",
        "masked.scaled",
        "feed_forward.after",
        "decoder.vectors",
        "logits",
        "spread",
    ):
        assert fact in told
    assert "encoder.final_norm.output" in run("model", "tiny", "--trace", "--set", "model.norm_first=true").stdout


def test_presets_are_listed() -> None:
    assert "paper-base" in run("model").stdout
    assert set(json.loads(run("model", "--json").stdout)) >= {"tiny", "small", "paper-base", "paper-big", "gpt2"}


def test_settings_print_as_a_file_that_reads_back() -> None:
    from seq2see.config import Config
    from seq2see.presets import preset

    assert Config.from_toml(run("model", "gpt2", "--toml").stdout).model == preset("gpt2")


def test_wrong_usage_is_one_line_and_exit_code_two() -> None:
    for arguments in (("model", "papr-base"), ("model", "tiny", "--set", "model.heads=3")):
        failed = run(*arguments)
        assert failed.returncode == 2
        assert failed.stdout == ""
        assert failed.stderr.count("\n") == 1
        assert "Traceback" not in failed.stderr
    assert run("model", "--nonsense").returncode == 2
    assert run("nonsense").returncode == 2
