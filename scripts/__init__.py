"""What a user runs by hand."""
