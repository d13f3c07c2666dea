"""Parses a manifest into a `Manifest`, or reports every error with line and column. `schema.py` and `training_config.py`
define what may be written; each key is declared once.
"""
