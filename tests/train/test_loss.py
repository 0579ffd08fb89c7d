"""The loss with a padded vocabulary, as on a GPU: columns beyond the vocabulary change nothing for the others."""

import pytest
import torch

from seq2see.data.batch import IGNORE_INDEX
from seq2see.train.loss import cross_entropy


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_columns_beyond_the_vocabulary_change_neither_loss_nor_gradient(smoothing: float) -> None:
    torch.manual_seed(0)
    plain = torch.randn(4, 5, requires_grad=True)
    padded = torch.cat((plain.detach(), torch.full((4, 3), 9.0)), dim=1).requires_grad_()
    targets = torch.tensor([0, 4, IGNORE_INDEX, 2])
    expected, found = cross_entropy(plain, targets, smoothing), cross_entropy(padded, targets, smoothing, vocab_size=5)
    torch.testing.assert_close(found.objective, expected.objective)
    torch.testing.assert_close(found.nll, expected.nll)
    (expected_gradient,) = torch.autograd.grad(expected.objective, plain)
    (gradient,) = torch.autograd.grad(found.objective, padded)
    torch.testing.assert_close(gradient[:, :5], expected_gradient)
