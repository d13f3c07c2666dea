"""Proves what an expert's answers are worth, by running them."""
