"""Lets a trained expert or its base model answer prompts. Where an answer ends is decided in `generate.py`."""
