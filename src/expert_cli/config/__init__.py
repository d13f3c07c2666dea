"""Turns manifest, machine and command line into a frozen `RunConfig`, with the effect of every key (`plan.py`). Settings are
decided in `resolve.py`, conflicts found in `conflicts.py`.
"""
