"""General helpers for files, processes and texts, which know nothing of manifests or models."""
