"""Checks the machine: one line for each check with ok, warn or fail, and the remedy. Checks that may crash or hang run in
processes of their own (`checks.py`).
"""
