"""Segments of text go in, token ids and `completion_mask` come out. Decides which backend encodes
(`backend_check.py`).
"""
