"""Weight initialisation, in one place, with the reasons.

At the start, the entries of every vector should have about unit size in every layer, so that no softmax saturates and no
gradient vanishes. The first loss is then near ln(vocab_size), the loss of a uniform guess. The exception is norm_first with
tied embeddings: there the input token dominates the output until the first steps have unlearned it.
"""

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from seq2see.model.layers import Block, StackedLinear

if TYPE_CHECKING:
    from seq2see.model.network import Network
    from seq2see.model.transformer import Stack

# Used by GPT-2 and BERT for all embeddings; close to 1 / √width at their widths.
EMBEDDING_STD = 0.02


@torch.no_grad()
def initialize(model: "Network") -> None:
    for module in model.modules():
        if isinstance(module, nn.Linear):
            # Glorot: preserves the size of vectors in the forward pass and of gradients in the backward pass. Maps that
            # are stacked for speed are initialised by their own shape, not by the shape of the stack.
            for part in module.weight.split(module.sizes if isinstance(module, StackedLinear) else len(module.weight)):
                nn.init.xavier_uniform_(part)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        if isinstance(module, nn.Conv1d):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")  # GELU, too, halves the mean square
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        if isinstance(module, (nn.LSTM, nn.LSTMCell)):
            _initialize_recurrent(module)
    for table in (model.embedding, model.source_embedding):
        if table is not None:
            # A scaled embedding is multiplied by √width, so a standard deviation of 1 / √width gives entries of unit size;
            # as a tied output matrix, it gives logits of unit size for a normalised vector of length √width.
            nn.init.normal_(
                table.weight, std=model.config.width**-0.5 if model.config.scale_embeddings else EMBEDDING_STD
            )
    if model.config.kind == "transformer":
        for stack in (model.encoder, model.decoder):
            if stack is not None:
                _initialize_stack(stack)  # type: ignore[arg-type]


def _initialize_stack(stack: "Stack") -> None:
    for table in (stack.positions, stack.segments):
        if table is not None:
            # In proportion to the embeddings they are added to; with scaled embeddings, as large as sinusoids.
            nn.init.normal_(table.weight, std=math.sqrt(0.5) if stack.config.scale_embeddings else EMBEDDING_STD)
    if stack.config.norm_first:
        # The residual stream is not normalised, so sub-layer outputs accumulate: scale each by 1 / √(number of sub-layers).
        outputs = [weight for block in stack.blocks for weight in _residual_outputs(block)]  # type: ignore[arg-type]
        for weight in outputs:
            weight.mul_(len(outputs) ** -0.5)


def _initialize_recurrent(module: nn.Module) -> None:
    for name, weight in module.named_parameters(recurse=False):
        gates = weight.chunk(4)  # input, forget, cell, output
        if weight.dim() == 2:
            for gate in gates:
                nn.init.xavier_uniform_(gate)
        else:
            nn.init.zeros_(weight)
            if name.startswith("bias_ih"):
                # A forget-gate bias of 1 keeps the state at the start, so gradients reach distant tokens.
                nn.init.ones_(gates[1])


def _residual_outputs(block: Block) -> list[Tensor]:
    """The weights of the maps that write to the residual stream."""
    attentions = [block.attention] + ([block.cross] if block.cross is not None else [])
    return [attention.project.weight for attention in attentions] + [block.feed_forward.down.weight]
