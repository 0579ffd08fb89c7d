"""The model card: what a person should know of a model, in the README.md of its directory."""

import hashlib
import json
from pathlib import Path
from typing import Any

from seq2see.config import Config
from seq2see.train.prepare_data import Prepared
from seq2see.train.validation import Scores


def card(config: Config, folder: Path, about: dict[str, Any], data: Prepared, scores: Scores) -> str:
    model, training = config.model, about["training"]
    layers = [model.encoder_layers] * model.has_encoder + [model.decoder_layers] * model.has_decoder
    lines = [
        f"# {folder.name}",
        "",
        f"A{'n' * (model.shape[0] == 'e')} {model.shape} of {training['parameters']:,} parameters, trained with seq2see in "
        f"{training['seconds'] / 60:.1f} minutes on {training['device']} ({training['processes']} process"
        f"{'es' * (training['processes'] > 1)}, {training['precision']}, torch {training['torch']}).",
        "",
        "## Scores",
        "",
        *_scores(about, scores),
        "",
        "## Model",
        "",
        f"{'+'.join(map(str, layers))} layers, width {model.width}, {model.heads} heads, feed-forward {model.feed_forward}, "
        f"{model.vocabulary:,} tokens, {model.positions} positions, dropout {model.dropout}. "
        f"Everything else stands in config.toml. The weights are {about['weights']}.",
        "",
        "## Data",
        "",
        *_data(config, data),
        "",
        "## Training",
        "",
        f"{training['steps']:,} steps of about {config.train.tokens:,} target tokens, {training['epochs']} epochs, "
        f"{training['skipped_steps']} steps skipped.",
        "",
        *_curve(folder),
    ]
    if scores.translations:
        lines += ["", "## Examples from the validation set", "", *_examples(data, scores)]
    return "\n".join(lines) + "\n"


def _scores(about: dict[str, Any], scores: Scores) -> list[str]:
    rows = ["| | validation |", "|---|---|", f"| loss, nats a token | {scores.loss:.4f} |"]
    if scores.bleu is not None:
        bleu, chrf = scores.signatures
        rows += [f"| BLEU | {scores.bleu:.2f} |", f"| chrF++ | {scores.chrf:.2f} |"]
        rows += ["", f"Signatures: `{bleu}` and `{chrf}`.", f"On {scores.sentences:,} sentences, decoded greedily."]
    return rows


def _data(config: Config, data: Prepared) -> list[str]:
    rows = ["| file | bytes | blake2b |", "|---|---|---|"]
    for name in ("src", "tgt", "pairs", "text", "valid_src", "valid_tgt", "valid_pairs", "valid_text"):
        for path in map(Path, getattr(config.data, name)):
            if path.is_file():
                with path.open("rb") as file:
                    digest = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=8)).hexdigest()
                rows.append(f"| {name}: {path.name} | {path.stat().st_size:,} | `{digest}` |")
    unit = "sentence pairs" if data.valid else "documents"
    held = f"; {len(data.valid):,} pairs validate" if data.valid else ""
    return [*rows, "", f"{data.pairs:,} {unit} were trained on{held}; {data.dropped:,} were too long and left out."]


def _curve(folder: Path) -> list[str]:
    """The validations as a table; training curves are in log.jsonl."""
    rows = []
    for line in (folder / "log.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if row["kind"] == "validation":
            rows.append(row)
    rows = rows if len(rows) <= 12 else [rows[round(i * (len(rows) - 1) / 11)] for i in range(12)]
    if not rows:
        return []
    heads = [name for name in ("step", "loss", "bleu", "chrf") if name in rows[0]]
    table = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    return table + [
        f"| {' | '.join(f'{row[n]:,}' if n == 'step' else f'{row[n]:.3f}' for n in heads)} |" for row in rows
    ]


def _examples(data: Prepared, scores: Scores) -> list[str]:
    """Three good and three bad ones, by chrF."""
    from sacrebleu.metrics.chrf import CHRF

    metric = CHRF()
    points = [
        metric.sentence_score(made, [right]).score
        for made, (_, right) in zip(scores.translations, data.valid, strict=False)
    ]
    order = sorted(range(len(points)), key=lambda i: -points[i])
    rows = ["| chrF | source | translation | reference |", "|---|---|---|---|"]
    for i in dict.fromkeys([*order[:3], *order[-3:]]):
        source, right = data.valid[i]
        cells = (text.replace("|", "\\|") for text in (source, scores.translations[i], right))
        rows.append(f"| {points[i]:.0f} | {' | '.join(cells)} |")
    return rows
