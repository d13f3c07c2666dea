"""A run directory goes in, files for people and other programs come out, held against what was trained (`export.py`)."""
