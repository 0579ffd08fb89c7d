"""The two services: the page of seq2see explore, and the API of seq2see serve."""
