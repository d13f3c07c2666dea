"""Text, tables and JSON documents go in, stdout and stderr come out: the one writer."""
