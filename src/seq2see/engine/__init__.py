"""The engine: decoding on a CPU in C, at the speed of the processor; the torch model is its reference."""
