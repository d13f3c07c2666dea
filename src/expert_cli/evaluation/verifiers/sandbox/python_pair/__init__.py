"""A Python answer and its tests go in, a `Grade` comes out: each has a process of its own (`run.py`), and the tests use what
the answer defines from theirs. Decides what the answer may be to them: values, and objects that are asked (`peer.py`).
"""
