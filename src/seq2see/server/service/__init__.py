"""The translation service: the APIs of LibreTranslate and OpenAI in front of worker processes that decode."""
