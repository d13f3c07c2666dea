"""Rows in, batches out: sources -> columns -> templates -> encode -> loader."""
