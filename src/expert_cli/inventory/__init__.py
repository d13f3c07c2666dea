"""Caches, folders and manifests of this machine go in, one list of data sets comes out (`find-datasets`). Writes
nothing.
"""
