"""Translates texts of any length with a sentence translator, and with the terms of a glossary."""
