"""A plan with `method` rft goes in; a first training is followed by rounds of answers that are drawn, run and trained on, a run
directory comes out. Decides which right answers are trained (`select.py`) and which round is kept (`rounds.py`). Drawn by the
seed: the databases that are held back and the prompts of a round (`prompts.py`), the answers (`sampling.py`).
"""
