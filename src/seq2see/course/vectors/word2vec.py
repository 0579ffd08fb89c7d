"""Word2Vec: vectors learned by telling the words that stand near each other from words drawn at random.

Skip-gram lets each word near a centre foretell it, CBOW their mean; every such pair is set against negatives, words drawn
by their frequency to the power 3/4. Frequent words are often skipped, and each centre looks only so far as a number drawn
for it says, so that near words count more (Mikolov et al., 2013). All this is the original's; the order of computing is not.
A step takes spans of consecutive words from all over the text. The words of a span share their negatives, which count for
more in return, and so scores and gradients are products of small matrices instead of one dot product a pair: as good, and
faster than one pair after the other without a compiler. `docs/vectors.md` has the measurements.

Shapes: S spans, L centres of a span, H = L + 2 · window places that its contexts may stand in, K negatives, D width.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn.functional import embedding

from seq2see.course.vectors.table import Vectors
from seq2see.course.vectors.word_counts import Reading, read
from seq2see.errors import UserError, nearest

Objective = Literal["skip-gram", "cbow"]

SPAN = 16  # L
SHARED = 16  # K
# Spans of a step, at most. More of them are less like one pair after the other; a GPU cannot do with fewer.
SPANS = {"cpu": 16, "cuda": 64, "mps": 64}
STEPS = 500  # of an epoch, at least: a short text takes fewer spans a step
# A step adds up the gradients of all places of a word, computed before any of them was followed; one after the other, each
# would have found less to do. In a text of few words that grows without bound, so past so many places they share.
MOST = 8.0
LOWEST_LR = 1e-4


@dataclass(frozen=True)
class Word2Vec:
    """The settings, with the defaults of the original."""

    objective: Objective = "skip-gram"
    width: int = 100
    window: int = 5
    negatives: int = 5
    epochs: int = 5
    min_count: int = 5
    sample: float = 1e-3  # of all words: more frequent ones are skipped the more often the more frequent; 0: none
    lr: float = 0.025
    seed: int = 1
    lower: bool = True

    def __post_init__(self) -> None:
        if self.objective not in get_args(Objective):
            raise UserError(f'no objective "{self.objective}": {nearest(self.objective, get_args(Objective))}')
        for name in ("width", "window", "negatives", "epochs", "min_count", "lr"):
            if getattr(self, name) <= 0:
                raise UserError(f"{name} {getattr(self, name)} must be more than 0")
        if self.sample < 0:
            raise UserError(f"sample {self.sample} must not be negative; 0 skips no word")


def fit_word2vec(
    documents: Iterable[str], settings: Word2Vec | None = None, device: str = "cpu",
    reading: Callable[[int], object] = lambda _: None, progress: Callable[[float], object] = lambda _: None,
) -> Vectors:  # fmt: skip
    """Vectors of the words of a text. `reading` is told the letters read, `progress` the share of the training done.

    On a CPU, the same seed, text and number of threads make the same vectors.
    """
    settings = settings or Word2Vec()
    text = read(documents, settings.min_count, settings.lower, reading)
    training = _Training(text, settings, torch.device(device))
    for share in training.run():
        progress(share)
    matrix = training.inputs.cpu()
    if not matrix.isfinite().all():
        raise UserError(
            f"the vectors grew without bound: lr {settings.lr} is too large for this text, try a tenth of it"
        )
    return Vectors(text.words, matrix, settings.objective, settings.lower, text.counts)


class _Training:
    """The two tables of vectors, of words as contexts (which are kept) and as targets, and the text on the device."""

    def __init__(self, text: Reading, settings: Word2Vec, device: torch.device) -> None:
        self.settings, self.device = settings, device
        self.random = torch.Generator(device).manual_seed(settings.seed)
        shape = len(text.words), settings.width
        self.inputs = (torch.rand(shape, generator=self.random, device=device) * 2 - 1) / settings.width
        self.outputs = torch.zeros(shape, device=device)
        self.ids, self.documents = text.ids.to(device), text.documents.to(device)
        self.kept = _kept(text.counts, settings.sample).to(device)  # [words]
        # Whole numbers, since the running sum of a large vocabulary needs more digits than some devices have.
        heap = text.counts.double().pow(0.75).cumsum(0)
        self.heap = (heap / heap[-1] * 2**31).round().long().to(device)  # [words]
        self.times = torch.zeros(len(text.words), device=device)
        places = torch.arange(SPAN + 2 * settings.window, device=device) - settings.window
        self.distance = (torch.arange(SPAN, device=device)[:, None] - places).abs()  # [L, H]

    def run(self) -> Iterator[float]:
        """Trains; the share that is done, step by step."""
        settings, step = self.settings, skip_gram if self.settings.objective == "skip-gram" else cbow
        for epoch in range(settings.epochs):
            spans, owners = self._spans()
            steps = math.ceil(len(spans) / min(SPANS[self.device.type], math.ceil(len(spans) / STEPS)))
            for number in range(steps):
                # From all over the text, and the next of each in the next step. Spans in a row would repeat the same few
                # words, shuffled ones are not better; docs/vectors.md has what either costs.
                chosen = slice(number, None, steps)
                share = (epoch + number / steps) / settings.epochs
                lr = settings.lr + (LOWEST_LR - settings.lr) * share
                self._step(step, spans[chosen].long(), owners[chosen], lr)
                yield share
        yield 1.0

    def _spans(self) -> tuple[Tensor, Tensor]:
        """The text without the words that are skipped this time, cut into spans that overlap by their contexts; and the
        document of each place. Both [all spans, H].
        """
        window = self.settings.window
        kept = torch.rand(len(self.ids), generator=self.random, device=self.device) < self.kept.index_select(
            0, self.ids
        )
        ids, documents = self.ids[kept], self.documents[kept]
        lead = int(torch.randint(SPAN, (1,), generator=self.random, device=self.device))
        centres = math.ceil(max(lead + len(ids), 1) / SPAN) * SPAN  # one span at least, though all words may be skipped
        padding = window + lead, centres - lead - len(ids) + window
        pad = torch.nn.functional.pad
        cut = SPAN + 2 * window, SPAN
        return pad(ids, padding).unfold(0, *cut), pad(documents, padding, value=-1).unfold(0, *cut)

    def _step(self, gradients: "Gradients", contexts: Tensor, owners: Tensor, lr: float) -> None:
        window, count = self.settings.window, len(contexts)
        centres = slice(window, window + SPAN)
        reach = torch.randint(1, window + 1, (count, SPAN, 1), generator=self.random, device=self.device)
        near = (self.distance <= reach) & (self.distance > 0)
        own = owners[:, centres, None]
        pairs = (near & (own == owners[:, None]) & (own >= 0)).float()  # [S, L, H]
        drawn = torch.randint(1, 2**31 + 1, (count, SHARED), generator=self.random, device=self.device)
        negatives = torch.searchsorted(self.heap, drawn)  # [S, K]
        targets = torch.cat([contexts[:, centres], negatives], 1)  # [S, L + K]
        x, y = embedding(contexts, self.inputs), embedding(targets, self.outputs)  # [S, H, D], [S, L + K, D]
        scales = self._scale(contexts) * lr, self._scale(targets) * lr
        moves = gradients(x, y, pairs, self.settings.negatives, *scales)
        self.inputs.index_add_(0, contexts.flatten(), moves[0].flatten(0, 1))
        self.outputs.index_add_(0, targets.flatten(), moves[1].flatten(0, 1))

    def _scale(self, ids: Tensor) -> Tensor:
        """How far each place may move its word, 1 for a word with few places in this step."""
        # Not bincount, for which the host would wait for a GPU; and only the words of this step are set to 0.
        places = ids.flatten()
        times = self.times.index_fill_(0, places, 0.0).index_add_(
            0, places, torch.ones(len(places), device=self.device)
        )
        return (MOST / times.index_select(0, places).view(ids.shape)).clamp_(max=1)


Gradients = Callable[[Tensor, Tensor, Tensor, int, Tensor, Tensor], tuple[Tensor, Tensor]]


def skip_gram(
    contexts: Tensor, targets: Tensor, pairs: Tensor, negatives: int, context_scale: Tensor, target_scale: Tensor
) -> tuple[Tensor, Tensor]:
    """How the log-likelihood wants contexts [S, H, D] and targets [S, L + K, D] moved, times their scales.

    It is the sum over the pairs [S, L, H] of log σ(context · centre), and of as many log σ(−context · negative) for each
    pair as there should be negatives, estimated by the K that the span shares.
    """
    centres = pairs.shape[1]
    chances = (targets @ contexts.mT).sigmoid_()  # [S, L + K, H]
    weight = pairs.sum(1, keepdim=True) * (negatives / (targets.shape[1] - centres))  # [S, 1, H]
    errors = torch.cat([(1 - chances[:, :centres]) * pairs, -chances[:, centres:] * weight], 1)
    moved = (errors * context_scale[:, None]).mT @ targets  # [S, H, D]
    return moved, (errors * target_scale[..., None]) @ contexts


def cbow(
    contexts: Tensor, targets: Tensor, pairs: Tensor, negatives: int, context_scale: Tensor, target_scale: Tensor
) -> tuple[Tensor, Tensor]:
    """The same for means of contexts. As in the original, each context moves by all of the mean's gradient, not its part."""
    count = pairs.shape[1]
    centres, drawn = targets[:, :count], targets[:, count:]  # [S, L, D], [S, K, D]
    sizes = pairs.sum(2, keepdim=True)  # [S, L, 1]
    means = (pairs / sizes.clamp(min=1)) @ contexts  # [S, L, D]
    some = sizes.clamp(max=1)  # 0 for a centre with nothing around
    right = (1 - (means * centres).sum(2, keepdim=True).sigmoid_()) * some  # [S, L, 1]
    wrong = (drawn @ means.mT).sigmoid_() * some.mT * (-negatives / drawn.shape[1])  # [S, K, L]
    moved = right * centres + wrong.mT @ drawn  # [S, L, D]
    targets_moved = torch.cat([right * means, wrong @ means], 1)  # [S, L + K, D]
    return (pairs.mT @ moved) * context_scale[..., None], targets_moved * target_scale[..., None]


def _kept(counts: Tensor, sample: float) -> Tensor:
    """The chance of each word not to be skipped: 1 up to the share `sample` or so, then falling with the frequency."""
    if sample == 0:
        return torch.ones(len(counts))
    ratio = sample * counts.sum() / counts.double()
    return (ratio.sqrt() + ratio).clamp(max=1).float()
