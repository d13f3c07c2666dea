"""The manifest file format and nothing else: text -> `Manifest`, with line and column of every fault."""
