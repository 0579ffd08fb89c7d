"""What a step costs: its arithmetic, as a share of what the device could do, and its memory, to see what fits.

Shapes: T target tokens and U source tokens in a batch.
"""

import os
from dataclasses import replace
from itertools import count
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from seq2see.config import Config, ModelConfig
from seq2see.errors import UserError
from seq2see.layout import Packed
from seq2see.model.network import Network
from seq2see.model.registry import kind_of
from seq2see.text.batches import Batch
from seq2see.train.loss import loss

# Dense bf16 operations a second, from NVIDIA's data sheets. The first name that stands in the device's own counts.
PEAKS = {
    "B200": 2.25e15, "H200": 989e12, "H100": 989e12, "A100": 312e12, "L40S": 362e12, "L4": 121e12, "A10": 125e12,
    "RTX 4090": 165e12, "RTX 3090": 71e12,
}  # fmt: skip
SPARED = 0.3  # of the free memory: for fragments, and for what the backward pass needs for a moment
BYTES_A_WEIGHT = 16  # itself, its gradient, and Adam's two means
SENTENCE = 64  # tokens of a long one


def peak(device: torch.device, dtype: torch.dtype) -> float:
    """What a device can do at most, in operations a second; 0 where that is not known."""
    if device.type != "cuda" or dtype is not torch.bfloat16:
        return 0.0
    name = torch.cuda.get_device_name(device)
    return next((speed for part, speed in PEAKS.items() if part in name), 0.0)


def operations(model: ModelConfig, batch: Batch) -> float:
    """Of the forward and the backward pass over what counts in a batch.

    A weight costs 2 operations a token forward (multiply, add) and 4 backward; an attention 4 for each pair of a query
    and a key that it may see and each number of a head, and twice that backward.
    """
    if model.kind != "transformer":
        return _recurrent_operations(model, batch)
    heads, groups = (n * model.width_of_head for n in (model.heads, model.groups))
    alone = model.width * model.feed_forward * (3 if model.activation == "swiglu" else 2)
    attention = model.width * 2 * (heads + groups)  # queries and the projection; keys and values
    t, u = len(batch.targets), 0 if batch.source is None else len(batch.source.tokens)
    lengths = batch.inputs.lengths
    weights = t * (model.decoder_layers * (attention + alone) + model.width * model.vocabulary)
    seen = model.decoder_layers * np.sum(lengths * (lengths + 1) / 2)
    if batch.source is not None:
        weights += u * model.encoder_layers * (attention + alone)
        weights += model.decoder_layers * model.width * 2 * (t * heads + u * groups)
        seen += model.encoder_layers * np.sum(batch.source.lengths**2.0)
        seen += model.decoder_layers * np.sum(lengths * 1.0 * batch.source.lengths)
    real = batch.count / max(t, 1)  # a static batch is filled up with tokens that do not count
    return float(3 * (2 * weights + 4 * heads * seen) * real)


def _recurrent_operations(model: ModelConfig, batch: Batch) -> float:
    """A layer's four gates each take in its input and its state; the attention of 2015 adds up pairs of vectors."""
    assert batch.source is not None
    square = model.width**2
    t, u = len(batch.targets), len(batch.source.tokens)
    weights = t * (model.decoder_layers * 8 * square + model.width * model.vocabulary)
    pairs = 0.0
    if model.kind == "rnn":
        weights += u * model.encoder_layers * 8 * square
    else:
        weights += u * (model.encoder_layers * 6 + 1) * square  # both ways, half as wide; the keys
        weights += t * (4 + 1 + 3) * square  # what was found enters; the queries; what goes out
        pairs = float(np.sum(batch.inputs.lengths * 1.0 * batch.source.lengths))
    return 3 * (2 * weights + 6 * model.width * pairs) * batch.count / max(t, 1)


def fewest_micro_batches(config: Config, device: torch.device, free: int = 0) -> int:
    """How many micro-batches a step must be cut into so that each fits into the memory that is free: 1, 2, 4, …"""
    room = (1 - SPARED) * (free or free_memory(device))
    vocabulary = config.text.vocabulary or config.model.vocabulary
    model = replace(config.model, vocabulary=vocabulary, source_vocabulary=0, tie="all")
    with torch.device("meta" if model.kind == "transformer" else "cpu"):  # recurrent layers must know the lengths
        network = kind_of(model)(model).train()
    fixed = BYTES_A_WEIGHT * sum(p.numel() for p in network.parameters())
    a_token = _bytes_a_token(network) * (2 if config.train.r_drop else 1)
    fewest = model.longest if model.shape == "decoder" else SENTENCE  # tokens that a batch must hold
    for pieces in (2**n for n in count()):
        tokens = config.train.tokens // pieces
        if fixed + tokens * a_token < room:
            return pieces
        if tokens < 2 * fewest:
            raise UserError(
                f"a model of {fixed / BYTES_A_WEIGHT:,.0f} weights and {tokens:,} target tokens want "
                f"{(fixed + tokens * a_token) / 1e9:.1f} GB, of {room / 1e9:.1f} GB that are to be had: take a smaller "
                "model, a smaller model.longest, or more processes with --set train.shard=true"
            )
    raise AssertionError


def _bytes_a_token(model: Network) -> float:
    """What a target token, with its share of the source, keeps for the backward pass. Counted on tensors that are only
    shapes, so it takes no time and no memory.
    """
    kept = {}
    weights = {p.untyped_storage()._cdata for p in model.parameters()}

    def keep(tensor: Tensor) -> Tensor:
        memory = tensor.untyped_storage()
        kept[memory._cdata] = memory  # held on to, so that no other gets its number
        return tensor

    sequences, length = 8, min(32, model.config.longest)
    text = Packed.of([[0] * length] * sequences).to(model.embedding.weight.device)
    with saved_tensors_hooks(keep, lambda tensor: tensor):
        logits = model(*((text, text) if model.config.shape == "encoder-decoder" else (text,)))
        loss(logits, text.tokens, smoothing=0.1)
    table = 2 * logits.numel() * 4  # the gradient of the logits, and their probabilities on the way
    return (sum(kept[number].nbytes() for number in kept.keys() - weights) + table) / (sequences * length)


def free_memory(device: torch.device) -> int:
    """Bytes that are to be had on a device."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    if device.type == "mps":
        return torch.mps.recommended_max_memory()
    told = Path("/proc/meminfo")
    if told.is_file():
        lines = dict(line.split(":", 1) for line in told.read_text().splitlines())
        return int(lines["MemAvailable"].split()[0]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
