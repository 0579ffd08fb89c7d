"""Model structure as a tree: modules, tensor shapes and parameter counts."""

from dataclasses import dataclass

import torch
from torch import nn

from seq2see.config import ModelConfig
from seq2see.model.network import model_class


@dataclass(frozen=True)
class ModuleSummary:
    name: str
    parameters: int  # over all repeats
    shape: tuple[int, ...] = ()  # of a single tensor
    repeats: int = 1  # identical modules in sequence, each with its own weights
    children: tuple["ModuleSummary", ...] = ()


def summarize(config: ModelConfig, name: str) -> ModuleSummary:
    """Builds the model on torch's meta device, so even a large one takes no memory."""
    with torch.device("meta"):
        return _summarize(name, model_class(config)(config))


def _summarize(name: str, module: nn.Module) -> ModuleSummary:
    children = [ModuleSummary(key, p.numel(), tuple(p.shape)) for key, p in module.named_parameters(recurse=False)]
    for key, child in module.named_children():
        if isinstance(child, nn.ModuleList) and len(child):  # the blocks of a stack are identical
            block = _summarize(key.removesuffix("s"), child[0])
            total = block.parameters * len(child)
            children.append(ModuleSummary(block.name, total, repeats=len(child), children=block.children))
        elif any(True for _ in child.parameters()):
            children.append(_summarize(key, child))
    return ModuleSummary(name, sum(child.parameters for child in children), children=tuple(children))
