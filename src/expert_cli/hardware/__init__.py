"""A machine goes in, what it has comes out: GPUs, memory, cores, number formats, versions, the speed of a disk. Asks
no torch.
"""
