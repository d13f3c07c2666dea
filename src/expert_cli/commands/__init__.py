"""One file a command: read options, call one function, show its result.

A command imports what it works with when it runs: `--help` must not wait for the manifest's schema, let alone for torch.
"""
