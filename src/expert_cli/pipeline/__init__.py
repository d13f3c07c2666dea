"""Runs the stages in order: builds a token store (`pretokenize.py`) or trains (`train.py`). The seed draws the cases answered
before and after training (`before_after.py`) and the rows of rft's rounds (`rounds.py`).
"""
