"""One block of a manifest goes in, the same block of the `RunConfig` comes out. Decides what stands for a key that is
not written, and says what each written one does.
"""
