"""The file formats that corpora come in."""
