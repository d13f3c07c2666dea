"""JSON text goes in, a `Manifest` comes out, or every fault with its line and column. Decides what may be written
(`schema.py`, `training_config.py`), and declares each key once.
"""
