"""Translates texts and documents of any length with a sentence translator, and restores their format."""
