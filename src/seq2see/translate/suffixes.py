"""The formats of documents, by file extension. Imports nothing: the front process of a server must not load torch."""

from typing import Final

DOCUMENT_SUFFIXES: Final = (".po", ".pot", ".srt", ".vtt", ".md", ".markdown", ".html", ".htm")
