"""The engine's copy of a torch model: its weights, and what the reference computes for its positions."""

from typing import Any

import torch
from torch import Tensor

from seq2see.decode.int8 import Int8Linear
from seq2see.engine.library import Library
from seq2see.engine.model import EngineModel, Positions
from seq2see.model.positions import rotary_cos_sin, rotary_frequencies, sinusoids
from seq2see.model.transformer import Stack, Transformer

MAX_ROWS = 1 << 13  # of the tables for sinusoids and rotations; longer sequences run on torch


@torch.inference_mode()
def pack_model(network: Transformer, library: Library) -> EngineModel:
    """Packs a model in float32 or int8."""
    modules = dict(network.named_modules())
    output = network.unembedding
    int8 = isinstance(output, Int8Linear)

    def weight(name: str) -> Any:
        path, _, attribute = name.rpartition(".")
        if name == "unembedding.weight":
            value: Tensor | None = network.output_weights()[0]
        elif name == "unembedding_bias":
            value = output.bias if isinstance(output, Int8Linear) else network.unembedding_bias
        elif attribute == "segment":
            segments = modules[path].segments
            value = None if segments is None else segments.weight[:1]
        else:
            value = getattr(modules[path], attribute)
        return None if value is None else value.numpy()

    encoder, decoder = _positions(network.encoder), _positions(network.decoder)
    return EngineModel(library, network.config, weight, encoder, decoder, int8)


def _positions(stack: Stack | None) -> Positions:
    if stack is None:
        return Positions()
    config, kind = stack.config, stack.position_kind
    if stack.positions is not None:
        return Positions(positions=stack.positions.weight.float().numpy())
    if kind == "rotary":
        length = min(MAX_ROWS, max(config.max_positions, config.actual_max_source_positions))
        local = any(block.local for block in stack.blocks)
        return Positions(
            rotation=_rotation(stack, length, False), local_rotation=_rotation(stack, length, True) if local else None
        )
    if stack.relative_bias is not None:
        reach = config.relative_distance
        distances = torch.arange(-reach, reach + 1)
        return Positions(bias=stack.relative_bias(torch.zeros(1, dtype=torch.int64), distances)[:, 0].float().numpy())
    if kind.startswith("sinusoidal"):
        return Positions(positions=sinusoids(MAX_ROWS, config.width, kind).numpy())
    return Positions()


def _rotation(stack: Stack, length: int, local: bool) -> Any:
    half = stack.config.actual_head_width // 2
    frequencies = rotary_frequencies(stack.config, local)
    cosines, sines = rotary_cos_sin(
        torch.arange(length), frequencies, stack.config.rotary_magnitude
    )  # [positions, 1, d]
    return torch.cat([cosines[:, 0, :half], sines[:, 0, :half]], dim=1).numpy()
