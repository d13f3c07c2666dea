"""Rows go in, documents come out: pieces of text, each trained or not. Decides how a conversation is written (`chat.py`) and
which of it is trained (`mask.py`).
"""
