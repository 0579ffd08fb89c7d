"""The weights before any training, in one place, with the reasons.

The aim is that at the start the numbers in every vector are of about unit size, in every layer, so that no softmax is
saturated and no gradient dies. The first loss is then near ln(vocabulary), the loss of knowing nothing; only where norms
come first and the tables are tied does the input token shine through to the output, until some steps have unlearned it.
"""

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from seq2see.model.layers import Block, StackedLinear

if TYPE_CHECKING:
    from seq2see.model.network import Network
    from seq2see.model.transformer import Stack

# What GPT-2 and BERT use for all their tables; near enough 1 / √width at their widths.
TABLE_SPREAD = 0.02


@torch.no_grad()
def initialise(model: "Network") -> None:
    for module in model.modules():
        if isinstance(module, nn.Linear):
            # Glorot: the spread that keeps the size of vectors on the way in and of gradients on the way back. Maps that
            # are stacked for speed each get the spread of their own shape, not of the stack's.
            for part in module.weight.split(module.sizes if isinstance(module, StackedLinear) else len(module.weight)):
                nn.init.xavier_uniform_(part)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        if isinstance(module, (nn.LSTM, nn.LSTMCell)):
            _initialise_recurrent(module)
    for table in (model.embedding, model.source_embedding):
        if table is not None:
            # A scaled embedding is multiplied by √width, so 1 / √width makes its numbers of unit size; and against it, as
            # the output's table, a normed vector of length √width gives logits of unit size.
            _normal(table.weight, model.config.width**-0.5 if model.config.scale_embeddings else TABLE_SPREAD)
    if model.config.kind == "transformer":
        for stack in (model.encoder, model.decoder):
            if stack is not None:
                _initialise_stack(stack)  # type: ignore[arg-type]


def _initialise_stack(stack: "Stack") -> None:
    for table in (stack.positions, stack.segments):
        if table is not None:
            # In proportion to what they are added to; beside scaled embeddings, as large as the sinusoids would be.
            _normal(table.weight, math.sqrt(0.5) if stack.config.scale_embeddings else TABLE_SPREAD)
    if stack.config.norm_first:
        # No norm tames the running sum: every sub-layer adds to it, so each adds less the more of them there are.
        writers = [writer for block in stack.blocks for writer in _writers(block)]  # type: ignore[arg-type]
        for writer in writers:
            writer.mul_(len(writers) ** -0.5)


def _initialise_recurrent(module: nn.Module) -> None:
    for name, weight in module.named_parameters(recurse=False):
        gates = weight.chunk(4)  # input, forget, new, output
        if weight.dim() == 2:
            for gate in gates:
                nn.init.xavier_uniform_(gate)
        else:
            nn.init.zeros_(weight)
            if name.startswith("bias_ih"):
                # At the start all is kept: what is forgotten at every step gets no gradient from far back.
                nn.init.ones_(gates[1])


def _writers(block: Block) -> list[Tensor]:
    """The maps whose results go straight into the residual sum."""
    attentions = [block.attention] + ([block.cross] if block.cross is not None else [])
    return [attention.project.weight for attention in attentions] + [block.feed_forward.contract.weight]


def _normal(table: Tensor, spread: float) -> None:
    nn.init.normal_(table, std=spread)
