"""The training loss: label-smoothed cross-entropy, and the divergence term of R-Drop.

Shapes: T target tokens in the batch, V tokens in the vocabulary.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seq2see.config import TrainConfig
from seq2see.data.batch import IGNORE_INDEX, TensorBatch
from seq2see.model.network import Network

TILE = 64  # columns


class Losses(NamedTuple):
    """Sums over the targets without padding, so that batches and processes can be added before dividing."""

    objective: Tensor  # what is minimised: smoothed, with R-Drop's divergence
    nll: Tensor  # −ln p(target), for reporting


class TrainingLoss:
    """The loss of a batch: cross-entropy or, with R-Drop, that of two passes with different dropout and their divergence."""

    def __init__(self, train: TrainConfig, compiled: bool = False) -> None:
        self.smoothing, self.r_drop = train.label_smoothing, train.r_drop
        self._cross_entropy, self._symmetric_kl, self._output_loss = cross_entropy, symmetric_kl, output_loss
        if compiled:
            self._cross_entropy = torch.compile(cross_entropy, dynamic=False)
            self._symmetric_kl = torch.compile(symmetric_kl, dynamic=False)
            self._output_loss = torch.compile(output_loss, dynamic=False)

    def __call__(self, module: nn.Module, batch: TensorBatch) -> Losses:
        logits = module(*batch.model_inputs)
        first = self._cross_entropy(logits, batch.targets, self.smoothing)
        if not self.r_drop:
            return first
        second_logits = module(*batch.model_inputs)
        second = self._cross_entropy(second_logits, batch.targets, self.smoothing)
        divergence = self._symmetric_kl(logits, second_logits, batch.targets)
        objective = (first.objective + second.objective) / 2 + self.r_drop * divergence / 2
        return Losses(objective, (first.nll + second.nll) / 2)

    def with_output(self, network: Network, batch: TensorBatch) -> Losses:
        """Returns the same with the output projection inside the compiled loss, which pads the vocabulary."""
        if self.r_drop:
            return self(network, batch)
        vectors = network.vectors(batch.source or batch.inputs, batch.inputs if batch.source else None)
        return self._output_loss(network, vectors, batch.targets, self.smoothing)


def cross_entropy(logits: Tensor, targets: Tensor, smoothing: float, vocab_size: int = 0) -> Losses:
    """Computes cross-entropy with label smoothing from logits [T, V] and targets [T].

    With `vocab_size`, further columns of the logits are padding.
    """
    objective, nll, _ = _CrossEntropy.apply(logits, targets, smoothing, vocab_size or logits.shape[1])
    return Losses(objective, nll)


def output_loss(network: Network, vectors: Tensor, targets: Tensor, smoothing: float) -> Losses:
    """Computes the cross-entropy of the network's output projection, with the vocabulary padded to whole tiles of a GPU.

    A matrix product with an odd number of columns takes up to eight times as long (H200, 50,257 against 50,304 columns:
    26.4 ms against 3.4).
    """
    weight, bias = network.output_weights()
    if network.config.logit_scale != 1 or network.config.logit_cap:
        return cross_entropy(network.project(vectors), targets, smoothing)
    padding = -len(weight) % TILE
    if not padding or not vectors.is_cuda:
        return cross_entropy(F.linear(vectors, weight, bias), targets, smoothing)
    padded_bias = None if bias is None else F.pad(bias, (0, padding))
    logits = F.linear(vectors, F.pad(weight, (0, 0, 0, padding)), padded_bias)
    return cross_entropy(logits, targets, smoothing, len(weight))


class _CrossEntropy(torch.autograd.Function):
    """Computes both sums, and the gradient p − target in one pass. Autograd would make five passes over a [T, V] tensor,
    the largest of the step.
    """

    @staticmethod
    def forward(logits: Tensor, targets: Tensor, smoothing: float, vocab_size: int) -> tuple[Tensor, Tensor, Tensor]:
        is_target = targets != IGNORE_INDEX
        columns = torch.arange(logits.shape[1], device=logits.device)
        padded = vocab_size < logits.shape[1]
        log_p = (logits.where(columns < vocab_size, -torch.inf) if padded else logits).log_softmax(-1, torch.float32)
        nll = -log_p.gather(-1, targets.clamp(min=0)[:, None])[:, 0].where(is_target, 0).sum()
        lse = logits[:, 0].float() - log_p[:, 0]  # [T]
        if not smoothing:
            return nll, nll.clone(), lse
        mean = log_p.where(columns < vocab_size, 0).sum(-1) / vocab_size if padded else log_p.mean(-1)
        uniform = -mean.where(is_target, 0).sum()
        return (1 - smoothing) * nll + smoothing * uniform, nll, lse

    @staticmethod
    def setup_context(
        ctx: Any, inputs: tuple[Tensor, Tensor, float, int], output: tuple[Tensor, Tensor, Tensor]
    ) -> None:
        logits, targets, ctx.smoothing, ctx.vocab_size = inputs
        _, nll, lse = output
        ctx.save_for_backward(logits, lse, targets)
        ctx.mark_non_differentiable(nll, lse)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, *_: Tensor) -> tuple[Tensor, None, None, None]:
        logits, lse, targets = ctx.saved_tensors
        scale = torch.where(targets != IGNORE_INDEX, gradient, 0.0)[:, None]  # [T, 1]
        difference = (logits.float() - lse[:, None]).exp_().sub_(ctx.smoothing / ctx.vocab_size)
        if logits.is_cuda:  # elementwise throughout, which the compiler fuses into one pass
            columns = torch.arange(logits.shape[1], device=logits.device)
            difference = difference - (1 - ctx.smoothing) * (columns == targets[:, None])
            logits_gradient = (difference * scale).where(columns < ctx.vocab_size, 0)
        else:
            logits_gradient = difference.mul_(scale)
            logits_gradient.scatter_add_(-1, targets.clamp(min=0)[:, None], (ctx.smoothing - 1) * scale)
        return logits_gradient.to(logits.dtype), None, None, None


def symmetric_kl(first: Tensor, second: Tensor, targets: Tensor) -> Tensor:
    """Computes (KL(p‖q) + KL(q‖p)) / 2, summed over the targets: R-Drop's divergence of two dropout passes."""
    log_p, log_q = (logits.float().log_softmax(-1) for logits in (first, second))  # [T, V]
    both = (log_p.exp() - log_q.exp()) * (log_p - log_q)
    return both.sum(-1).where(targets != IGNORE_INDEX, 0).sum() / 2
