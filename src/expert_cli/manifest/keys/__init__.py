"""The keys of `training.config`, `training.dataset` and `training.rft`, one file for each group: type, default, effect,
documentation.
"""
