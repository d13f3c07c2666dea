"""Turns document lengths into packs, batches and training steps."""
