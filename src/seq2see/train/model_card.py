"""What is written about a trained model: scores.json, and the model card, README.md in its directory."""

import hashlib
import platform
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from seq2see.config import Config
from seq2see.evaluate.metrics import sentence_scores
from seq2see.storage.pipeline import with_article
from seq2see.train.calibration import fit_threshold
from seq2see.train.prepare_data import TrainingData
from seq2see.train.run_log import LOG, parse_log
from seq2see.train.trainer import Trainer
from seq2see.train.validation import Scores


def training_summary(trainer: Trainer, weights: str, scores: Scores, data: TrainingData) -> dict[str, Any]:
    """Returns the content of scores.json; `weights` names those that were scored."""
    state, on_gpu = trainer.state, trainer.world.device.type == "cuda"
    validation: dict[str, Any] = {"loss": round(scores.loss, 5)}
    if scores.bleu is not None and scores.chrf is not None:
        validation |= {"bleu": round(scores.bleu, 2), "chrf": round(scores.chrf, 2)}
        validation |= {"sentences": scores.sentences, "signatures": list(scores.signatures)}
    if scores.recognition is not None:
        validation |= {name: round(value, 5) for name, value in asdict(scores.recognition).items()}
    summary: dict[str, Any] = {"weights": weights, "validation": validation}
    if scores.confidences:
        chrf = sentence_scores(scores.translations, [[reference] for _, reference in data.valid_pairs])
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
    model, training = config.model, summary["training"]
    layers = [model.encoder_layers] * model.has_encoder + [model.decoder_layers] * model.has_decoder
    lines = [
        f"# {folder.name}",
        "",
        f"{with_article(model.shape).capitalize()} model with {training['parameters']:,} parameters, trained with seq2see in "
        f"{training['seconds'] / 60:.1f} minutes on {training['device']} ({training['processes']} process"
        f"{'es' * (training['processes'] > 1)}, {training['precision']}, torch {training['torch']}).",
        "",
        "## Scores",
        "",
        *_scores(scores),
        *confidence_section(summary),
        "",
        "## Model",
        "",
        f"{'+'.join(map(str, layers))} layers, width {model.width}, {model.heads} heads, feed-forward width "
        f"{model.feed_forward}, vocabulary of {model.vocab_size:,} tokens, {model.positions} positions, dropout "
        f"{model.dropout}. All settings are in config.toml. Weights: {summary['weights']}.",
        "",
        "## Data",
        "",
        *_data(config, data),
        "",
        "## Training",
        "",
        f"{training['steps']:,} steps of about {config.train.batch_tokens:,} target tokens ({training['epochs']} epochs); "
        f"{training['skipped_steps']} steps were skipped because of NaN gradients. Validation scores during training:",
        "",
        *_validation_table(folder),
    ]
    if scores.translations:
        lines += ["", "## Examples from the validation set", "", *_examples(data, scores)]
    return "\n".join(lines) + "\n"


def _scores(scores: Scores) -> list[str]:
    rows = ["| | validation |", "|---|---|", f"| loss (nats per token) | {scores.loss:.4f} |"]
    if scores.recognition is not None:
        recognition = scores.recognition
        rows += [f"| exact match | {recognition.exact_match:.2%} |"]
        rows += [f"| character error rate | {recognition.character_error_rate:.2%} |"]
        rows += [f"| word error rate | {recognition.word_error_rate:.2%} |"]
    if scores.bleu is not None:
        bleu, chrf = scores.signatures
        rows += [f"| BLEU | {scores.bleu:.2f} |", f"| chrF++ | {scores.chrf:.2f} |"]
        rows += ["", f"Computed on {scores.sentences:,} sentences with greedy decoding. sacreBLEU signatures:", ""]
        rows += [f"- BLEU: `{bleu}`", f"- chrF++: `{chrf}`"]
    return rows


def confidence_section(summary: dict[str, Any]) -> list[str]:
    """Explains the confidence threshold and how well it predicts bad translations; empty for a language model."""
    calibration = summary.get("confidence")
    if calibration is None:
        return []
    return [
        "",
        "## Confidence",
        "",
        f"A translation with a mean log-probability per token below {calibration['threshold']:.3f} is marked as low "
        f"confidence. The threshold was fitted on the {calibration['sentences']:,} validation sentences: "
        f"{calibration['low_confidence']:.1%} have low confidence, {calibration['bad']:.1%} are bad (chrF++ below "
        f"{calibration['bad_below']:.0f}), and the two agree for {calibration['accuracy']:.1%} of the sentences.",
    ]


def _data(config: Config, data: TrainingData) -> list[str]:
    rows = ["| file | bytes | BLAKE2b hash |", "|---|---|---|"]
    sets = ("src", "tgt", "pairs", "pictures", "sounds", "text")
    for name in (*sets, *(f"valid_{name}" for name in sets)):
        for path in map(Path, getattr(config.data, name)):
            if path.is_file():
                with path.open("rb") as file:
                    digest = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=8)).hexdigest()
                rows.append(f"| {name}: {path.name} | {path.stat().st_size:,} | `{digest}` |")
    unit = "sentence pairs" if data.valid_pairs else "documents"
    if config.model.source != "tokens":
        unit = f"{config.model.source} with their texts"
    valid = f" Validated on {len(data.valid_pairs):,} pairs." if data.valid_pairs else ""
    return [*rows, "", f"Trained on {data.train_count:,} {unit}; {data.dropped:,} were too long and left out.{valid}"]


def _validation_table(folder: Path) -> list[str]:
    """Returns up to 12 validations as a table; the full curves are in log.jsonl."""
    rows = [row for row in parse_log(folder / LOG).rows if row["kind"] == "validation"]
    rows = rows if len(rows) <= 12 else [rows[round(i * (len(rows) - 1) / 11)] for i in range(12)]
    if not rows:
        return []
    columns = [name for name in _HEADINGS if all(row.get(name) is not None for row in rows)]
    table = [f"| {' | '.join(_HEADINGS[name] for name in columns)} |", "|" + "---|" * len(columns)]
    return table + [f"| {' | '.join(format(row[name], _FORMATS[name]) for name in columns)} |" for row in rows]


_HEADINGS = {
    "step": "step", "loss": "loss", "exact_match": "exact match", "character_error_rate": "CER", "bleu": "BLEU",
    "chrf": "chrF++",
}  # fmt: skip
_FORMATS = {
    "step": ",", "loss": ".3f", "exact_match": ".2%", "character_error_rate": ".2%", "bleu": ".2f", "chrf": ".2f"
}  # fmt: skip


def _examples(data: TrainingData, scores: Scores) -> list[str]:
    """Returns the three best and the three worst translations by chrF."""
    from sacrebleu.metrics.chrf import CHRF

    metric = CHRF()
    chrf = [
        metric.sentence_score(translation, [reference]).score
        for translation, (_, reference) in zip(scores.translations, data.valid_pairs, strict=False)
    ]
    order = sorted(range(len(chrf)), key=lambda i: -chrf[i])
    rows = ["| chrF | source | translation | reference |", "|---|---|---|---|"]
    for i in dict.fromkeys([*order[:3], *order[-3:]]):
        source, reference = data.valid_pairs[i]
        cells = (text.replace("|", "\\|") for text in (source, scores.translations[i], reference))
        rows.append(f"| {chrf[i]:.0f} | {' | '.join(cells)} |")
    return rows
