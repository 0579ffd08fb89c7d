"""Weights from other libraries' formats."""
