"""A model and packs go in, a trained adapter and a `FitResult` come out. Decides when to save (`flow_callback.py`), to
stop (`signals.py`), and that a run has gone wrong (`health.py`). Drawn by the seed: the adapter's first weights and
dropout.
"""
