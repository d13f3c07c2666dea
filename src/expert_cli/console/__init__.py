"""The only package that writes to stdout and stderr: text, tables and JSON."""
