"""What is written about a trained model: scores.json, and the model card, README.md in its directory."""

import hashlib
import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from jinja2 import Environment, StrictUndefined, Template

from seq2see.config import Config
from seq2see.evaluate.metrics import sentence_scores
from seq2see.storage.pipeline import with_article
from seq2see.train.calibration import fit_threshold
from seq2see.train.prepare_data import TrainingData
from seq2see.train.run_log import LOG, downsample, parse_log
from seq2see.train.trainer import Trainer
from seq2see.train.validation import Scores


def training_summary(trainer: Trainer, weights: str, scores: Scores) -> dict[str, Any]:
    """Returns the content of scores.json; `weights` names those that were scored."""
    state, on_gpu = trainer.state, trainer.world.device.type == "cuda"
    validation: dict[str, Any] = {
        name: round(value, 2 if name in ("bleu", "chrf") else 5) for name, value in scores.metrics.items()
    }
    summary: dict[str, Any] = {"weights": weights, "validation": validation}
    if scores.translations:
        validation |= {"sentences": len(scores.translations), "signatures": list(scores.signatures)}
        chrf = sentence_scores(scores.translations, scores.references)
        summary["confidence"] = asdict(fit_threshold(scores.confidences, chrf))
    summary["training"] = {
        "steps": state.step,
        "epochs": round(trainer.epochs, 2),
        "target_tokens": state.target_tokens,
        "seconds": round(state.seconds, 1),
        "skipped_steps": state.skipped_steps,
        "processes": trainer.world.size,
        "device": torch.cuda.get_device_name() if on_gpu else platform.processor() or platform.machine(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "parameters": sum(p.numel() for p in trainer.model.parameters()),
        "precision": str(trainer.precision.dtype).removeprefix("torch."),
    }
    return summary


def model_card(config: Config, folder: Path, summary: dict[str, Any], data: TrainingData, scores: Scores) -> str:
    """Returns the model card as Markdown; `summary` is the content of scores.json."""
    model = config.model
    layers = [model.encoder_layers] * model.has_encoder + [model.decoder_layers] * model.has_decoder
    unit = "sentence pairs" if data.valid_pairs else "documents"
    validations = [row for row in parse_log(folder / LOG).rows if row["kind"] == "validation"]
    return card_template().render(
        folder=folder,
        kind=with_article(model.shape).capitalize(),
        model=model,
        layers="+".join(map(str, layers)),
        data=data,
        unit=unit if model.source == "tokens" else f"{model.source} with their texts",
        files=_table(("file", "bytes", "BLAKE2b hash"), _files(config)),
        batch_tokens=config.train.batch_tokens,
        summary=summary,
        training=summary["training"],
        calibration=summary.get("confidence"),
        scores=_score_table([scores.metrics]),
        signatures=scores.signatures,
        validations=_score_table(downsample(validations, 12)),
        examples=_examples(data, scores),
    )


def card_template() -> Template:
    environment = Environment(undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, autoescape=False)
    environment.filters["format"] = format  # Python's, with its format specifications
    return environment.from_string(Path(__file__).with_name("model_card.md.jinja").read_text(encoding="utf-8"))


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    first, *others = [f"| {' | '.join(row)} |" for row in (headings, *rows)]
    return "\n".join([first, "|" + "---|" * len(headings), *others])


_COLUMNS = {  # heading and format
    "step": ("step", ","),
    "loss": ("loss (nats per token)", ".4f"),
    "exact_match": ("exact match", ".2%"),
    "character_error_rate": ("character error rate", ".2%"),
    "word_error_rate": ("word error rate", ".2%"),
    "bleu": ("BLEU", ".2f"),
    "chrf": ("chrF++", ".2f"),
}


def _score_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Returns a table of validations, with the columns that all of them have."""
    names = [name for name in _COLUMNS if all(row.get(name) is not None for row in rows)]
    cells = [[format(row[name], _COLUMNS[name][1]) for name in names] for row in rows]
    return _table([_COLUMNS[name][0] for name in names], cells) if rows else ""


def _files(config: Config) -> Iterator[tuple[str, str, str]]:
    sets = ("src", "tgt", "pairs", "pictures", "sounds", "text")
    for name in (*sets, *(f"valid_{name}" for name in sets)):
        for path in map(Path, getattr(config.data, name)):
            if path.is_file():
                with path.open("rb") as file:
                    digest = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=8)).hexdigest()
                yield f"{name}: {path.name}", f"{path.stat().st_size:,}", f"`{digest}`"


def _examples(data: TrainingData, scores: Scores) -> str:
    """Returns the three best and the three worst translations by chrF++; empty without translations."""
    if not scores.translations:
        return ""
    pairs = zip(data.valid_pairs, scores.translations, strict=False)
    texts = [[text.replace("|", "\\|") for text in (source, found, reference)] for (source, reference), found in pairs]
    chrf = sentence_scores(scores.translations, scores.references)
    rows = sorted(zip(chrf, texts, strict=True), key=lambda row: -row[0])
    shown = rows if len(rows) < 6 else rows[:3] + rows[-3:]
    return _table(("chrF++", "source", "translation", "reference"), [(f"{chrf:.0f}", *texts) for chrf, texts in shown])
