"""Estimates of operations and memory per step, against torch's own counts."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.flop_counter import FlopCounterMode

from seq2see.config import Config, ModelConfig
from seq2see.data.batch import IGNORE_INDEX, Batch, Sequences
from seq2see.data.layout import Packed
from seq2see.errors import UserError
from seq2see.inspect.trace import trace
from seq2see.model.transformer import Transformer
from seq2see.train.estimates import BYTES_PER_WEIGHT, bytes_per_token, min_micro_batches, training_flops
from seq2see.train.loss import cross_entropy
from seq2see.train.presets import preset_config

SMALL = ModelConfig(vocab_size=50, width=16, heads=4, encoder_layers=2, decoder_layers=3, feed_forward=24, dropout=0)
SHAPES = {
    "translator": SMALL,
    "grouped heads": replace(SMALL, key_value_heads=2),
    "language model": replace(SMALL, shape="decoder", activation="swiglu", bias="nowhere"),
    "gated GELU": replace(SMALL, activation="geglu"),
}


def _sequences(count: int, length: int) -> Sequences:
    return Sequences(np.ones(count * length, dtype=np.int64), np.full(count, length, dtype=np.int64), length)


def _batch(config: ModelConfig) -> Batch:
    source = _sequences(3, 5) if config.shape == "encoder-decoder" else None
    return Batch(source, _sequences(3, 7), np.ones(21, dtype=np.int64), np.arange(3))


def _losses(model: Transformer, batch: Batch) -> Tensor:
    moved = batch.to("cpu")
    logits = model(*((moved.inputs,) if moved.source is None else (moved.source, moved.inputs)))
    return cross_entropy(logits, moved.targets, smoothing=0.1).objective


@pytest.mark.parametrize("config", SHAPES.values(), ids=SHAPES)
def test_estimated_operations_equal_torchs_count(config: ModelConfig) -> None:
    model, batch = Transformer(config), _batch(config)
    with trace(model), FlopCounterMode(display=False) as counter:  # a trace uses products that it can count
        _losses(model, batch).backward()
    hidden = config.decoder_layers * 3 * (7 * 7 - 7 * 8 / 2)  # masked pairs, which the reference attention computes too
    wasted = 3 * 4 * config.heads * config.actual_head_width * hidden
    # The embedded input needs a gradient too, so the backward pass omits nothing.
    assert training_flops(config, batch) == counter.get_total_flops() - wasted


def test_padding_of_a_batch_does_not_count() -> None:
    batch = _batch(SMALL)
    half = replace(batch, targets=np.where(np.arange(21) < 10, batch.targets, IGNORE_INDEX))
    assert training_flops(SMALL, half) == pytest.approx(training_flops(SMALL, batch) * 10 / 21)


@pytest.mark.parametrize("config", SHAPES.values(), ids=SHAPES)
def test_estimated_memory_covers_a_real_forward_pass(config: ModelConfig) -> None:
    """The estimate uses shapes only; a real batch of the same size saves slightly less for attention."""
    config = replace(config, width=128, feed_forward=512)
    model = Transformer(config).train()
    saved, parameters = {}, {p.untyped_storage().data_ptr() for p in model.parameters()}

    def save(tensor: Tensor) -> Tensor:
        saved[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage()
        return tensor

    text = Packed.from_sequences([[0] * 32] * 8)
    with saved_tensors_hooks(save, lambda tensor: tensor):
        logits = model(*((text, text) if config.shape == "encoder-decoder" else (text,)))
        cross_entropy(logits, text.tokens, smoothing=0.1)
    actual = sum(saved[pointer].nbytes() for pointer in saved.keys() - parameters) + 2 * logits.numel() * 4
    with torch.device("meta"):
        shapes = Transformer(config).train()
    assert actual / 256 <= bytes_per_token(shapes) < 1.4 * actual / 256


def test_a_step_is_split_into_as_few_micro_batches_as_fit() -> None:
    config = preset_config("tiny")
    cpu = torch.device("cpu")
    assert min_micro_batches(config, cpu, free=1 << 40) == 1
    sizes = [min_micro_batches(config, cpu, free=int(gigabytes * 1e9)) for gigabytes in (3, 1, 0.5)]
    assert sizes == sorted(sizes)
    assert sizes[-1] > 1
    with torch.device("meta"):
        weights = sum(p.numel() for p in Transformer(replace(config.model, vocab_size=8000)).parameters())
    with pytest.raises(UserError, match="smaller"):
        min_micro_batches(config, cpu, free=BYTES_PER_WEIGHT * weights)


def test_gradient_accumulation_0_is_accepted() -> None:
    assert Config().override(["train.gradient_accumulation=0"]).train.gradient_accumulation == 0
