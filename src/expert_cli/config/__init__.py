"""Manifest, machine and command line become one decided run; what became of every key."""
