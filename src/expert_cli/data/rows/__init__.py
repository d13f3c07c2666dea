"""Raw rows go in, checked rows come out, and a count of what became of the others. Decides what rows there are and which
columns they are read from, one entry a kind (`kinds.py`), in which forms files have them (`forms.py`), what a turn says
(`turn.py`), which rows are good (`validation.py`), and what is near (`similarity.py`, `overlap.py`). Drawn by the seed:
weighted rows and the validation split (`sampling.py`).
"""
