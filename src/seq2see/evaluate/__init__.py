"""How good a model is: translations and alignments against gold, text against its probability."""
