"""Checkpoints: what is saved, and how a run goes on as if nothing had happened."""
