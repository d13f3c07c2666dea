"""A model and packs go in, a trained adapter and what is told of it come out. Decides when to save by the clock and to stop
(`callbacks.py`), whether a recorded step is trusted (`captured_step.py`), which checkpoint is good (`checkpoint.py`), and that
a run has gone wrong (`health.py`). Drawn by the seed: the adapter's first weights and dropout.
"""
