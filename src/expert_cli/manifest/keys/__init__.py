"""Keys of `training.config`, `training.dataset` and `training.rft`, a file a block: what may be written goes in, the form of
what a run takes from it comes out. Decides a key's type, default, effect and line in the documents.
"""
