"""A graph's schema and the start of a Cypher query go in, whether it can become one of that graph comes out (`checker.py`)."""
