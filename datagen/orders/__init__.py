"""The rows and cases of examples/orders."""
