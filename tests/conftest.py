"""What every test needs, before torch is first imported and after."""

import os

# Some virtual machines announce Intel's AMX and then refuse its instructions, which kills the process in bf16.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

import torch

torch.set_num_threads(1)  # the tests' models are tiny: a second thread would only wait for the first
