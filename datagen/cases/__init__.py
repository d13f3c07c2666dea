"""The test cases of the experts."""
