"""How good a model is on its validation set: the loss, and for a translator BLEU and chrF on real decoding."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from seq2see.decode.engine import translations
from seq2see.decode.session import Vocabulary
from seq2see.metrics.translation import bleu_and_chrf, score
from seq2see.model.network import Network
from seq2see.precision import ComputeIn
from seq2see.text.batches import Batches
from seq2see.text.tokenizer import Tokenizer
from seq2see.train.loss import loss


@dataclass(frozen=True)
class Scores:
    loss: float
    bleu: float | None = None
    chrf: float | None = None
    sentences: int = 0
    signatures: tuple[str, ...] = ()
    translations: tuple[str, ...] = ()

    def value(self, metric: str) -> float:
        """More is better."""
        return -self.loss if metric == "loss" or self.bleu is None else float(getattr(self, metric))


@torch.no_grad()
def validation_loss(model: Network, batches: Batches, compute: ComputeIn) -> float:
    """−ln p a target token, with the right words before it."""
    total = torch.zeros((), dtype=torch.float64)
    count = 0
    for batch in batches.share(epoch=0):
        moved = batch.to(compute.device)
        with compute.autocast():
            logits = model(*((moved.inputs,) if moved.source is None else (moved.source, moved.inputs)))
        total += loss(logits, moved.targets, smoothing=0.0).plain.double().cpu()
        count += moved.count
    return float(total) / max(count, 1)


def validate(
    model: Network, batches: Batches, pairs: Sequence[tuple[str, str]],
    tokenizers: tuple[Tokenizer, Tokenizer], compute: ComputeIn, most: int,
) -> Scores:  # fmt: skip
    """Scores on the whole set by loss, and on its first pairs by translation."""
    model.eval()
    plain = validation_loss(model, batches, compute)
    chosen = pairs[:most]
    if not chosen:
        return Scores(plain)
    source, target = tokenizers
    sources = [[*source.encode(text), source.end][: model.config.longest] for text, _ in chosen]
    with compute.autocast():
        found = translations(model, sources, Vocabulary.of(target))
    texts = [target.decode(best.tokens) for best, *_ in found]
    return scored(texts, [[right] for _, right in chosen], plain)


def scored(translations: Sequence[str], references: Sequence[Sequence[str]], plain: float) -> Scores:
    """With one or several references for each translation."""
    bleu, chrf = score(translations, references, bleu_and_chrf())
    signatures = (bleu.signature, chrf.signature)
    return Scores(plain, bleu.value, chrf.value, len(translations), signatures, tuple(translations))
