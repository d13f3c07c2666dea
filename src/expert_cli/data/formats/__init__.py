"""A data file goes in, its raw rows come out, each with its place. Decides by the suffix who reads a file
(`registry.py`).
"""
