"""Documents as token ids go in, a verified token store on disk comes out, memory-mapped. Decides what a store is made
of, and so when it is stale (`lookup.py`).
"""
