"""Models on packed rows, with interchangeable attention implementations and taps at every step."""
