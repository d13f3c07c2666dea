"""A machine goes in, what it has comes out: GPUs, memory, cores, number formats, versions. Decides which
devices a run can be computed on (`devices.py`), and asks torch, which is slow to load, only where nothing else tells.
"""
