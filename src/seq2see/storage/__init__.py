"""A model on disk, and the text model it holds: a network with its tokenizers."""
