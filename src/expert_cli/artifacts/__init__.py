"""Exports a run: files for people and for other programs, checked against the trained model (`export.py`)."""
