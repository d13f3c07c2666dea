"""The run directory: who owns it, where its files are, how its log, status and metrics are written and read."""
