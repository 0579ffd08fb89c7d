"""Evaluation: translations and word alignments against references, and language models on held-out text."""
