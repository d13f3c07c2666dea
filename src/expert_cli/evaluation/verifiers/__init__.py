"""Judges an answer to a case by running it, and returns a `Grade`. There is one file for each language."""
