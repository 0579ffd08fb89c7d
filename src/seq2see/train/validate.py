"""How good a model is on its validation set: the loss, and for a translator BLEU and chrF on real decoding."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from seq2see.decode.engine import Vocabulary, translations
from seq2see.model.transformer import Transformer
from seq2see.text.batches import Batches
from seq2see.text.tokenizer import Tokenizer
from seq2see.train.loss import loss
from seq2see.train.precision import ComputeIn

BLEU_TOKENIZER = "intl"  # the default one does not split the danda


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
def validation_loss(model: Transformer, batches: Batches, compute: ComputeIn) -> float:
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
    model: Transformer, batches: Batches, pairs: Sequence[tuple[str, str]],
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
    return scored(texts, [[right for _, right in chosen]], plain)


def scored(translations: Sequence[str], references: Sequence[Sequence[str]], plain: float) -> Scores:
    bleu, chrf = BLEU(tokenize=BLEU_TOKENIZER), CHRF(word_order=2)
    points = [metric.corpus_score(list(translations), [list(r) for r in references]).score for metric in (bleu, chrf)]
    signatures = tuple(str(metric.get_signature()) for metric in (bleu, chrf))
    return Scores(plain, points[0], points[1], len(translations), signatures, tuple(translations))
