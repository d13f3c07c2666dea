"""A plan goes in, a token store (`pretokenize.py`) or a run directory (`train.py`) comes out. Decides the order of the
stages. Drawn by the seed: the cases that are answered before and after (`before_after.py`), what rounds hold back
and draw (`rounds.py`).
"""
