"""Word2Vec: vectors learned by distinguishing words that occur near each other from random words.

Skip-gram predicts a centre word from each word in its window, CBOW from their mean; every such pair is contrasted with
negatives, words drawn by their frequency to the power 3/4. Frequent words are subsampled, and the window of each centre is
drawn at random up to the maximum, so nearer words count more (Mikolov et al., 2013). All this follows the original; the order
of computation does not. A step takes spans of consecutive words from all over the text. The words of a span share their
negatives, which are weighted accordingly, so scores and gradients are products of small matrices instead of one dot product
per pair: as accurate, and faster in torch than one pair at a time. `docs/vectors.md` has the measurements.

Shapes: S spans, L centres per span, H = L + 2 · window positions for its contexts, K negatives, D width.
"""

import math
from collections.abc import Callable, Iterable, Iterator

import torch
from torch import Tensor
from torch.nn.functional import embedding, pad

from seq2see.course.vectors.config import Word2VecConfig
from seq2see.course.vectors.corpus import Corpus, read_corpus
from seq2see.course.vectors.word_vectors import WordVectors
from seq2see.errors import UserError

Progress = Callable[[float], object]

SPAN_LENGTH = 16  # L
SHARED_NEGATIVES = 16  # K
# Larger steps are less accurate (docs/vectors.md); a GPU is too slow with smaller ones.
MAX_SPANS_PER_STEP = {"cpu": 16, "cuda": 64, "mps": 64}
MIN_STEPS_PER_EPOCH = 500  # a short text takes fewer spans per step
# A step sums the gradients of all occurrences of a word, computed from the same vectors; applied one after the other, each
# would be smaller. With few different words the sum diverges, so beyond this many occurrences it is scaled down.
MAX_SUMMED_OCCURRENCES = 8.0
MIN_LR = 1e-4


def fit_word2vec(
    documents: Iterable[str],
    config: Word2VecConfig | None = None,
    device: str = "cpu",
    progress: Progress = lambda _: None,
) -> WordVectors:
    """Trains vectors on a text. Calls `progress` with the fraction trained.

    On a CPU, the same seed, text and number of threads give the same vectors.
    """
    config = config or Word2VecConfig()
    corpus = read_corpus(documents, config.min_count, config.lowercase)
    trainer = _Trainer(corpus, config, torch.device(device))
    for fraction in trainer.run():
        progress(fraction)
    matrix = trainer.inputs.cpu()
    if not matrix.isfinite().all():
        raise UserError(f"training diverged: lr {config.lr} is too large for this text, try a tenth of it")
    return WordVectors(corpus.words, matrix, config.objective, config.lowercase, corpus.counts)


class _Trainer:
    """The vectors of words as contexts (the result) and as targets, and the text on the device."""

    def __init__(self, corpus: Corpus, config: Word2VecConfig, device: torch.device) -> None:
        self.config, self.device = config, device
        self.random = torch.Generator(device).manual_seed(config.seed)
        shape = len(corpus.words), config.width
        self.inputs = (torch.rand(shape, generator=self.random, device=device) * 2 - 1) / config.width
        self.outputs = torch.zeros(shape, device=device)
        self.ids, self.document_ids = corpus.ids.to(device), corpus.document_ids.to(device)
        self.keep_probability = _keep_probability(corpus.counts, config.sample).to(device)  # [words]
        # Integers, because the cumulative sum of a large vocabulary exceeds the precision of float32.
        cumulative = corpus.counts.double().pow(0.75).cumsum(0)
        self.negative_cdf = (cumulative / cumulative[-1] * 2**31).round().long().to(device)  # [words]
        self.occurrences = torch.zeros(len(corpus.words), device=device)  # scratch space of `_scale`
        positions = torch.arange(SPAN_LENGTH + 2 * config.window, device=device) - config.window
        self.distance = (torch.arange(SPAN_LENGTH, device=device)[:, None] - positions).abs()  # [L, H]

    def run(self) -> Iterator[float]:
        """Trains, and yields the fraction done at each step."""
        config, gradients = self.config, skip_gram if self.config.objective == "skip-gram" else cbow
        for epoch in range(config.epochs):
            spans, documents = self._spans()
            spans_per_step = min(MAX_SPANS_PER_STEP[self.device.type], math.ceil(len(spans) / MIN_STEPS_PER_EPOCH))
            steps = math.ceil(len(spans) / spans_per_step)
            for step in range(steps):
                # Spans from all over the text, each advancing by one in the next step. Consecutive spans would repeat the
                # same few words, and shuffled ones are no better (docs/vectors.md).
                chosen = slice(step, None, steps)
                fraction = (epoch + step / steps) / config.epochs
                lr = config.lr + (MIN_LR - config.lr) * fraction
                self._step(gradients, spans[chosen].long(), documents[chosen], lr)
                yield fraction
        yield 1.0

    def _spans(self) -> tuple[Tensor, Tensor]:
        """Subsamples the text and cuts it into spans that overlap by their contexts.

        Returns the word ids and the document of each position, both [all spans, H]; −1 marks padding.
        """
        window = self.config.window
        random = torch.rand(len(self.ids), generator=self.random, device=self.device)
        kept = random < self.keep_probability.index_select(0, self.ids)
        ids, documents = self.ids[kept], self.document_ids[kept]
        offset = int(torch.randint(SPAN_LENGTH, (1,), generator=self.random, device=self.device))
        # At least one span, though all words may have been dropped.
        centres = math.ceil(max(offset + len(ids), 1) / SPAN_LENGTH) * SPAN_LENGTH
        padding = window + offset, centres - offset - len(ids) + window
        size, step = SPAN_LENGTH + 2 * window, SPAN_LENGTH
        return pad(ids, padding).unfold(0, size, step), pad(documents, padding, value=-1).unfold(0, size, step)

    def _step(self, gradients: "Gradients", contexts: Tensor, documents: Tensor, lr: float) -> None:
        window, count = self.config.window, len(contexts)
        centres = slice(window, window + SPAN_LENGTH)
        reach = torch.randint(1, window + 1, (count, SPAN_LENGTH, 1), generator=self.random, device=self.device)
        in_window = (self.distance <= reach) & (self.distance > 0)
        own = documents[:, centres, None]
        pairs = (in_window & (own == documents[:, None]) & (own >= 0)).float()  # [S, L, H]
        drawn = torch.randint(1, 2**31 + 1, (count, SHARED_NEGATIVES), generator=self.random, device=self.device)
        negatives = torch.searchsorted(self.negative_cdf, drawn)  # [S, K]
        targets = torch.cat([contexts[:, centres], negatives], 1)  # [S, L + K]
        x, y = embedding(contexts, self.inputs), embedding(targets, self.outputs)  # [S, H, D], [S, L + K, D]
        scales = self._scale(contexts) * lr, self._scale(targets) * lr
        updates = gradients(x, y, pairs, self.config.negatives, *scales)
        self.inputs.index_add_(0, contexts.flatten(), updates[0].flatten(0, 1))
        self.outputs.index_add_(0, targets.flatten(), updates[1].flatten(0, 1))

    def _scale(self, ids: Tensor) -> Tensor:
        """Returns a factor for the gradient of each position, below 1 for words with many occurrences in this step."""
        # Not bincount, which synchronises with a GPU; and only the words of this step are reset.
        flat = ids.flatten()
        ones = torch.ones(len(flat), device=self.device)
        counts = self.occurrences.index_fill_(0, flat, 0.0).index_add_(0, flat, ones)
        return (MAX_SUMMED_OCCURRENCES / counts.index_select(0, flat).view(ids.shape)).clamp_(max=1)


Gradients = Callable[[Tensor, Tensor, Tensor, int, Tensor, Tensor], tuple[Tensor, Tensor]]


def skip_gram(
    contexts: Tensor, targets: Tensor, pairs: Tensor, negatives: int, context_scale: Tensor, target_scale: Tensor
) -> tuple[Tensor, Tensor]:
    """Computes the gradients of the log-likelihood at contexts [S, H, D] and targets [S, L + K, D], times their scales.

    The log-likelihood sums log σ(context · centre) over the pairs [S, L, H], and for each pair `negatives` terms
    log σ(−context · negative), estimated from the K negatives of the span.
    """
    centres = pairs.shape[1]
    probabilities = (targets @ contexts.mT).sigmoid_()  # [S, L + K, H]
    weight = pairs.sum(1, keepdim=True) * (negatives / (targets.shape[1] - centres))  # [S, 1, H]
    errors = torch.cat([(1 - probabilities[:, :centres]) * pairs, -probabilities[:, centres:] * weight], 1)
    context_gradient = (errors * context_scale[:, None]).mT @ targets  # [S, H, D]
    return context_gradient, (errors * target_scale[..., None]) @ contexts


def cbow(
    contexts: Tensor, targets: Tensor, pairs: Tensor, negatives: int, context_scale: Tensor, target_scale: Tensor
) -> tuple[Tensor, Tensor]:
    """Computes the same for the means of contexts. As in the original, each context gets the full gradient of its mean."""
    count = pairs.shape[1]
    centres, negative_vectors = targets[:, :count], targets[:, count:]  # [S, L, D], [S, K, D]
    sizes = pairs.sum(2, keepdim=True)  # [S, L, 1]
    means = (pairs / sizes.clamp(min=1)) @ contexts  # [S, L, D]
    has_context = sizes.clamp(max=1)  # 0 for a centre without contexts
    positive = (1 - (means * centres).sum(2, keepdim=True).sigmoid_()) * has_context  # [S, L, 1]
    weight = -negatives / negative_vectors.shape[1]
    negative = (negative_vectors @ means.mT).sigmoid_() * has_context.mT * weight  # [S, K, L]
    mean_gradient = positive * centres + negative.mT @ negative_vectors  # [S, L, D]
    target_gradient = torch.cat([positive * means, negative @ means], 1)  # [S, L + K, D]
    return (pairs.mT @ mean_gradient) * context_scale[..., None], target_gradient * target_scale[..., None]


def _keep_probability(counts: Tensor, sample: float) -> Tensor:
    """Returns 1 for words up to about the relative frequency `sample`; decreases with the frequency beyond."""
    if sample == 0:
        return torch.ones(len(counts))
    ratio = sample * counts.sum() / counts.double()
    return (ratio.sqrt() + ratio).clamp(max=1).float()
