"""Scores on the validation set: the loss and, for translation models, BLEU and chrF of decoded translations."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from functools import cached_property, lru_cache

import numpy as np
import torch
from sacrebleu.metrics.base import Metric as SacreBleuMetric
from torch import Tensor

from seq2see.config import ModelConfig
from seq2see.config.extensions import load_extension
from seq2see.data.batch import IGNORE_INDEX
from seq2see.data.batches import Batches
from seq2see.data.layout import Tokens
from seq2see.data.tokenizer import Tokenizer
from seq2see.decode.generate import translate_tokens
from seq2see.decode.search import Hypothesis
from seq2see.evaluate.metrics import Metric, RecognitionScores, References, bleu_and_chrf, recognition_scores, score
from seq2see.model.network import Network, model_class
from seq2see.tensors.device import ComputePrecision
from seq2see.train.loss import cross_entropy
from seq2see.train.prepare_data import TrainingData


@dataclass(frozen=True)
class Scores:
    loss: float
    bleu: float | None = None
    chrf: float | None = None
    signatures: tuple[str, ...] = ()
    translations: tuple[str, ...] = ()
    references: References = ()
    confidences: tuple[float, ...] = ()  # mean log-probability per token of each translation
    recognition: RecognitionScores | None = None  # of pictures and sounds
    metric: str = "loss"  # selects the checkpoint

    @cached_property
    def _selecting(self) -> tuple[Metric, float] | None:
        """The metric that selects the checkpoint, with its score, if it is none of the loss, BLEU and chrF."""
        if self.metric in ("loss", "bleu", "chrf") or self.bleu is None:
            return None
        metric: Metric = load_extension("metrics", self.metric)
        return metric, float(metric.compute(self.translations, self.references))

    @property
    def _shown(self) -> tuple[Metric, float] | None:
        """`_selecting`, unless `recognition` has it."""
        found = self._selecting
        return found if found and (found[0].listed or self.recognition is None) else None

    @property
    def metrics(self) -> dict[str, float]:
        """The scores by their names in log.jsonl and scores.json."""
        translation = {} if self.bleu is None or self.chrf is None else {"bleu": self.bleu, "chrf": self.chrf}
        recognition = asdict(self.recognition) if self.recognition else {}
        selecting = {self.metric: self._shown[1]} if self._shown else {}
        return {**selecting, "loss": self.loss, **translation, **recognition}

    @property
    def value(self) -> float:
        """The score that selects the checkpoint; higher is better."""
        if self._selecting:
            metric, value = self._selecting
            # The loss decides between equal shares, such as 0.
            return (-value if metric.error_rate else value) - 1e-6 * self.loss
        return -self.loss if self.metric == "loss" or self.bleu is None else self.metrics[self.metric]

    def __str__(self) -> str:
        recognition = "" if self.recognition is None else f"  {self.recognition}"
        translation = "" if self.bleu is None else f"  BLEU {self.bleu:.1f}  chrF++ {self.chrf:.1f}"
        selecting = ""
        if self._shown:
            metric, value = self._shown
            selecting = f"  {metric.name} {value:{'.1%' if metric.is_share else '.1f'}}"
        return f"validation loss {self.loss:.3f}{recognition}{translation}{selecting}"


# Below both, a translation rarely gives even the gist. Where words are not separated, BLEU and word n-grams mean nothing.
MIN_BLEU, MIN_CHRF, MIN_CHRF_WITHOUT_SPACES = 10.0, 30.0, 15.0
MAX_ERROR_RATE = 0.3  # of characters, in text recognised in pictures and sounds
LONG_WORD = 12  # mean characters per word; in no language with spaces are words that long
MAX_LOSS_RATIO = 0.8  # of a language model to that of token frequencies


def shortcoming(scores: Scores, pairs: Sequence[tuple[str, str]], batches: Batches) -> str:
    """Returns why a model is not usable yet; empty if it is."""
    if scores.recognition is not None and scores.recognition.character_error_rate < MAX_ERROR_RATE:
        return ""
    if scores.bleu is None or scores.chrf is None:
        entropy = unigram_entropy(batches)
        if scores.loss < MAX_LOSS_RATIO * entropy:
            return ""
        return f"its loss is {scores.loss:.2f}, where the frequency of each token alone gives {entropy:.2f}"
    if scores.recognition is not None:
        return f"a useful reader has a character error rate below {MAX_ERROR_RATE:.0%}"
    references = [reference for _, reference in pairs]
    spaces = sum(map(len, references)) < LONG_WORD * sum(len(reference.split()) for reference in references)
    min_chrf = MIN_CHRF if spaces else MIN_CHRF_WITHOUT_SPACES
    if scores.bleu >= MIN_BLEU or scores.chrf >= min_chrf:
        return ""
    return f"useful translations have BLEU above {MIN_BLEU:.0f} or chrF++ above {min_chrf:.0f}"


def unigram_entropy(batches: Batches) -> float:
    """Returns −ln p per target token of a model that knows only how often each token occurs in these batches."""
    tokens = np.concatenate([batch.targets[batch.targets != IGNORE_INDEX] for batch in batches.iterate(epoch=0)])
    _, counts = np.unique(tokens, return_counts=True)
    return float(-(counts / counts.sum() * np.log(counts / counts.sum())).sum())


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


class Validator:
    """Scores weights on the validation set."""

    def __init__(self, model: ModelConfig, data: TrainingData, precision: ComputePrecision, metric: str) -> None:
        self.model, self.data, self.precision, self.metric = model, data, precision, metric
        self._network: Network | None = None  # the same every time, so that decoding can reuse its CUDA graphs

    def _load(self, weights: Mapping[str, Tensor]) -> Network:
        if self._network is not None:
            self._network.load_state_dict(dict(weights))
            return self._network
        copies = {name: weight.detach().to(self.precision.device, copy=True) for name, weight in weights.items()}
        network = model_class(self.model).from_weights(self.model, copies).eval()
        # On a GPU float32 would gain nothing: its products would be cast to bf16 anyway.
        self._network = network.to(self.precision.dtype) if self.precision.device.type == "cuda" else network
        return self._network

    def score(self, weights: Mapping[str, Tensor], max_sentences: int | None = None) -> Scores:
        """Computes the loss on the whole set, and translation scores on its first `max_sentences` pairs."""
        network, data = self._load(weights), self.data
        loss = validation_loss(network, data.valid_batches, self.precision)
        pairs = data.valid_pairs[:max_sentences]
        if not pairs or data.valid_sources is None:
            return Scores(loss)
        # A network in the right precision needs no autocast, and without it decoding can replay CUDA graphs.
        cast = network.embedding.weight.dtype != self.precision.dtype
        with self.precision.autocast() if cast else nullcontext():
            found = translate_sources(network, [data.valid_sources[i] for i in range(len(pairs))], data.tokenizers[1])
        texts = [data.tokenizers[1].decode(best.tokens) for best in found]
        references = [reference for _, reference in pairs]
        scores = score_translations(texts, [[reference] for reference in references], loss)
        recognition = None if self.model.source == "tokens" else recognition_scores(texts, references)
        confidences = tuple(best.confidence for best in found)
        return replace(scores, confidences=confidences, recognition=recognition, metric=self.metric)


def translate_sources(model: Network, sources: Sequence[Tokens], tokenizer: Tokenizer) -> list[Hypothesis]:
    """Returns the greedy translations; sources that exceed the model's maximum length are cut."""
    cut = [source[: model.config.actual_max_source_positions] for source in sources]
    return [best for best, *_ in translate_tokens(model, cut, tokenizer.framing)]


def score_translations(translations: Sequence[str], references: Sequence[Sequence[str]], loss: float) -> Scores:
    """Computes BLEU and chrF++; each translation has one or more references."""
    bleu, chrf = score(translations, None, _metrics(tuple(map(tuple, references))))
    return Scores(loss, bleu.value, chrf.value, (bleu.signature, chrf.signature), tuple(translations), references)


@lru_cache(maxsize=2)  # the sentences of every validation, and all of them at the end
def _metrics(references: tuple[tuple[str, ...], ...]) -> dict[str, SacreBleuMetric]:
    return bleu_and_chrf(references=references)
