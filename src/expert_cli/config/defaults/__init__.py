"""One block of a manifest goes in, the same block of the `RunConfig` comes out. Decides what more than the key itself
decides: other keys, the machine.
"""
