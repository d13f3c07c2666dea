"""Run directories: paths, lock, status, log, metrics."""
