"""seq2see: train a Transformer on your own text, run it fast, and see every number it computed."""

__version__ = "0.1.0"
