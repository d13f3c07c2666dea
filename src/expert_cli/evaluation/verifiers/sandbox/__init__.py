"""Programs of strangers go in, what they return or how they were stopped comes out: query engines, deno and
Python, in processes of their own. Decides what they may use (`child_process.py`).
"""
