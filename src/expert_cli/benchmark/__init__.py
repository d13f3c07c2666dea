"""A run, or two settings of one, goes in; numbers and what follows from them come out. `monitor.py` watches a run, and
`diagnosis.py` decides what holds it back; `experiment.py` and `sweep.py` make short runs in fresh processes and compare them.
"""
