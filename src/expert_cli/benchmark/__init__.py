"""A run, or two settings of one, goes in, numbers and what follows from them come out: `monitor` watches a run,
`experiment` makes short ones.
"""
