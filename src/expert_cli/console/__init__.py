"""The terminal: the one writer."""
