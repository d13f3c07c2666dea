"""A run under way and samples of the machine go in, one diagnosis and its remedy come out. Decides what holds a run
back (`diagnosis.py`) and what to change (`remedies.py`).
"""
