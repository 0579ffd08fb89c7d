"""Configuration: read, written and overridden through the same checks, with errors that name the remedy."""

import subprocess
import sys
import tomllib
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seq2see.config import Config, ModelConfig, _show
from seq2see.errors import UsageError, UserError
from seq2see.presets import PRESETS, preset


def test_every_field_has_a_type_and_a_sentence_of_help() -> None:
    for field in fields(ModelConfig):
        assert field.type
        assert len(field.metadata["help"]) > 10


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_survives_its_file(name: str, tmp_path: Path) -> None:
    config = Config(model=preset(name))
    (tmp_path / "config.toml").write_text(config.to_toml())
    assert Config.load(tmp_path / "config.toml") == config


@given(st.text())
def test_any_text_survives_toml(text: str) -> None:
    assert tomllib.loads(f"value = {_show(text)}") == {"value": text}


def test_overrides_are_taken_together_so_that_their_order_does_not_matter() -> None:
    one = Config().override(["model.width=300", "model.heads=6", "model.activation=gelu", "model.dropout=0"])
    two = Config().override(["model.heads=6", "model.dropout=0", 'model.activation="gelu"', "model.width = 300"])
    assert one == two
    assert (one.model.width, one.model.heads, one.model.activation, one.model.dropout) == (300, 6, "gelu", 0.0)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("model.widht=256", 'unknown key "model.widht": did you mean "width"?'),
        ("modle.width=256", 'unknown key "modle": did you mean "model"?'),
        ("model.width=wide", 'model.width = "wide" must be a whole number'),
        ("model.width=25.5", "model.width = 25.5 must be a whole number"),
        ("model.width=true", "model.width = true must be a whole number"),
        ("model.dropout=much", 'model.dropout = "much" must be a number'),
        ("model.norm_first=1", "model.norm_first = 1 must be true or false"),
        ("model.activation=rleu", 'model.activation = "rleu" is not a choice: did you mean "relu"?'),
        ("model.heads=7", "model.width = 512 cannot be divided among model.heads = 7; "
            "take width 504 or 518, or set model.head_width"),
        ("model.key_value_heads=3", "model.key_value_heads = 3 must divide model.heads = 8"),
        ("model.dropout=1.5", "model.dropout = 1.5 must be at least 0 and less than 1"),
        ("model.width=0", "model.width = 0 must be at least 1"),
        ("model.source_vocabulary=9000", "model.source_vocabulary = 9000 differs from model.vocabulary = 8000, "
            'so one table cannot serve both: set model.tie to "target"'),
        ("model.width", '"model.width" is no setting: write KEY=VALUE, such as model.width=256'),
        ("model=3", '"model" is a section, so it takes keys of its own, not 3'),
        ("format=7", "format = 7, but this seq2see reads format 1: use the seq2see that wrote the file"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line_with_the_key_the_value_and_the_remedy(setting: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        Config().override([setting])
    assert str(caught.value) == message


def test_odd_widths_are_refused_where_positions_come_in_pairs() -> None:
    with pytest.raises(UserError, match="must be even for sinusoidal positions"):
        ModelConfig(width=15, heads=3)
    with pytest.raises(UserError, match="must be even for rotary positions"):
        ModelConfig(width=15, heads=3, positions="rotary")
    assert ModelConfig(width=15, heads=3, positions="learned").width_of_head == 5


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    with pytest.raises(UserError, match=r"cannot read .*config.toml"):
        Config.load(path)
    path.write_text("[model\n")
    with pytest.raises(UserError, match=r"config.toml: not valid TOML"):
        Config.load(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match=r"cannot read .*config.toml"):
        Config.load(path)
    path.write_text("[model]\nheadz = 3\n")
    with pytest.raises(UserError, match=r'config.toml: unknown key "model.headz": did you mean "heads"'):
        Config.load(path)


def test_settings_do_not_import_torch() -> None:
    code = "import seq2see.cli, seq2see.config, seq2see.presets, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
