"""Configuration: loading, saving, overrides, and error messages that name the remedy."""

import re
import subprocess
import sys
import tomllib
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seq2see.config import Config, DataConfig, ModelConfig, TextConfig, TrainConfig
from seq2see.config.toml import to_toml
from seq2see.errors import UsageError, UserError
from seq2see.train.presets import PRESETS, preset


def test_every_field_has_a_type_and_a_help_text() -> None:
    for section in (ModelConfig, DataConfig, TextConfig, TrainConfig):
        for field in fields(section):
            assert field.type
            assert re.match(r"[A-Z].{8,}\.$", field.metadata["help"]), field.name


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_survives_a_round_trip_through_toml(name: str, tmp_path: Path) -> None:
    config = Config(model=preset(name))
    (tmp_path / "config.toml").write_text(config.to_toml())
    assert Config.load(tmp_path / "config.toml") == config


@given(st.text())
def test_any_text_survives_a_round_trip_through_toml(text: str) -> None:
    assert tomllib.loads(f"value = {to_toml(text)}") == {"value": text}


def test_the_order_of_overrides_does_not_matter() -> None:
    one = Config().override(["model.width=300", "model.heads=6", "model.activation=gelu", "model.dropout=0"])
    two = Config().override(["model.heads=6", "model.dropout=0", 'model.activation="gelu"', "model.width = 300"])
    assert one == two
    assert (one.model.width, one.model.heads, one.model.activation, one.model.dropout) == (300, 6, "gelu", 0.0)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("model.widht=256", 'unknown key "model.widht": did you mean "model.width"?'),
        ("modle.width=256", 'unknown key "modle": did you mean "model"?'),
        ("width=3", 'unknown key "width": did you mean "model.width"?'),
        ("train.dropout=0", 'unknown key "train.dropout": did you mean "model.dropout"?'),
        ("vocab_size=9", 'unknown key "vocab_size": did you mean "text.vocab_size" or "model.vocab_size"?'),
        ("model.width=wide", 'model.width = "wide" must be an integer'),
        ("model.width=25.5", "model.width = 25.5 must be an integer"),
        ("model.width=true", "model.width = true must be an integer"),
        ("model.dropout=much", 'model.dropout = "much" must be a number'),
        ("model.norm_first=1", "model.norm_first = 1 must be true or false"),
        ("model.activation=rleu", 'model.activation = "rleu" is not a valid choice: did you mean "relu"?'),
        (
            "model.heads=7",
            "model.width = 512 is not divisible by model.heads = 7: use width 504 or 518, or set model.head_width",
        ),
        ("model.key_value_heads=3", "model.key_value_heads = 3 must divide model.heads = 8"),
        ("model.dropout=1.5", "model.dropout = 1.5 must be at least 0 and less than 1"),
        ("model.width=0", "model.width = 0 must be at least 1"),
        ("model.segments=-1", "model.segments = -1 must not be negative"),
        ("train.lr=0", "train.lr = 0.0 must be greater than 0"),
        ("train.beta1=nan", "train.beta1 = nan must be at least 0 and less than 1"),
        ("text.bpe_dropout=1", "text.bpe_dropout = 1.0 must be at least 0 and less than 1"),
        ("train.seed=99999999999999999999", "train.seed has 67 bits: an integer must fit in 64"),
        ("train.seed=0x" + "f" * 5000, "train.seed has 20,000 bits: an integer must fit in 64"),
        ("model.kind=99999999999999999999", "model.kind has 67 bits: an integer must fit in 64"),
        (
            "model.source_vocab_size=9000",
            "model.source_vocab_size = 9000 differs from model.vocab_size = 8000, "
            'so they cannot share embeddings: set model.tie_embeddings to "target"',
        ),
        ("model.width", '"model.width" is not a setting: write KEY=VALUE, such as model.width=256'),
        ("model=3", '"model" is a section: set its keys, not 3'),
        ("format=7", "format = 7, but this version of seq2see reads format 1: use the version that wrote the file"),
    ],
)
def test_an_error_names_the_key_the_value_and_the_remedy(setting: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        Config().override([setting])
    assert str(caught.value) == message


def test_odd_widths_are_rejected_for_sinusoidal_and_rotary_positions() -> None:
    with pytest.raises(UserError, match="must be even for sinusoidal positions"):
        ModelConfig(width=15, heads=3)
    with pytest.raises(UserError, match="must be even for rotary positions"):
        ModelConfig(width=15, heads=3, positions="rotary")
    assert ModelConfig(width=15, heads=3, positions="learned").actual_head_width == 5
    with pytest.raises(UserError, match="half the head width, all greater than 0"):
        ModelConfig(width=16, heads=4, positions="rotary", rotary_factors=(1.0, 0.0))


def test_an_error_names_the_broken_file(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    with pytest.raises(UserError, match=r"config.toml: no such file"):
        Config.load(path)
    path.write_text("[model\n")
    with pytest.raises(UserError, match=r"config.toml: not valid TOML"):
        Config.load(path)
    path.write_text("a." * 100_000 + "b = 1\n")  # for which tomllib takes gigabytes
    with pytest.raises(UserError, match="not valid TOML: a key has more than 1,000 parts"):
        Config.load(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match=r"cannot read .*config.toml"):
        Config.load(path)
    path.write_text("[model]\nheadz = 3\n")
    with pytest.raises(UserError, match=r'config.toml: unknown key "model.headz": did you mean "model.heads"'):
        Config.load(path)


def test_config_and_help_import_neither_torch_nor_metrics() -> None:
    code = (
        "import seq2see.cli.model, seq2see.config, seq2see.train.presets, sys; "
        "sys.exit('torch' in sys.modules or 'sacrebleu' in sys.modules or 'numpy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
