"""The data check: finds broken, misaligned, duplicate and leaked text before training."""
