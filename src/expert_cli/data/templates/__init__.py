"""Checked rows go in, documents come out: segments of text, each trained or not. Decides which tokens are trained
(`loss_mask.py`, `conversation.py`, `whole_text.py`).
"""
