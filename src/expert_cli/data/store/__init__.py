"""Writes token ids as a verified, memory-mapped token store, and decides when a store is stale (`lookup.py`)."""
