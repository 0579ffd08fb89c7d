"""Looking into a model, and reaching in."""
