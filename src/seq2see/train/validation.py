"""Scores on the validation set: the loss and, for translation models, BLEU and chrF of decoded translations."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from seq2see.decode.engine import translate_tokens
from seq2see.decode.search import Hypothesis
from seq2see.decode.session import SpecialTokens
from seq2see.metrics.translation import bleu_and_chrf, score
from seq2see.model.network import Network
from seq2see.precision import ComputePrecision
from seq2see.text.batches import Batches
from seq2see.text.tokenizer import Tokenizer
from seq2see.train.loss import cross_entropy


@dataclass(frozen=True)
class Scores:
    loss: float
    bleu: float | None = None
    chrf: float | None = None
    sentences: int = 0
    signatures: tuple[str, ...] = ()
    translations: tuple[str, ...] = ()
    confidences: tuple[float, ...] = ()  # mean log-probability per token of each translation

    def value(self, metric: str) -> float:
        """Returns the score by a metric of the configuration; higher is better."""
        return -self.loss if metric == "loss" or self.bleu is None else float(getattr(self, metric))


@torch.no_grad()
def validation_loss(model: Network, batches: Batches, precision: ComputePrecision) -> float:
    """Returns −ln p per target token under teacher forcing."""
    total = torch.zeros((), dtype=torch.float64)
    count = 0
    for batch in batches.iterate(epoch=0):
        on_device = batch.to(precision.device)
        with precision.autocast():
            logits = model(*on_device.model_inputs)
        total += cross_entropy(logits, on_device.targets, smoothing=0.0).nll.double().cpu()
        count += on_device.num_targets
    return float(total) / max(count, 1)


def validate(
    model: Network, batches: Batches, pairs: Sequence[tuple[str, str]],
    tokenizers: tuple[Tokenizer, Tokenizer], precision: ComputePrecision, max_sentences: int,
) -> Scores:  # fmt: skip
    """Computes the loss on the whole set, and translation scores on its first `max_sentences` pairs."""
    model.eval()
    loss = validation_loss(model, batches, precision)
    selected = pairs[:max_sentences]
    if not selected:
        return Scores(loss)
    with precision.autocast():
        found = translate_sources(model, [source for source, _ in selected], tokenizers)
    texts = [tokenizers[1].decode(best.tokens) for best in found]
    scores = score_translations(texts, [[reference] for _, reference in selected], loss)
    return replace(scores, confidences=tuple(best.confidence for best in found))


def translate_sources(
    model: Network, sources: Sequence[str], tokenizers: tuple[Tokenizer, Tokenizer]
) -> list[Hypothesis]:
    """Returns the greedy translations; sources that exceed the model's maximum length are cut."""
    source, target = tokenizers
    ids = [[*source.encode(text), source.end][: model.config.max_positions] for text in sources]
    return [best for best, *_ in translate_tokens(model, ids, SpecialTokens.from_tokenizer(target))]


def score_translations(translations: Sequence[str], references: Sequence[Sequence[str]], loss: float) -> Scores:
    """Computes BLEU and chrF++; each translation has one or more references."""
    bleu, chrf = score(translations, references, bleu_and_chrf())
    signatures = (bleu.signature, chrf.signature)
    return Scores(loss, bleu.value, chrf.value, len(translations), signatures, tuple(translations))
