"""t-SNE by openTSNE, if it is installed: a map in which near points were near, but distances and directions mean nothing."""

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from seq2see.errors import UserError

PERPLEXITY = 30  # roughly, the number of neighbours that each point keeps
_CHECK_EVERY = 10  # iterations


def is_installed() -> bool:
    return find_spec("openTSNE") is not None


def tsne(vectors: Tensor, check: Callable[[], None] = lambda: None) -> Tensor:
    """Places vectors [n, width] in the plane, [n, 2]; calls `check` now and then, which may raise to stop it."""
    try:
        from openTSNE import TSNE
    except ImportError as error:
        raise UserError("t-SNE needs openTSNE: pip install 'seq2see[tsne]'") from error

    def callback(iteration: int, error: float, embedding: Any) -> None:
        check()

    fit = TSNE(
        n_components=2, perplexity=min(PERPLEXITY, max(len(vectors) - 1, 1) / 3), metric="euclidean", initialization="pca",
        random_state=1, n_jobs=1, callbacks=[callback], callbacks_every_iters=_CHECK_EVERY,
    )  # fmt: skip
    return torch.from_numpy(fit.fit(vectors.double().numpy()).__array__().copy()).float()
