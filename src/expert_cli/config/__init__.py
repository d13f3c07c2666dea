"""Manifest, machine and command line go in, a frozen `RunConfig` and the effect of every key come out (`plan.py`).
Decides all that a run does, and what cannot be (`resolve.py`, `conflicts.py`).
"""
