"""The run directory: its lock (`lock.py`), its paths (`run_paths.py`), its log, status and metrics."""
