"""Base models from anywhere: found, fetched, checked, loaded."""
