"""A Python answer and its tests go in, a `Grade` comes out: each has a process of its own (`run.py`), and the tests use what
the answer defines from theirs. Decides what the answer may be to them: values, and objects that are asked (`peer.py`).

A verdict rests on plain values that came as copies and are compared in the tests' process, and on what objects say of
themselves without having seen what is expected (`operators.py`). What a weak test cannot hold: a class whose objects are
compared only with each other, by their own ==, can call itself equal.
"""
