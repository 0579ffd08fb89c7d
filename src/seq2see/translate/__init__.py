"""Text of any length and form through a translator of sentences, and back into the form it came in."""
