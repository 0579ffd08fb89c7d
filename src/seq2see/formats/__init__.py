"""Files of other programs: tables, translation memories, documents, pictures and sounds. The core finds them by name."""
