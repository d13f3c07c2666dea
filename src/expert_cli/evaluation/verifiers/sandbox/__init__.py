"""Runs untrusted programs in processes of their own: queries, deno and Python. Limits are set in `child_process.py`."""
