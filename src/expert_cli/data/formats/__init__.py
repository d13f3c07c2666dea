"""File formats: bytes of a file go in, its raw rows come out."""
