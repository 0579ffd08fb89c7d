"""Translation and word-alignment metrics."""
