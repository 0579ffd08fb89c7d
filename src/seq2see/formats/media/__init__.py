"""Pictures and sounds as sources: files decoded into rows of numbers."""
