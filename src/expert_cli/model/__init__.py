"""Loads a base model and adds an adapter. `isolation.py` proves that packed documents cannot attend to each other; otherwise
they are not trained.
"""
