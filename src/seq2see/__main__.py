"""`python -m seq2see` is the `seq2see` command, also where the package is not installed."""

from seq2see.cli import main

main()
