"""Decoding on a GPU: Triton kernels, and layers fused for them."""
