"""What a model computed, drawn: tables in the terminal, plots as files, HTML in a notebook."""
