"""Finds or downloads a base model by its name (`names.py`), refuses code and pickles (`file_checks.py`), and loads it
quantized.
"""
