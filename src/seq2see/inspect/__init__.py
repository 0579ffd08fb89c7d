"""Traces of a model, interventions on it, and analyses of its output."""
