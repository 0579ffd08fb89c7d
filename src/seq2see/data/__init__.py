"""Raw text to packed batches of tokens."""
