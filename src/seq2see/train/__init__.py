"""Training: data preparation, the training loop, checkpoints, validation and the model card."""
