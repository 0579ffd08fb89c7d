"""The Transformer: packed rows, attention in three writings, taps at every step."""
