"""An expert and its cases go in, graded answers and accuracies with intervals come out. Decides what of an answer
counts as the answer (`extract.py`), and which training rows are useless (`audit.py`). Drawn by the seed: the examples before
a question (`evaluate.py`).
"""
