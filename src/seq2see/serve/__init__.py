"""The HTTP API behind the page, and the page itself, on this machine only. Nothing outside of here needs a server installed."""
