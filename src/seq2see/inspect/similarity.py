"""Vector similarity by three measures: the dot product; the cosine, which is independent of vector length; and the
scaled dot product of attention, divided by √d so that its size does not depend on the dimension. Also two ways to draw
vectors: on their principal axes, and by t-SNE (openTSNE, if installed), where near points were near, but distances and
directions mean nothing.

Works for static word vectors and for contextual vectors from a trace.
"""

import math
from collections.abc import Callable
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from seq2see.errors import UsageError, UserError, did_you_mean

Measure = Literal["dot", "cosine", "scaled"]
MEASURES: tuple[Measure, ...] = get_args(Measure)
PERPLEXITY = 30  # of t-SNE: roughly, the number of neighbours that each point keeps
CHECK_EVERY = 10  # iterations


def similarities(rows: Tensor, columns: Tensor, measure: Measure = "cosine") -> Tensor:
    """Compares [n, d] with [m, d]; returns [n, m]."""
    dots = rows @ columns.T
    if measure == "dot":
        return dots
    if measure == "scaled":
        return dots / math.sqrt(rows.shape[1])
    if measure == "cosine":
        norms = rows.norm(dim=1)[:, None] * columns.norm(dim=1)  # [n, m]
        return torch.where(norms > 0, dots / norms, 0.0)  # zero vectors have similarity 0
    raise UsageError(f'unknown measure "{measure}": {did_you_mean(measure, MEASURES)}')


class PrincipalAxes(NamedTuple):
    """The directions in which vectors vary most."""

    mean: Tensor  # [width]
    axes: Tensor  # [width, count]; orthonormal
    variance_ratios: Tensor  # [count]: the share of the variance along each axis

    def project(self, vectors: Tensor) -> Tensor:
        """Returns the coordinates of vectors [..., width] on the axes, [..., count]."""
        return (vectors - self.mean) @ self.axes


def principal_axes(vectors: Tensor, count: int) -> PrincipalAxes:
    """Fits principal axes (PCA) to vectors [n, width]; there are at most as many as vectors or dimensions."""
    mean = vectors.mean(0)
    _, s, vh = torch.linalg.svd(vectors - mean, full_matrices=False)
    axes = vh[:count].T
    # The sign of an axis is arbitrary; this choice makes it the same on every machine.
    signs = axes.gather(0, axes.abs().argmax(0, keepdim=True)).sign()
    return PrincipalAxes(mean, axes * signs, s[:count].square() / s.square().sum().clamp(min=1e-12))


def tsne(vectors: Tensor, check: Callable[[], None] = lambda: None) -> Tensor:
    """Places vectors [n, width] in the plane, [n, 2]; calls `check` now and then, which may raise to stop it."""
    try:
        from openTSNE import TSNE
    except ImportError as error:
        raise UserError("t-SNE needs openTSNE: pip install 'seq2see[tsne]'") from error

    perplexity = min(PERPLEXITY, max(len(vectors) - 1, 1) / 3)
    checks = {"callbacks": [lambda *progress: check()], "callbacks_every_iters": CHECK_EVERY}
    kind = {"n_components": 2, "metric": "euclidean", "initialization": "pca"}
    fit = TSNE(perplexity=perplexity, random_state=1, n_jobs=1, **kind, **checks)
    return torch.from_numpy(fit.fit(vectors.double().numpy()).__array__().copy()).float()
