"""Trains an adapter on packs. Stopping and saving by time are in `callbacks.py`, the recorded CUDA step in `captured_step.py`,
checkpoints in `checkpoint.py`, detection of failed runs in `health.py`. The seed decides the adapter's initial weights and
dropout.
"""
