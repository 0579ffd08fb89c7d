"""What a step costs, by our count and by torch's."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.flop_counter import FlopCounterMode

from seq2see.config import Config, ModelConfig
from seq2see.errors import UserError
from seq2see.inspect.trace import trace
from seq2see.layout import Packed
from seq2see.model.transformer import Transformer
from seq2see.presets import configuration
from seq2see.text.batches import IGNORED, Batch, Sequences
from seq2see.train.estimates import BYTES_A_WEIGHT, _bytes_a_token, fewest_micro_batches, operations
from seq2see.train.loss import loss

SMALL = ModelConfig(vocabulary=50, width=16, heads=4, encoder_layers=2, decoder_layers=3, feed_forward=24, dropout=0)
SHAPES = {
    "translator": SMALL,
    "grouped heads": replace(SMALL, key_value_heads=2),
    "language model": replace(SMALL, shape="decoder", activation="swiglu", bias="nowhere"),
}


def _sequences(count: int, length: int) -> Sequences:
    return Sequences(np.ones(count * length, dtype=np.int64), np.full(count, length, dtype=np.int64), length)


def _batch(config: ModelConfig) -> Batch:
    source = _sequences(3, 5) if config.shape == "encoder-decoder" else None
    return Batch(source, _sequences(3, 7), np.ones(21, dtype=np.int64), np.arange(3))


def _losses(model: Transformer, batch: Batch) -> Tensor:
    moved = batch.to("cpu")
    logits = model(*((moved.inputs,) if moved.source is None else (moved.source, moved.inputs)))
    return loss(logits, moved.targets, smoothing=0.1).objective


@pytest.mark.parametrize("config", SHAPES.values(), ids=SHAPES)
def test_operations_are_those_that_torch_counts(config: ModelConfig) -> None:
    model, batch = Transformer(config), _batch(config)
    with trace(model), FlopCounterMode(display=False) as theirs:  # openly, in products that it knows how to count
        _losses(model, batch).backward()
    hidden = config.decoder_layers * 3 * (7 * 7 - 7 * 8 / 2)  # pairs that the mask hides, which open attention computes
    in_vain = 3 * 4 * config.heads * config.width_of_head * hidden
    # The first layer's input is embedded, and needs its gradient too, so nothing is left out backward.
    assert operations(config, batch) == theirs.get_total_flops() - in_vain


def test_what_fills_up_a_batch_does_not_count() -> None:
    batch = _batch(SMALL)
    half = replace(batch, targets=np.where(np.arange(21) < 10, batch.targets, IGNORED))
    assert operations(SMALL, half) == pytest.approx(operations(SMALL, batch) * 10 / 21)


@pytest.mark.parametrize("config", SHAPES.values(), ids=SHAPES)
def test_memory_is_what_a_real_pass_keeps(config: ModelConfig) -> None:
    """Counted on shapes alone, and on a real batch of the same sizes, whose attention keeps a little less."""
    config = replace(config, width=128, feed_forward=512)
    model = Transformer(config).train()
    kept, tables = {}, {p.untyped_storage().data_ptr() for p in model.parameters()}

    def keep(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage()
        return tensor

    text = Packed.of([[0] * 32] * 8)
    with saved_tensors_hooks(keep, lambda tensor: tensor):
        logits = model(*((text, text) if config.shape == "encoder-decoder" else (text,)))
        loss(logits, text.tokens, smoothing=0.1)
    real = sum(kept[place].nbytes() for place in kept.keys() - tables) + 2 * logits.numel() * 4
    with torch.device("meta"):
        shapes = Transformer(config).train()
    assert real / 256 <= _bytes_a_token(shapes) < 1.4 * real / 256


def test_a_step_is_cut_into_as_few_pieces_as_fit() -> None:
    config = configuration("tiny")
    cpu = torch.device("cpu")
    assert fewest_micro_batches(config, cpu, free=1 << 40) == 1
    sizes = [fewest_micro_batches(config, cpu, free=int(gigabytes * 1e9)) for gigabytes in (3, 1, 0.5)]
    assert sizes == sorted(sizes)
    assert sizes[-1] > 1
    with torch.device("meta"):
        weights = sum(p.numel() for p in Transformer(replace(config.model, vocabulary=8000)).parameters())
    with pytest.raises(UserError, match="smaller"):
        fewest_micro_batches(config, cpu, free=BYTES_A_WEIGHT * weights)


def test_no_number_of_micro_batches_means_what_fits() -> None:
    assert Config().override(["train.accumulate=0"]).train.accumulate == 0
