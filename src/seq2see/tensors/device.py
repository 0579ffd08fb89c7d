"""A device and the precision in which it computes: the single rule for both."""

import re
import subprocess
import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache

import torch

from seq2see.errors import UsageError, UserError

MIN_BF16_WIDTH = 512  # from this width on, bf16 is faster than float32 on CPUs with bf16 instructions


def resolve_device(device: str) -> str:
    """Returns the device, or the best available one if it is empty; raises a UserError if PyTorch cannot use it."""
    if not device:
        return "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    kind, _, index = device.partition(":")
    if kind not in ("cpu", "cuda", "mps") or (":" in device and not re.fullmatch("[0-9]{1,4}", index)):
        raise UsageError(f'--device cannot be "{device}": use cpu, cuda, mps, or one of several GPUs, such as cuda:1')
    count = {"cpu": 1, "cuda": torch.cuda.device_count(), "mps": int(torch.backends.mps.is_available())}[kind]
    if not count:
        raise UserError(f'PyTorch finds no "{kind}" device: omit --device to use {resolve_device("")}')
    if int(index or 0) >= count:
        raise UserError(f'PyTorch finds no device "{device}": the last one is {kind}:{count - 1}')
    return device


@dataclass(frozen=True)
class ComputePrecision:
    device: torch.device
    dtype: torch.dtype

    def autocast(self) -> AbstractContextManager[object]:
        """Keeps weights in float32 and, where bf16 is chosen, computes matrix products in bf16."""
        return torch.autocast(self.device.type, torch.bfloat16) if self.dtype is torch.bfloat16 else nullcontext()


def compute_precision(precision: str, width: int, device: torch.device) -> ComputePrecision:
    """Returns what to train in: "float32", "bf16", or with "auto" what is faster for a model of this width."""
    if precision == "auto":
        wide_on_cpu = device.type == "cpu" and width >= MIN_BF16_WIDTH
        use_bf16 = device.type == "cuda" or (wide_on_cpu and bf16_supported())
    else:
        use_bf16 = precision == "bf16"
    return ComputePrecision(device, torch.bfloat16 if use_bf16 else torch.float32)


@cache
def bf16_supported() -> bool:
    """Tries bf16 on this CPU in a subprocess: some virtual machines advertise instructions that crash the process."""
    if not torch.backends.mkldnn.is_available() or not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return False
    script = "import torch; x = torch.ones(64, 64, dtype=torch.bfloat16); torch.nn.functional.linear(x, x)"
    return subprocess.run([sys.executable, "-c", script], capture_output=True, check=False).returncode == 0
