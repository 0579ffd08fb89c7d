"""Model directories: whatever is wrong with a file, a model is refused in one line, never loaded wrongly, never hangs."""

import json
import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from seq2see.api import Model, load
from seq2see.config import Config, ModelConfig, TextConfig
from seq2see.data.tokenizer import Tokenizer
from seq2see.errors import Notice, UserError
from seq2see.model.transformer import Transformer
from seq2see.storage.chat import ChatTemplate
from seq2see.storage.directory import save_weights, snapshot_file
from seq2see.storage.manifest import MANIFEST, remove_manifest, verify_files, write_manifest
from seq2see.tensors.quantize import quantize_4_bits
from tests.commands import run_command
from tests.models import GRAMMAR_MODEL, TINY, tiny_model

ENGLISH = ["I like tea.", "We are friends."] * 5
HINDI = ["मुझे चाय पसंद है।", "हम दोस्त हैं।"] * 5
TEXT = "I like tea. We are friends."


def build_model() -> Model:
    """A translator with a tokenizer for each language."""
    source, target = (Tokenizer.train(texts, vocab_size=size) for texts, size in ((ENGLISH, 280), (HINDI, 290)))
    config = replace(TINY, width=64, tie_embeddings="target", vocab_size=len(target), source_vocab_size=len(source))
    return Model(
        Config(model=config, text=TextConfig(shared_vocab=False)),
        Transformer(config).eval(),
        (source, target),
        {"validation": {"loss": 1.5}},
    )


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("models") / "original"
    build_model().save(folder)
    return folder


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "model"))


def refusal(folder: Path, step: int | None = None) -> str:
    with pytest.raises(UserError) as caught:
        load(folder, step=step)
    message = str(caught.value)
    assert "\n" not in message and len(message) < 600
    return message


def test_a_saved_model_loads_again_and_is_the_same(original: Path, tmp_path: Path) -> None:
    model = load(original)
    template = ChatTemplate(user="<user>“{text}”\n")
    replace(model, chat_template=template).save(tmp_path / "copy")
    again = load(tmp_path / "copy")
    weights = again.network.state_dict()
    assert all(torch.equal(weights[name], weight) for name, weight in model.network.state_dict().items())
    assert (again.config, again.scores, again.chat_template) == (model.config, model.scores, template)
    assert [t.fingerprint for t in again.tokenizers] == [t.fingerprint for t in model.tokenizers]
    assert verify_files(tmp_path / "copy") == 6


def test_save_replaces_nothing_and_leaves_nothing_behind(original: Path, tmp_path: Path) -> None:
    model = load(original)
    (tmp_path / "empty").mkdir()
    model.save(tmp_path / "empty")
    before = sorted(tmp_path.rglob("*"))
    for path, reason in (
        ("empty", "not an empty directory"),
        ("empty/config.toml", "not an empty directory"),
        ("no/model", "does not exist"),
    ):
        with pytest.raises(UserError, match=reason):
            model.save(tmp_path / path)
    with pytest.raises(UserError, match="load it in float32"):
        load(original, precision="int8").save(tmp_path / "int8")
    assert sorted(tmp_path.rglob("*")) == before


Damage = Callable[[Path], None]


def edit(name: str, change: Callable[[bytes], bytes]) -> Damage:
    def damage(folder: Path) -> None:
        (folder / name).write_bytes(change((folder / name).read_bytes()))

    return damage


def replace_file(name: str, create: Callable[[Path], None]) -> Damage:
    def damage(folder: Path) -> None:
        (folder / name).unlink()
        create(folder / name)

    return damage


def exchange_tokenizers(folder: Path) -> None:
    source, target = (folder / name for name in ("source.json", "tokenizer.json"))
    contents = source.read_bytes(), target.read_bytes()
    target.write_bytes(contents[0])
    source.write_bytes(contents[1])


def swap_two_tokens(content: bytes) -> bytes:
    """A tokenizer of the same size in bytes and in tokens, which would translate to garbage."""
    tokenizer = json.loads(content)
    vocabulary = tokenizer["model"]["vocab"]
    vocabulary["a"], vocabulary["b"] = vocabulary["b"], vocabulary["a"]
    changed = json.dumps(tokenizer, indent=2, ensure_ascii=False).encode()
    assert len(changed) == len(content)
    return changed


DAMAGES: dict[str, tuple[Damage, str]] = {
    "truncated weights": (edit("model.safetensors", lambda content: content[:-100]), "bytes, but files.json says"),
    "truncated tokenizer": (edit("tokenizer.json", lambda content: content[:1000]), "1,000 bytes, but files.json says"),
    "swapped tokens": (edit("source.json", swap_two_tokens), "source.json has been changed: its SHA-256"),
    "exchanged tokenizers": (exchange_tokenizers, "tokenizer.json has"),
    "changed setting": (
        edit("config.toml", lambda content: content.replace(b"heads = 2", b"heads = 4")),
        "config.toml has",
    ),
    "no source tokenizer": (lambda folder: (folder / "source.json").unlink(), "source.json is missing"),
    "no tokenizer": (lambda folder: (folder / "tokenizer.json").unlink(), "tokenizer.json is missing"),
    "no weights": (lambda folder: (folder / "model.safetensors").unlink(), "model.safetensors is missing"),
    "no configuration": (lambda folder: (folder / "config.toml").unlink(), "it has no config.toml"),
    "an infinite size in files.json": (
        edit(MANIFEST, lambda content: re.sub(rb'"size": \d+', b'"size": 1e999', content)),
        "files.json is damaged",
    ),
    "damaged files.json": (edit(MANIFEST, lambda content: content[:50]), "files.json is damaged"),
    **{
        f"FIFO {name}": (replace_file(name, os.mkfifo), "is a pipe or a device")
        for name in ("config.toml", "tokenizer.json", "source.json", "model.safetensors")
    },
    **{
        f"folder {name}": (replace_file(name, Path.mkdir), "is a directory, not a file")
        for name in ("tokenizer.json", "source.json", "model.safetensors")
    },
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_directory_is_refused_in_one_line(damage: str, folder: Path) -> None:
    load(folder)
    break_it, expected = DAMAGES[damage]
    break_it(folder)
    assert expected in refusal(folder)


def test_a_foreign_source_tokenizer_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    model = tiny_model(ENGLISH)
    model.save(folder)
    load(folder)
    model.tokenizers[0].save(folder / "source.json")
    assert "source.json does not belong to this model" in refusal(folder)
    for name in ("source.json", "files.json"):
        (folder / name).unlink()
    Tokenizer.train(ENGLISH, vocab_size=270).save(folder / "tokenizer.json")  # of source and target
    assert "tokenizer.json has 270 tokens, but model.vocab_size" in refusal(folder)


UNCHECKED_DAMAGES: dict[str, tuple[Damage, str]] = {
    "foreign tokenizer": (
        lambda folder: Tokenizer.train(ENGLISH, vocab_size=270).save(folder / "tokenizer.json"),
        "has 270 tokens, but model.vocab_size",
    ),
    "no source tokenizer": (DAMAGES["no source tokenizer"][0], "has no source.json"),
    "truncated weights": (DAMAGES["truncated weights"][0], "cannot read the weights"),
    "not safetensors": (edit("model.safetensors", lambda content: b"\xff" * 1000), "cannot read the weights"),
    "empty weights": (edit("model.safetensors", lambda content: b""), "cannot read the weights"),
    "no tensors": (lambda folder: save_weights(folder / "model.safetensors", {}), "is absent instead of"),
    "no weights": (DAMAGES["no weights"][0], "has training finished?"),
    "other sizes": (
        edit("config.toml", lambda content: content.replace(b"decoder_layers = 2", b"decoder_layers = 3")),
        "is absent instead of",
    ),
    "a tensor of another shape": (
        edit("config.toml", lambda content: content.replace(b"feed_forward = 16", b"feed_forward = 17")),
        "is 16 × 64 instead of 17 × 64",
    ),
    "FIFO tokenizer": (DAMAGES["FIFO tokenizer.json"][0], "is a pipe or a device"),
    "FIFO weights": (DAMAGES["FIFO model.safetensors"][0], "is a pipe or a device"),
}


@pytest.mark.parametrize("damage", UNCHECKED_DAMAGES)
def test_without_files_json_what_does_not_fit_together_is_still_refused(damage: str, folder: Path) -> None:
    remove_manifest(folder)
    load(folder)
    break_it, expected = UNCHECKED_DAMAGES[damage]
    break_it(folder)
    assert expected in refusal(folder)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_weights_with_nan_are_refused(value: float, folder: Path) -> None:
    remove_manifest(folder)
    weights = load_file(folder / "model.safetensors")
    weights["embedding.weight"][3, 5] = value
    save_weights(folder / "model.safetensors", weights)  # of the same size
    assert "1 of the 18,560 values of tensor embedding.weight are NaN or infinite" in refusal(folder)


def test_a_snapshot_without_its_scales_is_refused(folder: Path) -> None:
    remove_manifest(folder)
    (folder / "snapshots").mkdir()
    tensors = quantize_4_bits(load(folder).network.state_dict())
    for damaged, expected in (
        ({name: tensor for name, tensor in tensors.items() if not name.endswith(".scales")}, "which is missing"),
        (
            {name: tensor[:1] if name.endswith(".scales") else tensor for name, tensor in tensors.items()},
            "does not fit",
        ),
    ):
        save_weights(snapshot_file(folder, 8), damaged, None)
        assert expected in refusal(folder, step=8)


@pytest.mark.parametrize(
    "setting",
    ["decoder_layers = 1000000", f"width = {10**12}", f"vocab_size = {10**12}", f"max_positions = {10**9}"],
)
def test_absurd_sizes_are_refused_before_memory_is_taken(setting: str, folder: Path) -> None:
    remove_manifest(folder)
    name = setting.split()[0]
    config = folder / "config.toml"
    lines = [setting if line.startswith(f"{name} =") else line for line in config.read_text().splitlines()]
    config.write_text("\n".join(lines))
    assert f"model.{name}" in refusal(folder)


def test_a_table_of_sinusoids_must_fit_in_memory() -> None:
    with pytest.raises(UserError, match="table of sinusoids"):
        ModelConfig(max_positions=1 << 20, width=1 << 10)


@pytest.mark.parametrize("content", [b"", b"{", b"[1, 2]", b"\xff\xfe", b"[" * 100_000, b"9" * 10_000, b"nul"])
def test_damaged_scores_stop_no_model(content: bytes, folder: Path) -> None:
    (folder / "scores.json").write_bytes(content)
    with pytest.warns(Notice, match=r"scores\.json is damaged and ignored"):
        assert load(folder).scores == {}


def test_scores_of_any_content_can_be_shown(folder: Path) -> None:
    remove_manifest(folder)
    for scores in ({"validation": 5, "training": [1]}, {"validation": {"loss": "x", "bleu": None, "chrf": 3}}):
        (folder / "scores.json").write_text(json.dumps(scores))
        assert "parameters" in repr(load(folder))


def test_every_mutation_of_a_file_is_refused_or_loads(folder: Path) -> None:
    """Random damage to each file, without files.json, so that every parser sees it."""
    remove_manifest(folder)
    generator = random.Random(1)
    for file in sorted(file for file in folder.iterdir() if file.name != "scores.json"):
        content = file.read_bytes()
        for _ in range(40):
            file.write_bytes(_mutate(content, generator))
            with suppress(UserError):
                load(folder)
        file.write_bytes(content)
    load(folder)


def _mutate(content: bytes, generator: random.Random) -> bytes:
    changed = bytearray(content)
    start = generator.randrange(min(len(content), 4000))  # headers and settings are at the beginning
    kind = generator.randrange(4)
    if kind == 0:
        changed[start] = generator.randrange(256)
    elif kind == 1:
        del changed[start : start + generator.randrange(1, 50)]
    elif kind == 2:
        changed[start:start] = generator.choice(
            [b"9" * 30, b"[" * 2000, b"\0", b'"', b"-", b"e999", b"\n", b"\xff\xfe"]
        )
    else:
        del changed[start:]
    return bytes(changed)


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-4] ^= 1  # of weights, the last bit of a mantissa
    path.write_bytes(content)


@pytest.mark.parametrize("name", ["config.toml", "tokenizer.json", "model.safetensors", "chat.toml", "scores.json"])
def test_a_flipped_bit_in_any_file_is_noticed_when_it_is_loaded(name: str, folder: Path) -> None:
    (folder / "chat.toml").write_text('user = "<user>{text}"  \n')
    write_manifest(folder)
    load(folder)
    flip_a_bit(folder / name)
    if name == "scores.json":
        with pytest.warns(Notice, match=r"scores\.json is damaged and ignored"):
            assert load(folder).scores == {}
    else:
        assert f"{name} has been changed: its SHA-256 is" in refusal(folder)
    result = run_command("model", folder, "--verify")
    assert result.returncode == 1 and f"{name} has been changed: its SHA-256 is" in result.stderr


def test_a_manifest_of_an_earlier_version_does_not_list_chat_and_scores(folder: Path) -> None:
    (folder / "chat.toml").write_text('user = "<user>{text}"\n')
    write_manifest(folder)
    records = json.loads((folder / MANIFEST).read_text())
    assert records.pop("chat.toml") and records.pop("scores.json")
    (folder / MANIFEST).write_text(json.dumps(records))
    assert load(folder).scores and verify_files(folder)
    flip_a_bit(folder / "model.safetensors")
    assert "model.safetensors has been changed" in refusal(folder)


def test_verify_finds_a_flipped_bit_in_weights_too_large_to_hash_when_loaded(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flip_a_bit(folder / "model.safetensors")
    monkeypatch.setattr("seq2see.storage.manifest.MAX_HASHED", 1000)
    load(folder)
    result = run_command("model", folder, "--verify")
    assert result.returncode == 1 and result.stdout == ""
    assert "model.safetensors has been changed: its SHA-256 is" in result.stderr and result.stderr.count("\n") == 1


def test_model_describes_a_directory(folder: Path) -> None:
    result = run_command("model", folder, "--verify")
    assert result.returncode == 0, result.stderr
    for fact in (
        "Transformer, encoder-decoder",
        "290 bpe tokens for the target",
        "loss 1.500",
        "model.safetensors",
        "all 5 files have their recorded sizes and hashes",
        "queries_keys_values",
    ):
        assert fact in result.stdout
    described = json.loads(run_command("model", folder, "--json").stdout)
    assert described["scores"] == {"validation": {"loss": 1.5}} and described["files"]["config.toml"] > 0
    remove_manifest(folder)
    assert "has no files.json" in run_command("model", folder, "--verify").stderr
    assert run_command("model", folder).returncode == 0
    assert 'did you mean "paper-base"?' in run_command("model", "papper-base").stderr
    assert "--set changes a preset" in run_command("model", folder, "--set", "model.width=8").stderr


def test_a_damaged_directory_ends_a_command_with_one_line(folder: Path) -> None:
    (folder / "source.json").unlink()
    result = run_command("translate", "--model", folder, TEXT)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith("seq2see: ") and result.stderr.count("\n") == 1


def test_translating_does_not_import_the_compiler(folder: Path) -> None:
    """It takes longer than everything else until the first translation."""
    code = "import sys, seq2see; seq2see.load(sys.argv[1]).translate('I like tea.'); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, folder], capture_output=True, text=True, check=True)
    assert not {"torch._dynamo", "sympy"} & set(done.stdout.split())


def test_the_bundled_model_matches_its_hashes() -> None:
    assert verify_files(GRAMMAR_MODEL) >= 4 + len(list(GRAMMAR_MODEL.glob("snapshots/*")))


def test_a_manifest_lists_the_snapshots(folder: Path) -> None:
    (folder / "snapshots").mkdir()
    save_weights(snapshot_file(folder, 8), load(folder).network.state_dict())
    assert "does not belong to this model" in refusal(folder, step=8)
    write_manifest(folder)
    load(folder, step=8)
    snapshot_file(folder, 8).write_bytes(b"")
    assert "has 0 bytes, but files.json says" in refusal(folder, step=8)
    load(folder)
