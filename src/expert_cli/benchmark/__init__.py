"""Measures: `monitor.py` watches a run and `diagnosis.py` finds what slows it down; `experiment.py` and `sweep.py` compare
short runs with different settings, each in a fresh process.
"""
