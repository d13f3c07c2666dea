"""One answer and its case go in, a `Grade` comes out, reached by running the answer. One file a language decides there
what is right.
"""
