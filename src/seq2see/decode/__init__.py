"""From vectors to text: how a model writes."""
