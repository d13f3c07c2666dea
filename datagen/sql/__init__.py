"""The rows of expert-sql."""
