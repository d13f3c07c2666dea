"""Raw rows go in, checked rows come out, and a count of what became of the others. Decides which columns are read
(`columns.py`) and which rows are good (`validation.py`). Drawn by the seed: weighted rows and the validation split
(`sampling.py`).
"""
