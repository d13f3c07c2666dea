"""The run directory: who owns it (`lock.py`), where its files are (`run_paths.py`), how its log, status and metrics are written
and read.
"""
