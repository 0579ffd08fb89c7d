"""What a model is made of: its parts, their shapes and their numbers of parameters, as a tree."""

from dataclasses import dataclass

import torch
from torch import nn

from seq2see.config import ModelConfig
from seq2see.model.registry import kind_of


@dataclass(frozen=True)
class Part:
    name: str
    parameters: int  # in all of its repetitions together
    shape: tuple[int, ...] = ()  # of a single tensor
    times: int = 1  # how often it comes, one after the other, with weights of its own each time
    parts: tuple["Part", ...] = ()


def structure(config: ModelConfig, name: str) -> Part:
    """Built on torch's meta device, so that even a large model takes no memory."""
    with torch.device("meta"):
        return _part(name, kind_of(config)(config))


def _part(name: str, module: nn.Module) -> Part:
    parts = [Part(own, p.numel(), tuple(p.shape)) for own, p in module.named_parameters(recurse=False)]
    for own, child in module.named_children():
        if isinstance(child, nn.ModuleList) and len(child):  # the blocks of a stack are alike
            block = _part(own.removesuffix("s"), child[0])
            parts.append(Part(block.name, block.parameters * len(child), times=len(child), parts=block.parts))
        elif any(True for _ in child.parameters()):
            parts.append(_part(own, child))
    return Part(name, sum(part.parameters for part in parts), parts=tuple(parts))
