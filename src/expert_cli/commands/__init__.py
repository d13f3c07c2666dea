"""One file for each command: reads the options, calls one function of `api`, prints the result as text or JSON.

A command imports what it works with when it runs: `--help` must not wait for the manifest's schema, let alone for torch.
"""
