"""A base model's folder goes in, the model in memory with its adapter comes out. Decides whether packed documents may
be trained at all: `isolation.py` proves that they do not see each other.
"""
