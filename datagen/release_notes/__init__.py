"""The rows and cases of examples/release-notes."""
