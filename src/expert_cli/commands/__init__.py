"""One file a command: words of the command line go in, one call of the library is made, its result comes out as text or
JSON.

A command imports what it works with when it runs: `--help` must not wait for the manifest's schema, let alone for torch.
"""
