"""Packs a finished run into a small model directory, such as those in bundled/: weights in 8 bits, a short log, no traces of
the machine it was trained on, and a model card that names the limits of the model and the sources of its data.
"""

import gzip
import json
import os
import re
import shutil
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from seq2see.config import Config, DataConfig
from seq2see.data.known_words import compressed
from seq2see.errors import UserError, did_you_mean
from seq2see.storage.bundled import BUNDLED, About
from seq2see.storage.directory import WEIGHTS, WORDS, save_config, save_weights, snapshot_file, snapshots
from seq2see.storage.manifest import write_manifest
from seq2see.tensors.quantize import dequantize, quantize_4_bits, quantize_8_bits
from seq2see.tensors.tensor_file import TensorFile
from seq2see.train.run_log import LOG, downsample, parse_log

MAX_LOGGED = 200  # steps
_COPIED = ("scores.json", "chat.toml")


def pack(run: Path, out: Path, about: About, *, max_bytes: int = 10_000_000, snapshot_bytes: int = 0) -> None:
    """Writes the model directory `out`, replacing an existing one, or raises a UserError and changes nothing.

    Up to `snapshot_bytes` of training snapshots in 4 bits are added, evenly spread over the steps 1, 2, 4, …
    """
    if not (run / WEIGHTS).is_file():
        raise UserError(f"{run} has no {WEIGHTS}: has training finished?")
    temporary = out.with_name(f".{out.name}.{os.getpid()}.part")
    try:
        temporary.mkdir(parents=True)
        _write_model(run, temporary, out.name, about)
        sizes = {file.name: file.stat().st_size for file in temporary.iterdir()}
        if sum(sizes.values()) > max_bytes:
            largest = max(sizes, key=lambda name: sizes[name])
            raise UserError(
                f"{out} would have {sum(sizes.values()):,} bytes, {sizes[largest]:,} of them in {largest}, but the maximum "
                f"is {max_bytes:,}: train a smaller model"
            )
        _write_snapshots(run, temporary, snapshot_bytes)
        write_manifest(temporary)
        shutil.rmtree(out, ignore_errors=True)
        temporary.replace(out)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _write_model(run: Path, folder: Path, name: str, about: About) -> None:
    save_config(folder, _without_paths(Config.load(run / "config.toml")))
    save_weights(folder / WEIGHTS, quantize_8_bits(dict(dequantize(TensorFile(run / WEIGHTS)))), None)
    for tokenizer in ("tokenizer.json", "source.json"):
        if (run / tokenizer).is_file():
            content = json.loads((run / tokenizer).read_text(encoding="utf-8"))
            compact = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
            (folder / tokenizer).write_text(compact, encoding="utf-8")
    for file in _COPIED:
        if (run / file).is_file():
            shutil.copyfile(run / file, folder / file)
    if (run / WORDS).is_file():
        compressed(folder / WORDS).write_bytes(gzip.compress((run / WORDS).read_bytes(), mtime=0))
    about.save(folder)
    (folder / LOG).write_text(_short_log(run / LOG), encoding="utf-8")
    card = run / "README.md"
    text = card.read_text(encoding="utf-8") if card.is_file() else ""
    (folder / "README.md").write_text(packed_card(text, name, about), encoding="utf-8")


def _without_paths(config: Config) -> Config:
    """Keeps only the names of the data files and of the initial model."""
    names: dict[str, Any] = {
        field.name: tuple(Path(path).name for path in value)
        for field in fields(DataConfig)
        if isinstance(value := getattr(config.data, field.name), tuple)
    }
    train = replace(config.train, init=Path(config.train.init).name)
    return replace(config, data=replace(config.data, **names), train=train)


def _short_log(path: Path) -> str:
    rows = parse_log(path).rows
    steps = downsample([row for row in rows if row["kind"] == "step"], MAX_LOGGED)
    validations = [row for row in rows if row["kind"] == "validation"]
    return "".join(f"{json.dumps(row)}\n" for row in sorted([*steps, *validations], key=lambda row: row["step"]))


def packed_card(card: str, name: str, about: About) -> str:
    """Adds the limits and the sources of the data to a model card."""
    heading, separator, rest = card.partition("\n## ")
    paragraphs = [f"# {name}", heading.partition("\n")[2].strip()]
    paragraphs.append("The weights are stored in 8 bits; the scores are those of the float32 weights.")
    paragraphs += ["## Limits", about.limits, (separator + rest).strip(), "## Data sources and licences"]
    paragraphs += [f"**{source}.** {attribution(source)}" for source in about.sources]
    return "\n\n".join(filter(None, paragraphs)) + "\n"


def _write_snapshots(run: Path, folder: Path, max_bytes: int) -> None:
    steps = snapshots(run)[:-1]  # the last is nearly the final model
    if not steps or not max_bytes:
        return
    files = [snapshot_file(folder, step) for step in steps]
    files[0].parent.mkdir()
    for step, file in zip(steps, files, strict=True):
        save_weights(file, quantize_4_bits(dict(dequantize(TensorFile(snapshot_file(run, step))))), None)
    size = files[0].stat().st_size
    if size > max_bytes:
        raise UserError(
            f"a snapshot of {run} has {size:,} bytes in 4 bits, but snapshot_bytes is {max_bytes:,}: omit it"
        )
    count = min(len(files), max_bytes // size)
    kept = {files[(i + 1) * len(files) // count - 1] for i in range(count)}
    for file in set(files) - kept:
        file.unlink()


def attribution(source: str) -> str:
    """Returns the section of NOTICE on a source of training data."""
    text = (BUNDLED / "NOTICE").read_text(encoding="utf-8")
    sections = dict(re.findall(r"^## (.+)\n\n((?:(?!## ).*\n?)*)", text, flags=re.MULTILINE))
    if source not in sections:
        raise UserError(f'NOTICE has no section "{source}": {did_you_mean(source, sections)}')
    return sections[source].strip()
