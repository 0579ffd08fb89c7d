"""Estimates of the cost of a training step: its FLOPs, to report utilization; its memory, to choose micro-batches; and its
time, to choose settings for the length of the training.

Shapes: T target tokens and U source tokens in a batch.
"""

import os
import time
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np
import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from seq2see.config import Config, ModelConfig
from seq2see.config.extensions import has_extension, load_extension
from seq2see.data.batch import Batch, Sequences
from seq2see.errors import UserError
from seq2see.model.network import Network, model_class
from seq2see.train.loss import cross_entropy
from seq2see.train.parallel import World
from seq2see.train.step import TrainStep

# Dense bf16 FLOP/s from NVIDIA's data sheets. The first name contained in the device name is used.
PEAK_FLOPS = {
    "B200": 2.25e15, "H200": 989e12, "H100": 989e12, "A100": 312e12, "L40S": 362e12, "L4": 121e12, "A10": 125e12,
    "RTX 4090": 165e12, "RTX 3090": 71e12,
}  # fmt: skip
RESERVED = 0.3  # fraction of the free memory for fragmentation and temporary buffers of the backward pass
BYTES_PER_WEIGHT = 16  # float32 weight, gradient, and Adam's two moments
TYPICAL_SENTENCE, LONG_SENTENCE = 24, 64  # tokens
CLASS_LENGTH = 2  # the class and <end>, which batches of a classifier count
MEASURED_TOKENS, MEASURED_SECONDS = 1024, 1.5
ROWS_PER_TOKEN = 8  # of a picture or sound, per target token


def peak_flops(device: torch.device, dtype: torch.dtype) -> float:
    """Returns the peak FLOP/s of a device; 0 if unknown."""
    if device.type != "cuda" or dtype is not torch.bfloat16:
        return 0.0
    name = torch.cuda.get_device_name(device)
    return next((flops for model, flops in PEAK_FLOPS.items() if model in name), 0.0)


def training_flops(model: ModelConfig, batch: Batch) -> float:
    """Returns the FLOPs of the forward and backward pass over a batch, without padding.

    A weight costs 2 FLOPs per token forward (multiply, add) and 4 backward. Attention costs 4 FLOPs per visible pair of
    query and key and per dimension of a head, and twice that backward.
    """
    if has_extension("flops", model.kind):
        own: float = load_extension("flops", model.kind)(model, batch)
        return own
    heads, groups = (n * model.actual_head_width for n in (model.heads, model.actual_key_value_heads))
    feed_forward = model.width * model.feed_forward * (3 if model.gated else 2)
    attention = model.width * 2 * (heads + groups)  # queries and output projection; keys and values
    source, lengths = batch.inputs if model.classifier else batch.source, batch.inputs.lengths
    t, u = len(batch.targets), 0 if source is None else len(source.tokens)
    decoder_layers = model.decoder_layers * model.has_decoder
    weights = t * (decoder_layers * (attention + feed_forward) + model.width * model.vocab_size)
    visible = decoder_layers * np.sum(lengths * (lengths + 1) / 2)
    if source is not None:
        weights += u * model.encoder_layers * (attention + feed_forward)
        weights += decoder_layers * model.width * 2 * (t * heads + u * groups)
        visible += model.encoder_layers * np.sum(source.lengths**2.0)
        visible += decoder_layers * np.sum(lengths * 1.0 * source.lengths)
    unpadded = batch.num_targets / max(t, 1)  # static batches are padded
    return float(3 * (2 * weights + 4 * heads * visible) * unpadded)


def min_micro_batches(config: Config, device: torch.device, free: int = 0) -> int:
    """Returns the smallest number of micro-batches per step, of 1, 2, 4, …, such that each fits in the free memory."""
    available = (1 - RESERVED) * (free or free_memory(device))
    model = _with_max_vocabulary(config)
    with torch.device("meta" if model.kind == "transformer" else "cpu"):  # recurrent layers need real lengths
        network = model_class(model)(model).train()
    fixed = BYTES_PER_WEIGHT * sum(p.numel() for p in network.parameters())
    per_token = bytes_per_token(network) * (2 if config.train.r_drop else 1)
    min_tokens = model.max_positions if model.shape == "decoder" else LONG_SENTENCE  # a batch must hold them
    micro_batches = 1
    while fixed + (tokens := config.train.batch_tokens // micro_batches) * per_token >= available:
        if tokens < 2 * min_tokens:
            raise UserError(
                f"a model of {fixed / BYTES_PER_WEIGHT:,.0f} weights with {tokens:,} target tokens needs "
                f"{(fixed + tokens * per_token) / 1e9:.1f} GB, but {available / 1e9:.1f} GB are available: use a "
                "smaller model, a smaller model.max_positions, or more processes with --set train.fsdp=true"
            )
        micro_batches *= 2
    return micro_batches


def _with_max_vocabulary(config: Config) -> ModelConfig:
    """Returns the model before its tokenizer is known."""
    vocab_size = config.text.vocab_size or config.model.vocab_size
    return replace(config.model, vocab_size=vocab_size, source_vocab_size=0, tie_embeddings="all")


def seconds_per_token(config: Config, device: torch.device) -> float:
    """Measures the time of a training step on random text, per target token. Takes a few seconds."""
    model = _with_max_vocabulary(config)
    typical = CLASS_LENGTH if model.classifier else TYPICAL_SENTENCE
    length = model.max_positions if model.shape == "decoder" else typical
    batch = _example(model, max(1, MEASURED_TOKENS // length), length)
    step = TrainStep(model_class(model)(model).to(device), config.train, World(device))

    def seconds() -> float:
        start = time.perf_counter()
        float(step.run([batch], number=0, lr=0.0).nll)  # waits for the device
        return time.perf_counter() - start

    seconds()  # allocates memory
    times = [seconds()]
    while len(times) < 3 or (sum(times) < MEASURED_SECONDS and len(times) < 20):
        times.append(seconds())
    return median(times) / (len(batch.inputs.lengths) * length)


def _example(model: ModelConfig, count: int, length: int) -> Batch:
    """Returns a batch of random texts; the sources are as long, or pictures and sounds of typical length."""
    lengths = np.full(count, length)
    ids = np.random.default_rng(0).integers(model.vocab_size, size=count * length)
    text = Sequences(ids, lengths, length)
    if model.shape == "decoder":
        return Batch(None, text, ids, lengths)
    source = text
    if model.source != "tokens":
        rows = min(length * ROWS_PER_TOKEN, model.actual_max_source_positions)
        source = Sequences(np.zeros((count * rows, model.row_size), np.float32), np.full(count, rows), rows)
    return Batch(None, source, ids[:count], lengths) if model.classifier else Batch(source, text, ids, lengths)


def bytes_per_token(model: Network) -> float:
    """Returns the bytes saved for the backward pass per target token, including its share of the source.

    Transformers are measured on meta tensors, which need no time and no memory.
    """
    saved = {}
    weights = {p.untyped_storage()._cdata for p in model.parameters()}

    def save(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        saved[storage._cdata] = storage  # the reference keeps the address from being reused
        return tensor

    sequences, length = 8, CLASS_LENGTH if model.config.classifier else min(32, model.config.max_positions)
    batch = _example(model.config, sequences, length).to(model.embedding.weight.device)
    with saved_tensors_hooks(save, lambda tensor: tensor):
        logits = model(*batch.model_inputs)
        cross_entropy(logits, batch.targets, smoothing=0.1)
    temporary = 2 * logits.numel() * 4  # gradient of the logits and their probabilities
    return (sum(saved[address].nbytes() for address in saved.keys() - weights) + temporary) / (sequences * length)


def free_memory(device: torch.device) -> int:
    """Returns the available bytes of a device."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    if device.type == "mps":
        return torch.mps.recommended_max_memory()
    meminfo = Path("/proc/meminfo")
    if meminfo.is_file():
        lines = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
        return int(lines["MemAvailable"].split()[0]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
