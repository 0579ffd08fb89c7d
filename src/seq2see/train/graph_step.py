"""A training step on one GPU, captured as CUDA graphs and replayed.

Launched kernel by kernel from Python, a step of a small model keeps the GPU waiting for the host most of the time. Here
forward, backward and update are captured once and replayed with one call each; a step's inputs are copied into static
buffers first, and its random numbers follow from the generator's seed, which is set before each replay. Matrices are
bf16 copies of the float32 weights that the optimizer updates: they are refreshed once per step instead of being cast in
every pass. The plain version is `TrainStep.run`.
"""

from collections.abc import Sequence
from copy import deepcopy
from functools import partial

import numpy as np
import torch
from torch import Tensor

from seq2see.data.batch import Batch, BatchShape, TensorBatch
from seq2see.data.layout import Layout, Packed
from seq2see.tensors.cuda_graphs import CudaGraphs
from seq2see.train.step import StepResult, TrainStep, compile_blocks, seed_step


class GraphStep:
    """A captured training step: float32 master weights, a bf16 network, and one CUDA graph per batch shape."""

    def __init__(self, plain: TrainStep, shape: BatchShape) -> None:
        self.shape, self.optimizer, self.max_grad_norm = shape, plain.optimizer, plain.max_grad_norm
        self.device, self.loss, self.seed = plain.world.device, plain.loss, plain.seed
        self.master_weights: list[Tensor] = list(plain.model.parameters())
        self.gradients = [torch.zeros_like(p) for p in self.master_weights]
        for p, gradient in zip(self.master_weights, self.gradients, strict=True):
            p.grad = gradient
        self.network = deepcopy(plain.model).to(plain.precision.dtype).train()
        self.weights: list[Tensor] = list(self.network.parameters())
        compile_blocks(self.network)
        self.inputs = torch.zeros(sum(self._sizes()), dtype=torch.int32, device=self.device)
        self.targets = torch.ones((), device=self.device)
        self.nll, self.grad_norm, self.is_nan = (torch.zeros((), device=self.device) for _ in range(3))
        self.stream = torch.cuda.Stream()
        self.graphs = CudaGraphs(self.stream)

    @torch.no_grad()
    def refresh(self) -> None:
        """Copies the float32 master weights into the network; needed after the master weights were changed elsewhere."""
        torch._foreach_copy_(self.weights, [p.detach() for p in self.master_weights])

    def run(self, batches: Sequence["StaticBatch"], number: int, lr: float) -> StepResult:
        """Makes the step of this number; the next one overwrites the result."""
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            seed_step(self.seed, number, 0)
            self.targets.fill_(sum(batch.num_targets for batch in batches))
            self.nll.zero_()
            for group in self.optimizer.param_groups:
                group["lr"].fill_(lr)
            for i, batch in enumerate(batches):
                self.inputs.copy_(batch.values, non_blocking=True)
                key = (i > 0, *batch.max_lengths)
                self.graphs.run(key, partial(self._micro_batch, batch.max_lengths, accumulate=i > 0))
            self.graphs.run("update", self._update)
        torch.cuda.current_stream().wait_stream(self.stream)
        return StepResult(self.nll, self.targets, self.grad_norm, self.is_nan)

    def _micro_batch(self, max_lengths: tuple[int, int], accumulate: bool) -> None:
        losses = self.loss.with_output(self.network, self._unpack(max_lengths))
        (losses.objective / self.targets).backward()
        gradients = [p.grad if p.grad is not None else torch.zeros_like(p) for p in self.weights]
        if accumulate:
            float32 = [torch.empty_like(gradient) for gradient in self.gradients]
            torch._foreach_copy_(float32, gradients)
            torch._foreach_add_(self.gradients, float32)
        else:
            torch._foreach_copy_(self.gradients, gradients)
        for p in self.weights:
            p.grad = None
        self.nll += losses.nll.detach()

    @torch.no_grad()
    def _update(self) -> None:
        norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(self.gradients)))
        is_nan = (~norm.isfinite()).float()
        self.is_nan.copy_(is_nan)
        self.grad_norm.copy_(norm.nan_to_num(0, 0, 0))
        # The fused optimizer divides by this scale on the fly, which saves a pass over all gradients.
        if self.max_grad_norm:
            self.optimizer.grad_scale = ((norm + 1e-6) / self.max_grad_norm).clamp(min=1)  # type: ignore[attr-defined]
        self.optimizer.found_inf = is_nan  # type: ignore[attr-defined]
        self.optimizer.step()
        self.refresh()

    def _sizes(self) -> list[int]:
        source = [self.shape.source, self.shape.sequences] if self.shape.source else []
        return [*source, self.shape.target, self.shape.target, self.shape.sequences]

    def _unpack(self, max_lengths: tuple[int, int]) -> TensorBatch:
        """Returns the batch in the static buffer; its layouts are computed on the device."""
        *source, inputs, targets, lengths = self.inputs.split(self._sizes())
        packed = self._pack(source[0], source[1], max_lengths[0]) if source else None
        target = self._pack(inputs, lengths, max_lengths[1])
        return TensorBatch(packed, target, targets.long(), num_targets=0)  # the caller counts the targets

    def _pack(self, tokens: Tensor, lengths: Tensor, max_length: int) -> Packed:
        layout = Layout.without_sync(lengths.long(), len(tokens), self.shape.max_length, torch.tensor(max_length))
        return Packed(tokens.long(), layout)


class StaticBatch:
    """A batch of static shape as one array in pinned memory, and the maximum lengths, which determine the kernels."""

    def __init__(self, batch: Batch) -> None:
        sides = [batch.inputs] if batch.source is None else [batch.source, batch.inputs]
        self.num_targets = batch.num_targets
        self.max_lengths = (sides[0].batch_max_length, sides[-1].batch_max_length)
        source = [] if batch.source is None else [batch.source.tokens, batch.source.lengths]
        values = np.concatenate([*source, batch.inputs.tokens, batch.targets, batch.inputs.lengths]).astype(np.int32)
        self.values = torch.from_numpy(values).pin_memory()
