"""A machine goes in, one line a check comes out: ok, warn or fail, and the remedy. What may crash or hang is tried
in a process of its own (`checks.py`).
"""
