"""The form of the ONNX graphs computes the same as the model, with and without caches."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest
import torch

from seq2see.data.layout import Packed
from seq2see.exchange.huggingface import from_huggingface
from seq2see.exchange.padded_model import Encoder, LanguageModel, TranslationDecoder, TranslationStep
from seq2see.model.transformer import Transformer
from tests.exchange.test_export import OURS
from tests.models import TINY
from tests.parity import FAMILIES, perturbed

PADDED = {
    **{name: config for name, (config, _) in OURS.items()},
    "gated, grouped heads, rotary": replace(
        TINY,
        heads=4,
        norm="rms",
        norm_first=True,
        activation="swiglu",
        key_value_heads=2,
        positions="rotary",
        bias="nowhere",
    ),
    "two vocabularies, no positions": replace(TINY, tie_embeddings="target", source_vocab_size=30, positions="none"),
}
SOURCES = [[5, 9, 2], [7, 3, 8, 21, 4, 6, 2], [3, 4]]
TARGETS = [[4, 8, 15, 16], [23, 12, 3, 4], [31, 2, 3, 4]]


def _padded_networks() -> dict[str, Any]:
    return {
        name: (lambda c=config: perturbed(Transformer(replace(c, vocab_size=40)))) for name, config in PADDED.items()
    } | {name: (lambda d=draw: from_huggingface(perturbed(d(Random(3))))) for name, draw in FAMILIES.items()}


@pytest.mark.parametrize("kind", _padded_networks())
@torch.no_grad()
def test_the_padded_model_computes_the_same_with_and_without_past(kind: str) -> None:
    """The form of the ONNX graphs: batch first, padding hidden by masks, caches as inputs."""
    torch.manual_seed(0)
    network = _padded_networks()[kind]().eval()
    left = network.config.shape == "decoder"
    ids, mask = padded(SOURCES, left=left)
    packed = Packed.from_sequences(SOURCES)
    if network.config.shape == "encoder-decoder":
        targets = torch.tensor(TARGETS)
        expected = network(packed, Packed.from_sequences(TARGETS)).unflatten(0, (3, 4))
        memory = Encoder(network)(ids, mask)
        found, *_ = TranslationDecoder(network)(targets, memory, mask)
        _, *past = TranslationDecoder(network)(targets[:, :2], memory, mask)
        later, *_ = TranslationStep(network)(targets[:, 2:], mask, past)
        expected, found = torch.cat([expected, expected[:, 2:]], 1), torch.cat([found, later], 1)
    elif network.config.shape == "decoder":
        expected = network(packed)
        found = LanguageModel(network)(ids, mask)[0]
        _, *past = LanguageModel(network)(ids[:, :-1], mask[:, :-1])
        later, *_ = LanguageModel(network)(ids[:, -1:], mask, past)
        last = expected[packed.layout.starts[1:].long() - 1]
        expected, found = torch.cat([expected, last]), torch.cat([found[mask.bool()], later[:, 0]])
    else:
        expected, found = network(packed), Encoder(network)(ids, mask)[mask.bool()]
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def padded(sequences: list[list[int]], left: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns ids and mask, with padding on the right or on the left."""
    length = max(map(len, sequences))
    rows = [([0] * (length - len(s)), s) for s in sequences]
    ids = [pad + s if left else s + pad for pad, s in rows]
    mask = [pad + [1] * len(s) if left else [1] * len(s) + pad for pad, s in rows]
    return torch.tensor(ids), torch.tensor(mask)
