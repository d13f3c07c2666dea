"""The rows of expert-json."""
