"""The rows of expert-typescript."""
