"""Which numbers to compute with: the one rule for dtypes."""

import subprocess
import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache

import torch

from seq2see.config import Config

WIDE = 512  # from this width on, bf16 is faster than float32 on a CPU that has instructions for it


@dataclass(frozen=True)
class ComputeIn:
    device: torch.device
    dtype: torch.dtype

    def autocast(self) -> AbstractContextManager[object]:
        """Weights stay float32; matrix products are computed in bf16 where that is chosen."""
        return torch.autocast(self.device.type, torch.bfloat16) if self.dtype is torch.bfloat16 else nullcontext()


def precision_of(config: Config, device: torch.device) -> ComputeIn:
    wanted = config.train.precision
    if wanted == "auto":
        half = device.type == "cuda" or (device.type == "cpu" and config.model.width >= WIDE and bf16_works())
        return ComputeIn(device, torch.bfloat16 if half else torch.float32)
    return ComputeIn(device, torch.bfloat16 if wanted == "bf16" else torch.float32)


@cache
def bf16_works() -> bool:
    """Whether this CPU really computes in bf16: some virtual machines announce instructions that kill who uses them."""
    if not torch.backends.mkldnn.is_available() or not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return False
    trial = "import torch; x = torch.ones(64, 64, dtype=torch.bfloat16); torch.nn.functional.linear(x, x)"
    return subprocess.run([sys.executable, "-c", trial], capture_output=True, check=False).returncode == 0
