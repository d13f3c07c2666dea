"""A configuration of another trainer goes in, a manifest and every key that it does not carry over, with the reason, come out.
Decides what a key of theirs is here: a table a program (`registry.py`).
"""
