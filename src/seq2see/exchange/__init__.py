"""Models of other libraries, read and written."""
