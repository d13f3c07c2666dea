"""Describes the machine: GPUs, memory, cores, number formats, versions; decides which devices a run can use (`devices.py`).
torch is slow to import, so it is asked last.
"""
