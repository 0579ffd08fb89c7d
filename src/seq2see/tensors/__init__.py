"""Tensors and files: storage in 8 and 4 bits, devices and precision, random numbers, atomic writes."""
