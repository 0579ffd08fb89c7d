"""Texts that are too many for one process: a cluster of Ray workers, each with its own model (`--engine ray`)."""
