"""Teaching material built on the library: lessons, word vectors, and the models before the Transformer."""
