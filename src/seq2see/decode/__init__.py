"""Decoding: generating text token by token with a key-value cache, by sampling or beam search."""
