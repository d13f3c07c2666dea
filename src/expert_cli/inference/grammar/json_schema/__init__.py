"""The beginning of a JSON text and a JSON Schema go in, whether something that fits can come of it comes out (`checker.py`)."""
