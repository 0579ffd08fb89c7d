"""The data report: what is broken, misaligned, doubled or leaked, before training on it."""
