"""Measurements: each prints a table that docs/BENCHMARKS.md keeps, with the command that made it."""
