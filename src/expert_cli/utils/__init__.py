"""What any Python project could use: files, processes, texts."""
