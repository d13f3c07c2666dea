"""The places that rows come from: files, folders, the hub."""
