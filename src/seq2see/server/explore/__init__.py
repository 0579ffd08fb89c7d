"""The web page and the HTTP API behind it, served on localhost. Nothing outside this package imports the web framework."""

from pathlib import Path

PAGE_DIRECTORY = Path(__file__).parent / "page"  # built by web/build.mjs
