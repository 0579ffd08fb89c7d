"""What is written about a trained model: scores.json, and the model card, README.md in its directory."""

import hashlib
import platform
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from seq2see.config import Config
from seq2see.evaluate.metrics import sentence_scores
from seq2see.storage.pipeline import with_article
from seq2see.train.calibration import fit_threshold
from seq2see.train.prepare_data import TrainingData
from seq2see.train.run_log import LOG, downsample, parse_log
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
    return f"""\
# {folder.name}

{with_article(model.shape).capitalize()} model with {training["parameters"]:,} parameters, trained with seq2see in \
{training["seconds"] / 60:.1f} minutes on {training["device"]} ({training["processes"]} process\
{"es" * (training["processes"] > 1)}, {training["precision"]}, torch {training["torch"]}).

## Scores

{_scores(scores)}
{confidence_section(summary)}
## Model

{"+".join(map(str, layers))} layers, width {model.width}, {model.heads} heads, feed-forward width \
{model.feed_forward}, vocabulary of {model.vocab_size:,} tokens, {model.positions} positions, dropout \
{model.dropout}. All settings are in config.toml. Weights: {summary["weights"]}.

## Data

{_data(config, data)}

## Training

{training["steps"]:,} steps of about {config.train.batch_tokens:,} target tokens ({training["epochs"]} epochs); \
{training["skipped_steps"]} steps were skipped because of NaN gradients. Validation scores during training:

{_validations(folder)}
{_examples(data, scores)}"""


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    first, *others = [f"| {' | '.join(row)} |" for row in (headings, *rows)]
    return "\n".join([first, "|" + "---|" * len(headings), *others])


def _scores(scores: Scores) -> str:
    rows = [("loss (nats per token)", f"{scores.loss:.4f}")]
    if scores.recognition is not None:
        rows += [(name.replace("_", " "), f"{value:.2%}") for name, value in asdict(scores.recognition).items()]
    if scores.bleu is None:
        return _table(("", "validation"), rows)
    rows += [("BLEU", f"{scores.bleu:.2f}"), ("chrF++", f"{scores.chrf:.2f}")]
    bleu, chrf = scores.signatures
    return f"""{_table(("", "validation"), rows)}

Computed on {scores.sentences:,} sentences with greedy decoding. sacreBLEU signatures:

- BLEU: `{bleu}`
- chrF++: `{chrf}`"""


def confidence_section(summary: dict[str, Any]) -> str:
    """Explains the confidence threshold and how well it predicts bad translations; empty for a language model."""
    calibration = summary.get("confidence")
    return (
        ""
        if calibration is None
        else f"""
## Confidence

A translation with a mean log-probability per token below {calibration["threshold"]:.3f} is marked as low \
confidence. The threshold was fitted on the {calibration["sentences"]:,} validation sentences: \
{calibration["low_confidence"]:.1%} have low confidence, {calibration["bad"]:.1%} are bad (chrF++ below \
{calibration["bad_below"]:.0f}), and the two agree for {calibration["accuracy"]:.1%} of the sentences.
"""
    )


def _data(config: Config, data: TrainingData) -> str:
    rows = []
    sets = ("src", "tgt", "pairs", "pictures", "sounds", "text")
    for name in (*sets, *(f"valid_{name}" for name in sets)):
        for path in map(Path, getattr(config.data, name)):
            if path.is_file():
                with path.open("rb") as file:
                    digest = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=8)).hexdigest()
                rows.append((f"{name}: {path.name}", f"{path.stat().st_size:,}", f"`{digest}`"))
    unit = "sentence pairs" if data.valid_pairs else "documents"
    if config.model.source != "tokens":
        unit = f"{config.model.source} with their texts"
    valid = f" Validated on {len(data.valid_pairs):,} pairs." if data.valid_pairs else ""
    return f"""{_table(("file", "bytes", "BLAKE2b hash"), rows)}

Trained on {data.train_count:,} {unit}; {data.dropped:,} were too long and left out.{valid}"""


def _validations(folder: Path) -> str:
    """Returns up to 12 validations as a table; the full curves are in log.jsonl."""
    rows = downsample([row for row in parse_log(folder / LOG).rows if row["kind"] == "validation"], 12)
    names = [name for name in _COLUMNS if rows and all(row.get(name) is not None for row in rows)]
    cells = [[format(row[name], _COLUMNS[name][1]) for name in names] for row in rows]
    return _table([_COLUMNS[name][0] for name in names], cells) if rows else ""


_COLUMNS = {  # heading and format
    "step": ("step", ","),
    "loss": ("loss", ".3f"),
    "exact_match": ("exact match", ".2%"),
    "character_error_rate": ("CER", ".2%"),
    "bleu": ("BLEU", ".2f"),
    "chrf": ("chrF++", ".2f"),
}


def _examples(data: TrainingData, scores: Scores) -> str:
    """Returns the three best and the three worst translations by chrF; empty without translations."""
    if not scores.translations:
        return ""
    from sacrebleu.metrics.chrf import CHRF

    metric = CHRF()
    rows = []
    for (source, reference), translation in zip(data.valid_pairs, scores.translations, strict=False):
        chrf = metric.sentence_score(translation, [reference]).score
        rows.append((chrf, [text.replace("|", "\\|") for text in (source, translation, reference)]))
    rows.sort(key=lambda row: -row[0])
    shown = rows if len(rows) < 6 else rows[:3] + rows[-3:]
    table = _table(("chrF", "source", "translation", "reference"), [(f"{chrf:.0f}", *texts) for chrf, texts in shown])
    return f"\n## Examples from the validation set\n\n{table}\n"
