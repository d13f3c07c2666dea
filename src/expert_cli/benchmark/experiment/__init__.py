"""Settings to compare go in, short runs in fresh processes are made, means and ratios with 95 % intervals come out
(`paired_runs.py`).
"""
